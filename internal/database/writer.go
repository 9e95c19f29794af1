package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tallyman-dev/tallyman"
)

// Writer commits the work of callers who come at the same time together: one
// transaction, a savepoint each, one commit that reaches the disk. Alone, a
// caller waits for nobody.
type Writer struct {
	db      *sql.DB
	dialect Dialect

	coming atomic.Int64 // callers on their way to mu
	mu     sync.Mutex
	open   *batch // under mu
}

// batch is a transaction that several callers share.
type batch struct {
	tx   *sql.Tx
	n    int // callers whose work is in it
	done chan struct{}
	err  error // of the commit; set before done is closed
}

// maxBatch bounds how many callers wait for one commit.
const maxBatch = 128

// NewWriter returns the writer of a database. It uses one connection at a
// time.
func NewWriter(db *sql.DB, d Dialect) *Writer { return &Writer{db: db, dialect: d} }

// Do runs fn, alone, in a transaction and returns when it is committed. When
// fn returns an error, what it did is undone and the error returned. ctx is
// looked at before fn is run; from then on the work is finished, since a
// statement that is broken off would take the others' work with it. On a full
// disk the error is Unavailable and says what to do.
func (w *Writer) Do(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	b, err := w.join(ctx, fn)
	if err == nil {
		<-b.done
		err = b.err
	}
	if w.dialect.full(err) {
		return tallyman.Errorf(tallyman.Unavailable, "write to the database%s: %w: free some space on its disk", w.file(ctx), err)
	}
	return err
}

// file names the database's file, if it is one.
func (w *Writer) file(ctx context.Context) string {
	var path string
	if w.dialect != SQLite || w.db.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&path) != nil {
		return ""
	}
	return " " + path
}

// join adds fn's work to the open batch. Who is the last for now commits it.
func (w *Writer) join(ctx context.Context, fn func(context.Context, *sql.Tx) error) (*batch, error) {
	w.coming.Add(1)
	w.mu.Lock()
	w.coming.Add(-1)
	defer w.mu.Unlock()
	defer w.leave()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	if w.open == nil {
		tx, err := w.db.BeginTx(ctx, w.dialect.writing())
		if err != nil {
			return nil, fmt.Errorf("begin: %w", err)
		}
		w.open = &batch{tx: tx, done: make(chan struct{})}
	}
	b := w.open
	if err := w.work(ctx, b, fn); err != nil {
		return nil, err
	}
	b.n++
	return b, nil
}

// work runs fn behind a savepoint, and goes back to it when fn fails, or
// panics. When even that fails, the whole batch is lost and says so.
func (w *Writer) work(ctx context.Context, b *batch, fn func(context.Context, *sql.Tx) error) (err error) {
	if _, err := b.tx.ExecContext(ctx, "SAVEPOINT work"); err != nil {
		w.lose(b, err)
		return fmt.Errorf("set savepoint: %w", err)
	}
	kept := false
	defer func() {
		if kept {
			return
		}
		if _, rerr := b.tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT work"); rerr != nil {
			w.lose(b, errors.Join(err, rerr))
		} else if _, rerr := b.tx.ExecContext(ctx, "RELEASE SAVEPOINT work"); rerr != nil {
			w.lose(b, errors.Join(err, rerr))
		}
	}()
	if err := fn(ctx, b.tx); err != nil {
		return err
	}
	if _, err := b.tx.ExecContext(ctx, "RELEASE SAVEPOINT work"); err != nil {
		return fmt.Errorf("release savepoint: %w", err)
	}
	kept = true
	return nil
}

// leave commits the open batch unless somebody is on the way who will.
func (w *Writer) leave() {
	b := w.open
	if b == nil || (w.coming.Load() > 0 && b.n < maxBatch) {
		return
	}
	w.open = nil
	switch {
	case b.n == 0:
		b.err = b.tx.Rollback()
	default:
		if b.err = b.tx.Commit(); b.err != nil {
			b.err = fmt.Errorf("commit: %w", b.err)
		}
	}
	close(b.done)
}

// lose ends a batch whose transaction cannot go on.
func (w *Writer) lose(b *batch, cause error) {
	if w.open != b {
		return
	}
	w.open = nil
	b.err = fmt.Errorf("transaction lost: %w", errors.Join(cause, b.tx.Rollback()))
	close(b.done)
}
