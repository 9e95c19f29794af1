package store

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/tallyman-dev/tallyman/internal/store/sqlite"
)

func openWriter(t *testing.T) *writer {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "control.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return newWriter(db.Writer, SQLite)
}

// another starts work of somebody else and waits until it is on its way.
func another(w *writer, work func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	for w.coming.Load() == 0 {
		runtime.Gosched()
	}
	return done
}

func TestWhoLeavesWithoutWorkingCommitsForThoseWhoWait(t *testing.T) {
	w := openWriter(t)
	ctx, cancel := context.WithCancel(t.Context())
	var leaver <-chan error
	err := w.do(t.Context(), func(context.Context, conn) error {
		leaver = another(w, func() error { return w.do(ctx, nil) })
		cancel()
		return nil // with somebody coming, the commit is left to him
	})
	if err != nil {
		t.Errorf("who waited: %v", err)
	}
	if err := <-leaver; !errors.Is(err, context.Canceled) {
		t.Errorf("who left: %v, want context.Canceled", err)
	}
}

func TestALostTransactionIsToldToAllWhoseWorkWasInIt(t *testing.T) {
	w := openWriter(t)
	var second <-chan error
	broken := errors.New("broken")
	first := w.do(t.Context(), func(ctx context.Context, c conn) error {
		if _, err := c.exec(ctx, "CREATE TABLE t (x INTEGER)"); err != nil {
			return err
		}
		second = another(w, func() error {
			return w.do(context.Background(), func(ctx context.Context, c conn) error {
				// What an engine does by itself when the disk is full.
				if _, err := c.exec(ctx, "ROLLBACK"); err != nil {
					t.Error(err)
				}
				return broken
			})
		})
		return nil
	})
	if !errors.Is(first, broken) {
		t.Errorf("the first, whose work is lost: %v", first)
	}
	if err := <-second; !errors.Is(err, broken) {
		t.Errorf("the second: %v", err)
	}
	err := w.do(t.Context(), func(ctx context.Context, c conn) error {
		_, err := c.exec(ctx, "CREATE TABLE t (x INTEGER)") // the first one's is gone
		return err
	})
	if err != nil {
		t.Errorf("the next: %v", err)
	}
}
