package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/database"
)

// Tx is a transaction: it sees its own writes, and all of them are kept or
// none. It is good only inside the function that InTx gave it to, in one
// goroutine.
type Tx struct {
	ctx     context.Context // of the transaction, whose length is the Tx's
	conn    conn
	faults  *faults
	dialect database.Dialect
	counts  map[count]int // what to add to run_counts
}

type count struct {
	namespace string
	state     tallyman.State
}

// InTx runs fn in a transaction and returns when it is committed and on the
// disk. Transactions follow each other; callers who come at the same time
// share one commit. When fn returns an error nothing of it is kept and InTx
// returns that error. fn may be run again when the engine was busy, so it
// must do nothing but use its Tx; it must not call InTx. An error of the
// commit itself leaves open whether the work was kept.
func (s *Store) InTx(ctx context.Context, fn func(*Tx) error) error {
	return s.faults.around(ctx, "InTx", func() error {
		for wait := firstWait; ; wait *= 2 {
			err := s.writer.Do(ctx, func(ctx context.Context, t *sql.Tx) error {
				tx := &Tx{ctx: ctx, conn: conn{t, s.dialect}, faults: s.faults, dialect: s.dialect, counts: map[count]int{}}
				if err := fn(tx); err != nil {
					return err
				}
				return tx.flushCounts()
			})
			if err == nil || wait > lastWait || !s.dialect.Retryable(err) {
				return err
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(wait):
			}
		}
	})
}

// The waits between tries when the engine is busy; they double.
const (
	firstWait = 5 * time.Millisecond
	lastWait  = 500 * time.Millisecond
)

// do is around for the transaction's own calls.
func (tx *Tx) do(op string, call func() error) error {
	return tx.faults.around(tx.ctx, "Tx."+op, call)
}

// Run returns the run with that id, or NotFound.
func (tx *Tx) Run(id string) (r tallyman.Run, err error) {
	err = tx.do("Run", func() error {
		r, err = runByID(tx.ctx, tx.conn, id)
		return err
	})
	return r, err
}

// Attempts returns the run's attempts in order.
func (tx *Tx) Attempts(runID string) (items []tallyman.Attempt, err error) {
	err = tx.do("Attempts", func() error {
		items, err = attempts(tx.ctx, tx.conn, runID)
		return err
	})
	return items, err
}

// Attempt returns the attempt, or NotFound.
func (tx *Tx) Attempt(ref tallyman.AttemptRef) (a tallyman.Attempt, err error) {
	err = tx.do("Attempt", func() error {
		a, err = attempt(tx.ctx, tx.conn, ref)
		return err
	})
	return a, err
}

// InsertAttempt adds an attempt to its run. Conflict when it is there.
func (tx *Tx) InsertAttempt(a tallyman.Attempt) error {
	return tx.do("InsertAttempt", func() error {
		fields := attemptFields(&a)
		n, err := tx.conn.exec(tx.ctx, `INSERT INTO attempts (`+attemptColumns+`)
			VALUES (`+marks(len(fields))+`) ON CONFLICT DO NOTHING`, fields...)
		if err != nil {
			return fmt.Errorf("insert attempt %s: %w", a.Ref(), err)
		}
		if n == 0 {
			return tallyman.Errorf(tallyman.Conflict, "attempt %s exists already", a.Ref())
		}
		return nil
	})
}

// PutAttempt writes an attempt that exists, or returns NotFound.
func (tx *Tx) PutAttempt(a tallyman.Attempt) error {
	return tx.do("PutAttempt", func() error {
		n, err := tx.conn.exec(tx.ctx, putAttempt, append(attemptFields(&a), a.RunID, a.Number)...)
		if err != nil {
			return fmt.Errorf("write attempt %s: %w", a.Ref(), err)
		}
		if n == 0 {
			return noAttempt(a.Ref())
		}
		return nil
	})
}

var putAttempt = `UPDATE attempts SET ` + sets(attemptColumns) + ` WHERE run_id = ? AND number = ?`

// Load counts the attempts that take a slot now.
func (tx *Tx) Load() (l Load, err error) {
	err = tx.do("Load", func() error {
		l, err = load(tx.ctx, tx.conn)
		return err
	})
	return l, err
}

// Setting returns a small piece of the server's own state, "" when it was
// never set.
func (tx *Tx) Setting(name string) (value string, err error) {
	err = tx.do("Setting", func() error {
		value, _, err = first(tx.ctx, tx.conn, scanString, `SELECT value FROM settings WHERE name = ?`, name)
		if err != nil {
			return fmt.Errorf("read setting %s: %w", name, err)
		}
		return nil
	})
	return value, err
}

// SetSetting writes a small piece of the server's own state.
func (tx *Tx) SetSetting(name, value string) error {
	return tx.do("SetSetting", func() error {
		_, err := tx.conn.exec(tx.ctx, `INSERT INTO settings (name, value) VALUES (?, ?)
			ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, text{&value})
		if err != nil {
			return fmt.Errorf("write setting %s: %w", name, err)
		}
		return nil
	})
}
