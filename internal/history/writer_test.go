package history

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/tallyman-dev/tallyman/internal/store/sqlite"
)

func TestWhoLeavesWithoutWorkingCommitsForThoseWhoWait(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "history.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	w := &writer{db: db.Writer}
	ctx, cancel := context.WithCancel(t.Context())
	leaver := make(chan error, 1)
	err = w.do(t.Context(), func(context.Context, *sql.Tx) error {
		go func() { leaver <- w.do(ctx, nil) }()
		for w.coming.Load() == 0 {
			runtime.Gosched()
		}
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

func TestWorkThatFailsOrPanicsIsUndoneAndFreesTheWriter(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "history.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	w := &writer{db: db.Writer}
	broken := errors.New("broken")
	create := func(then func() error) (err error) {
		defer func() {
			if recover() != nil {
				err = broken
			}
		}()
		return w.do(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
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
