package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/store"
)

func rollback(t *testing.T, s *store.Store) {
	var wg sync.WaitGroup
	for n := range 60 {
		wg.Go(func() {
			err := s.InTx(t.Context(), func(tx *store.Tx) error {
				if err := tx.InsertRun(newRun(n), store.Detail{}); err != nil {
					return err
				}
				if n%3 == 0 {
					return ErrFault
				}
				return nil
			})
			if n%3 == 0 && !errors.Is(err, ErrFault) || n%3 != 0 && err != nil {
				t.Errorf("transaction %d: %v", n, err)
			}
		})
	}
	wg.Wait()
	if got := listIDs(t, s, store.Filter{Limit: 1000}); len(got) != 40 {
		t.Errorf("%d runs are kept, want 40", len(got))
	}
	if got, err := s.Counts(t.Context()); err != nil || got["default"][tallyman.Queued] != 40 {
		t.Errorf("counts are %v, %v, want 40 queued", got, err)
	}
}

func panics(t *testing.T, s *store.Store) {
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = s.InTx(t.Context(), func(tx *store.Tx) error {
			if err := tx.InsertRun(newRun(1), store.Detail{}); err != nil {
				t.Error(err)
			}
			panic("for the test")
		})
	}()
	insert(t, s, newRun(2))
	same(t, listIDs(t, s, store.Filter{}), []string{id(2)})
}

func claims(t *testing.T, s *store.Store) {
	insert(t, s, newRun(1))
	was := get(t, s, id(1))
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			next, err := was.Apply(tallyman.Trigger{Kind: tallyman.TriggerAdmitted, At: epoch})
			if err != nil {
				t.Error(err)
				return
			}
			err = s.InTx(t.Context(), func(tx *store.Tx) error { return tx.PutRun(next, was.Version) })
			switch tallyman.CodeOf(err) {
			case "":
				won.Add(1)
			case tallyman.Conflict:
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d won, want 1", won.Load())
	}
}

func manyWriters(t *testing.T, s *store.Store) {
	insert(t, s, newRun(0))
	const writers, each = 16, 10
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				err := put(t.Context(), s, id(0), func(r *tallyman.Run) { r.OOMKills++ })
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := get(t, s, id(0)); got.OOMKills != writers*each || got.Version != writers*each {
		t.Errorf("run was written %d times to version %d, want %d", got.OOMKills, got.Version, writers*each)
	}
}

func cancelled(t *testing.T, s *store.Store) {
	var wg sync.WaitGroup
	for n := range 60 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if n%3 == 1 {
				cancel()
			}
			err := s.InTx(ctx, func(tx *store.Tx) error {
				if n%3 == 0 {
					cancel() // in the middle: the work is finished
				}
				return tx.InsertRun(newRun(n), store.Detail{})
			})
			if n%3 == 1 && !errors.Is(err, context.Canceled) || n%3 != 1 && err != nil {
				t.Errorf("transaction %d: %v", n, err)
			}
		})
	}
	wg.Wait()
	if got := listIDs(t, s, store.Filter{Limit: 1000}); len(got) != 40 {
		t.Errorf("%d runs are kept, want 40", len(got))
	}
}

func isolation(t *testing.T, s *store.Store) {
	mustTx(t, s, func(tx *store.Tx) error {
		if err := tx.InsertRun(newRun(1), store.Detail{}); err != nil {
			return err
		}
		if _, err := tx.Run(id(1)); err != nil {
			t.Errorf("its own write: %v", err)
		}
		_, err := s.Run(t.Context(), id(1))
		wantCode(t, err, tallyman.NotFound)
		return nil
	})
	get(t, s, id(1))
}

func faultsStrike(t *testing.T, s *store.Store) {
	insert(t, s, newRun(1))
	failing := store.WithFaults(s, func(op string, n int) store.Fault {
		switch {
		case op == "Counts":
			return store.Fault{Before: ErrFault}
		case op == "Run" && n == 3:
			return store.Fault{After: ErrFault, Delay: time.Millisecond}
		default:
			return store.Fault{}
		}
	})
	_, err := failing.Counts(t.Context()) // call 1
	if !errors.Is(err, ErrFault) {
		t.Errorf("Counts: %v, want the fault", err)
	}
	get(t, failing, id(1)) // call 2
	if _, err := failing.Run(t.Context(), id(1)); !errors.Is(err, ErrFault) {
		t.Errorf("the third call: %v, want the fault", err)
	}
	if _, err := s.Counts(t.Context()); err != nil {
		t.Errorf("the store without faults: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	slow := store.WithFaults(s, func(string, int) store.Fault { return store.Fault{Delay: time.Hour} })
	if _, err := slow.Counts(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a delayed call whose caller has gone: %v", err)
	}
}

func faultAfterCommit(t *testing.T, s *store.Store) {
	failing := store.WithFaults(s, func(op string, _ int) store.Fault {
		if op == "InTx" {
			return store.Fault{After: ErrFault}
		}
		return store.Fault{}
	})
	err := failing.InTx(t.Context(), func(tx *store.Tx) error { return tx.InsertRun(newRun(1), store.Detail{}) })
	if !errors.Is(err, ErrFault) {
		t.Errorf("InTx: %v, want the fault", err)
	}
	get(t, s, id(1))
}

func faultInTx(t *testing.T, s *store.Store) {
	for _, fault := range []store.Fault{{Before: ErrFault}, {After: ErrFault}} {
		failing := store.WithFaults(s, func(op string, _ int) store.Fault {
			if op == "Tx.Timeline" {
				return fault
			}
			return store.Fault{}
		})
		err := failing.InTx(t.Context(), func(tx *store.Tx) error {
			if err := tx.InsertRun(newRun(1), store.Detail{}); err != nil {
				return err
			}
			return tx.Timeline(id(1), tallyman.TimelineEntry{At: epoch, Kind: "x"})
		})
		if !errors.Is(err, ErrFault) {
			t.Errorf("InTx: %v, want the fault", err)
		}
		_, err = s.Run(t.Context(), id(1))
		wantCode(t, err, tallyman.NotFound)
	}
}

// failEveryCall shows the loop that users of the store are tested with: a
// caller who repeats what may not have happened ends at the same state
// whichever call fails, before or after it took effect.
func failEveryCall(t *testing.T, s *store.Store) {
	submit := func(s *store.Store, n int) error {
		return s.InTx(t.Context(), func(tx *store.Tx) error {
			key := fmt.Sprint(n)
			if _, err := tx.Key("default/cli", key); tallyman.CodeOf(err) != tallyman.NotFound {
				return err // made before, or the read went wrong
			}
			if err := tx.InsertRun(newRun(n), store.Detail{}); err != nil {
				return err
			}
			return tx.PutKey(store.KeyRow{Scope: "default/cli", Key: key, RunID: id(n), At: epoch})
		})
	}
	n := 0
	for _, fault := range []store.Fault{{Before: ErrFault}, {After: ErrFault}} {
		for call := 1; ; call++ {
			n++
			failing, struck := FailNth(s, call, fault)
			err := submit(failing, n)
			if errors.Is(err, ErrFault) {
				err = submit(failing, n)
			}
			if err != nil {
				t.Fatalf("call %d with %+v: %v", call, fault, err)
			}
			if get(t, s, id(n)).ID != id(n) {
				t.Fatalf("run %d is not there", n)
			}
			if !struck() {
				break
			}
		}
	}
	if n < 8 {
		t.Errorf("only %d faults were tried", n)
	}
}
