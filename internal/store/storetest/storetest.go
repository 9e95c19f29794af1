// Package storetest holds what every engine of the store must do, and faults
// for the tests of those who use it.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/store"
)

// Run runs the suite. open returns an empty store, closed with the test.
func Run(t *testing.T, open func(testing.TB) *store.Store) {
	for name, test := range map[string]func(*testing.T, *store.Store){
		"a run comes back as it was inserted":                        runRoundTrip,
		"an empty run comes back empty":                              emptyRun,
		"details come back byte for byte":                            detailRoundTrip,
		"a write changes what may change":                            putRun,
		"a write on an old version is refused":                       putRunConflict,
		"an id is taken once":                                        insertTwice,
		"deleting takes everything but the key":                      deleteRun,
		"ended runs are found for pruning":                           endedBefore,
		"a run is found by id, name and part of its id":              findRun,
		"text that SQL cannot hold is replaced":                      badText,
		"pages list every run once, newest first":                    pages,
		"pages stay right while runs come":                           pagesWhileInserting,
		"filters narrow":                                             filters,
		"a search takes its words literally":                         searchEscapes,
		"bad limits and cursors are refused":                         badPages,
		"counts follow every change":                                 counts,
		"agents are counted by state":                                agentCounts,
		"the queue is the first of each group":                       queue,
		"waiting runs know their position":                           positions,
		"an attempt comes back as it was written":                    attemptRoundTrip,
		"attempts that are not gone take slots":                      activeAttempts,
		"attempts are owed what History lacks":                       owedAttempts,
		"the timeline keeps its order":                               timeline,
		"artifacts are replaced by name":                             artifacts,
		"blobs in use are known":                                     blobInUse,
		"a key belongs to one run":                                   keys,
		"settings are kept":                                          settings,
		"an error undoes its transaction and no other's":             rollback,
		"a panic undoes its transaction and frees the store":         panics,
		"of many who claim one run one wins":                         claims,
		"transactions at the same time are all kept":                 manyWriters,
		"a caller who has gone does not take others along":           cancelled,
		"a snapshot lists a run once while it changes state":         listWhileChanging,
		"faults strike the call they are meant for":                  faultsStrike,
		"a fault after the commit leaves the work done":              faultAfterCommit,
		"a fault in a transaction undoes it":                         faultInTx,
		"every method is safe to fail at any call":                   failEveryCall,
		"what is not there is NotFound":                              notFound,
		"a run's children need their run":                            orphans,
		"one transaction sees its own writes, others only committed": isolation,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// FailNth returns the store with one fault, at the n-th call, and tells by
// struck whether there were that many.
func FailNth(s *store.Store, n int, fault store.Fault) (failing *store.Store, struck func() bool) {
	hit := make(chan struct{}, 1)
	failing = store.WithFaults(s, func(_ string, call int) store.Fault {
		if call != n {
			return store.Fault{}
		}
		hit <- struct{}{}
		return fault
	})
	return failing, func() bool { return len(hit) == 1 }
}

// ErrFault is the error that the suite's faults return.
var ErrFault = errors.New("fault for the test")

var epoch = time.Date(2026, 3, 4, 5, 6, 7, 123456000, time.UTC)

// id returns the n-th id; a higher n is newer.
func id(n int) string { return fmt.Sprintf("01HZX%021d", n) }

// newRun returns the n-th run, queued, after changing it.
func newRun(n int, change ...func(*tallyman.Run)) tallyman.Run {
	r := tallyman.Run{
		ID: id(n), Namespace: tallyman.DefaultNamespace, Agent: "demo", Harness: "script",
		State: tallyman.Queued, Source: tallyman.SourceCLI, Labels: map[string]string{},
		CreatedAt: epoch.Add(time.Duration(n) * time.Second),
	}
	r.Name = tallyman.RunName(r.Agent, r.ID)
	for _, c := range change {
		c(&r)
	}
	return r
}

func newAttempt(runID string, number int, change ...func(*tallyman.Attempt)) tallyman.Attempt {
	a := tallyman.Attempt{RunID: runID, Number: number, Backend: "sim", QueuedAt: epoch, AdmittedAt: epoch}
	for _, c := range change {
		c(&a)
	}
	return a
}

func ptr[T any](v T) *T { return &v }

func mustTx(t *testing.T, s *store.Store, fn func(*store.Tx) error) {
	t.Helper()
	if err := s.InTx(t.Context(), fn); err != nil {
		t.Fatalf("transaction: %v", err)
	}
}

func insert(t *testing.T, s *store.Store, runs ...tallyman.Run) {
	t.Helper()
	mustTx(t, s, func(tx *store.Tx) error {
		for _, r := range runs {
			if err := tx.InsertRun(r, store.Detail{}); err != nil {
				return err
			}
		}
		return nil
	})
}

func get(t *testing.T, s *store.Store, id string) tallyman.Run {
	t.Helper()
	r, err := s.Run(t.Context(), id)
	if err != nil {
		t.Fatalf("Run(%s): %v", id, err)
	}
	return r
}

func wantCode(t *testing.T, err error, want tallyman.Code) {
	t.Helper()
	if tallyman.CodeOf(err) != want {
		t.Errorf("error %v has code %q, want %q", err, tallyman.CodeOf(err), want)
	}
}

func same(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("differs (-want +got):\n%s", diff)
	}
}

func ids(runs []tallyman.Run) []string {
	var out []string
	for _, r := range runs {
		out = append(out, r.ID)
	}
	return out
}

func listIDs(t *testing.T, s *store.Store, f store.Filter) []string {
	t.Helper()
	runs, _, err := s.Runs(t.Context(), f)
	if err != nil {
		t.Fatalf("Runs(%+v): %v", f, err)
	}
	return ids(runs)
}

// put applies change to the run and writes it as the next version.
func put(ctx context.Context, s *store.Store, id string, change func(*tallyman.Run)) error {
	return s.InTx(ctx, func(tx *store.Tx) error {
		r, err := tx.Run(id)
		if err != nil {
			return err
		}
		was := r.Version
		change(&r)
		r.Version = was + 1
		return tx.PutRun(r, was)
	})
}
