package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// writer commits what callers bring at the same time together: one commit
// that reaches the disk for all of them. Alone, a caller waits for nobody.
type writer struct {
	db     *sql.DB
	coming atomic.Int64 // callers on their way to mu
	mu     sync.Mutex
	open   *batch // under mu
}

// batch is a transaction that several callers share.
type batch struct {
	tx   *sql.Tx
	n    int
	done chan struct{}
	err  error // set before done is closed
}

// maxBatch bounds how many callers wait for one commit.
const maxBatch = 128

// do runs work, alone, in a transaction and returns when it is committed. An
// error of work takes the others along, so work returns only those of the
// database and looks before it writes. ctx is looked at before work is run;
// from then on the work is finished.
func (w *writer) do(ctx context.Context, work func(context.Context, *sql.Tx) error) error {
	b, err := w.join(ctx, work)
	if err != nil {
		return err
	}
	<-b.done
	return b.err
}

// join adds work to the open batch. Who is the last for now commits it.
func (w *writer) join(ctx context.Context, work func(context.Context, *sql.Tx) error) (*batch, error) {
	w.coming.Add(1)
	w.mu.Lock()
	w.coming.Add(-1)
	defer w.mu.Unlock()
	if err := ctx.Err(); err != nil {
		w.commit()
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	if w.open == nil {
		tx, err := w.db.BeginTx(ctx, nil)
		if err != nil {
			return nil, fmt.Errorf("begin: %w", err)
		}
		w.open = &batch{tx: tx, done: make(chan struct{})}
	}
	b := w.open
	finished := false
	defer func() {
		if !finished {
			w.close(errors.Join(errors.New("transaction lost"), b.tx.Rollback()))
		}
	}()
	if err := work(ctx, b.tx); err != nil {
		return nil, err
	}
	finished = true
	b.n++
	w.commit()
	return b, nil
}

// commit ends the open batch unless somebody is on the way who will.
func (w *writer) commit() {
	if w.open == nil || w.coming.Load() > 0 && w.open.n < maxBatch {
		return
	}
	err := w.open.tx.Commit()
	if err != nil {
		err = fmt.Errorf("commit: %w", err)
	}
	w.close(err)
}

func (w *writer) close(err error) {
	b := w.open
	w.open = nil
	b.err = err
	close(b.done)
}
