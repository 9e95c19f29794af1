package database

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/database/sqlite"
)

func openWriter(t *testing.T) *Writer {
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
	return NewWriter(db.Writer, SQLite)
}

// another starts work of somebody else and waits until it is on its way.
func another(w *Writer, work func() error) <-chan error {
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
	err := w.Do(t.Context(), func(context.Context, *sql.Tx) error {
		leaver = another(w, func() error { return w.Do(ctx, nil) })
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
	first := w.Do(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "CREATE TABLE t (x INTEGER)"); err != nil {
			return err
		}
		second = another(w, func() error {
			return w.Do(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
				// What an engine does by itself when the disk is full.
				if _, err := tx.ExecContext(ctx, "ROLLBACK"); err != nil {
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
	err := w.Do(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE t (x INTEGER)") // the first one's is gone
		return err
	})
	if err != nil {
		t.Errorf("the next: %v", err)
	}
}

func TestWorkThatFailsOrPanicsIsUndoneAndFreesTheWriter(t *testing.T) {
	w := openWriter(t)
	broken := errors.New("broken")
	create := func(then func() error) (err error) {
		defer func() {
			if recover() != nil {
				err = broken
			}
		}()
		return w.Do(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "CREATE TABLE t (x INTEGER)"); err != nil {
				return err
			}
			return then()
		})
	}
	if err := create(func() error { panic("for the test") }); !errors.Is(err, broken) {
		t.Errorf("the panic was swallowed: %v", err)
	}
	if err := create(func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("an error: %v", err)
	}
	if err := create(func() error { return nil }); err != nil {
		t.Errorf("what came before is still there: %v", err)
	}
}

func TestAFullDiskIsToldWithTheFile(t *testing.T) {
	w := openWriter(t)
	fill := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE t AS SELECT zeroblob(1000000)")
		return err
	}
	if _, err := w.db.Exec("PRAGMA max_page_count = 10"); err != nil {
		t.Fatal(err)
	}
	err := w.Do(t.Context(), fill)
	if tallyman.CodeOf(err) != tallyman.Unavailable || !strings.Contains(err.Error(), "control.db") || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("got %v", err)
	}
	if _, err := w.db.Exec("PRAGMA max_page_count = 10000"); err != nil {
		t.Fatal(err)
	}
	if err := w.Do(t.Context(), fill); err != nil {
		t.Errorf("with room again: %v", err)
	}
}
