package sqlite

import (
	"context"
	"database/sql/driver"

	"modernc.org/sqlite"
)

// maxStatements bounds how many statements a connection keeps. Those of a list
// have a text for each set of filters; who comes too late takes the place of
// any other.
const maxStatements = 128

// connector opens connections that keep the statements they have prepared:
// reading the text of one takes as long as running it.
type connector struct{ driver.Connector }

func newConnector(dsn string) (driver.Connector, error) {
	plain, err := sqlite.NewConnector(dsn)
	return connector{plain}, err
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	opened, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{opened.(engine), map[string]driver.Stmt{}}, nil
}

// engine is what the driver's connections can, but for running a text that
// was not prepared: so database/sql prepares each, and here it may be known.
type engine interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// conn is used by one goroutine at a time.
type conn struct {
	engine
	idle map[string]driver.Stmt // by text; one in use is not among them
}

// Unwrap is how the driver finds its own connection.
func (c *conn) Unwrap() driver.Conn { return c.engine }

func (c *conn) Prepare(text string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), text)
}

func (c *conn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	s, known := c.idle[text]
	delete(c.idle, text)
	if !known {
		var err error
		if s, err = c.engine.PrepareContext(ctx, text); err != nil {
			return nil, err
		}
	}
	return &stmt{s.(prepared), c, text}, nil
}

// Close drops what is kept with the connection.
func (c *conn) Close() error {
	for _, s := range c.idle {
		_ = s.Close() // it only frees memory
	}
	clear(c.idle)
	return c.engine.Close()
}

// prepared is what the driver's statements can.
type prepared interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// stmt goes back to its connection when it is closed.
type stmt struct {
	prepared
	conn *conn
	text string
}

func (s *stmt) Close() error {
	idle := s.conn.idle
	if _, another := idle[s.text]; another {
		return s.prepared.Close()
	}
	for text, old := range idle {
		if len(idle) < maxStatements {
			break
		}
		delete(idle, text)
		_ = old.Close()
	}
	idle[s.text] = s.prepared
	return nil
}
