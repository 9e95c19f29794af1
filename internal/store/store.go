// Package store keeps control state in SQL: runs, attempts, what the server
// decided about them, idempotency keys. It obeys and does not judge: rules
// are the root's, and only the service writes.
//
// Every read sees what was committed when it began. Writes go through InTx.
// Text comes back as it was given but for U+0000 and what is not UTF-8, which
// become U+FFFD; times come back in UTC, cut to microseconds.
package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"

	"github.com/tallyman-dev/tallyman/internal/database"
)

// Store is control state in one database. Its methods may be called at the
// same time.
type Store struct {
	writer  *database.Writer
	reader  *sql.DB
	dialect database.Dialect
	faults  *faults
}

//go:embed migrations/*.sql
var migrations embed.FS

// Open brings the schema up to date and returns the store. Of writer at most
// one connection is used at a time. Both pools stay the caller's to close.
// A schema that a newer version made is Unsupported.
func Open(ctx context.Context, writing, reading *sql.DB, d database.Dialect) (*Store, error) {
	if err := database.Migrate(ctx, writing, d, migrations, "store_migrations"); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return &Store{writer: database.NewWriter(writing, d), reader: reading, dialect: d}, nil
}

// conn runs statements of ours in a database or a transaction.
type conn struct {
	db interface {
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	}
	dialect database.Dialect
}

func (c conn) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return c.db.QueryContext(ctx, c.dialect.Bind(query), args...)
}

// exec returns how many rows the statement changed.
func (c conn) exec(ctx context.Context, query string, args ...any) (int64, error) {
	res, err := c.db.ExecContext(ctx, c.dialect.Bind(query), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// all returns every row of a query; none are an empty list, as JSON has it.
func all[T any](ctx context.Context, c conn, scan func(row) (T, error), query string, args ...any) (items []T, err error) {
	rows, err := c.query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := rows.Close(); err == nil {
			err = cerr
		}
	}()
	items = []T{}
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		items = append(items, v)
	}
	return items, rows.Err()
}

// first returns the first row of a query, and whether there is one.
func first[T any](ctx context.Context, c conn, scan func(row) (T, error), query string, args ...any) (T, bool, error) {
	items, err := all(ctx, c, scan, query, args...)
	if err != nil || len(items) == 0 {
		var none T
		return none, false, err
	}
	return items[0], true, nil
}

// read runs fn on the readers' side. Several statements in fn may see
// different states; see snapshot.
func (s *Store) read(ctx context.Context, op string, fn func(conn) error) error {
	return s.faults.around(ctx, op, func() error {
		return fn(conn{s.reader, s.dialect})
	})
}

// snapshot is read for several statements that must see one state.
func (s *Store) snapshot(ctx context.Context, op string, fn func(conn) error) error {
	return s.faults.around(ctx, op, func() error {
		tx, err := s.reader.BeginTx(ctx, s.dialect.Snapshot())
		if err != nil {
			return err
		}
		defer tx.Rollback() // nothing was written
		return fn(conn{tx, s.dialect})
	})
}
