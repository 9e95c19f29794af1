package store_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/store"
)

// benchRun is the n-th of many runs, few of them active.
func benchRun(n int) tallyman.Run {
	r := tallyman.Run{
		ID: fmt.Sprintf("01HZX%021d", n), Namespace: "default", Agent: fmt.Sprintf("agent-%d", n%20), Harness: "claude",
		Model: "large", State: tallyman.Succeeded, Reason: tallyman.Completed, Attempt: 1, Source: tallyman.SourceAPI,
		Labels:  map[string]string{"team": fmt.Sprintf("t%d", n%7), "issue": fmt.Sprint(n)},
		Message: "The agent finished.", Result: "Done: the flaky test waits for the clock now, and a pull request is open.",
		CreatedAt: time.UnixMicro(1_700_000_000_000_000 + int64(n)*1000),
	}
	r.Name = tallyman.RunName(r.Agent, r.ID)
	switch {
	case n%10 == 0:
		r.State, r.Reason = tallyman.Failed, tallyman.AgentError
	case n%1000 == 1:
		r.State, r.Reason = tallyman.Queued, ""
		r.Waiting = &tallyman.Waiting{Reason: tallyman.AgentCap}
	case n%2000 == 3:
		r.State, r.Reason = tallyman.Running, ""
	}
	if r.State.Terminal() {
		end := r.CreatedAt.Add(time.Minute)
		r.StartedAt, r.EndedAt = &r.CreatedAt, &end
	}
	return r
}

func fill(b *testing.B, s *store.Store, runs int, make func(int) tallyman.Run) {
	b.Helper()
	const batch = 1000
	for from := 0; from < runs; from += batch {
		err := s.InTx(context.Background(), func(tx *store.Tx) error {
			for n := from; n < from+batch; n++ {
				r := make(n)
				prompt := fmt.Sprintf("Fix the flaky test %d in module scheduler, open a pull request with a summary and ask for a review", n)
				if err := tx.InsertRun(r, store.Detail{Prompt: prompt}); err != nil {
					return err
				}
				a := tallyman.Attempt{RunID: r.ID, Number: 1, Gone: r.State != tallyman.Running, Journal: r.ID}
				if err := tx.InsertAttempt(a); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkList100k reads a store of 100,000 runs and reports p50 and p99.
func BenchmarkList100k(b *testing.B) {
	s, _ := open(b, filepath.Join(b.TempDir(), "control.db"))
	fill(b, s, 100_000, benchRun)
	ctx := context.Background()
	page := func(f store.Filter) func() error {
		return func() error { _, _, err := s.Runs(ctx, f); return err }
	}
	_, middle, err := s.Runs(ctx, store.Filter{Limit: 1000})
	if err != nil {
		b.Fatal(err)
	}
	measure(b, []measured{
		{"newest", page(store.Filter{})},
		{"second-page", page(store.Filter{After: middle})},
		{"state-failed", page(store.Filter{States: []tallyman.State{tallyman.Failed}})},
		{"state-active", page(store.Filter{States: []tallyman.State{tallyman.Queued, tallyman.Starting, tallyman.Running}})},
		{"agent", page(store.Filter{Agent: "agent-3"})},
		{"label-frequent", page(store.Filter{Labels: map[string]string{"team": "t3"}})},
		{"label-unique", page(store.Filter{Labels: map[string]string{"issue": "777"}})},
		{"since", page(store.Filter{Since: time.UnixMicro(1_700_000_099_000_000)})},
		{"text-frequent", page(store.Filter{Text: "flaky"})},
		{"text-once-in-1000", page(store.Filter{Text: "test 777"})},
		{"text-nowhere", page(store.Filter{Text: "zebra"})},
		{"counts", func() error { _, err := s.Counts(ctx); return err }},
		{"by-id", func() error { _, err := s.Run(ctx, benchRun(4711).ID); return err }},
		{"by-suffix", func() error { _, err := s.Run(ctx, benchRun(4711).ID[16:]); return err }},
		{"queue", func() error { _, err := s.Queue(ctx, 10); return err }},
		{"active", func() error { _, err := s.ActiveAttempts(ctx); return err }},
		{"load", func() error { _, err := s.Load(ctx); return err }},
	})
}

// BenchmarkQueued100k reads a store in which 100,000 runs of 20 agents wait.
func BenchmarkQueued100k(b *testing.B) {
	s, _ := open(b, filepath.Join(b.TempDir(), "control.db"))
	fill(b, s, 100_000, func(n int) tallyman.Run {
		r := benchRun(n)
		r.State, r.Reason, r.Waiting = tallyman.Queued, "", &tallyman.Waiting{Reason: tallyman.AgentCap}
		return r
	})
	ctx := context.Background()
	measure(b, []measured{
		{"newest", func() error { _, _, err := s.Runs(ctx, store.Filter{}); return err }},
		{"by-id", func() error { _, err := s.Run(ctx, benchRun(99_999).ID); return err }},
		{"queue", func() error { _, err := s.Queue(ctx, 10); return err }},
		{"load", func() error { _, err := s.Load(ctx); return err }},
	})
}

type measured struct {
	name string
	call func() error
}

// measure reports p50 and p99 of each call.
func measure(b *testing.B, benches []measured) {
	for _, bench := range benches {
		b.Run(bench.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				if err := bench.call(); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// BenchmarkSubmit inserts runs one by one from several callers, each durable
// when it returns.
func BenchmarkSubmit(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers-%d", callers), func(b *testing.B) {
			s, _ := open(b, filepath.Join(b.TempDir(), "control.db"))
			var next atomic.Int64
			start := time.Now()
			for b.Loop() {
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						for range 20 {
							r := benchRun(int(next.Add(1)))
							err := s.InTx(context.Background(), func(tx *store.Tx) error {
								return tx.InsertRun(r, store.Detail{Prompt: "Fix the flaky test"})
							})
							if err != nil {
								b.Error(err)
							}
						}
					})
				}
				wg.Wait()
			}
			b.ReportMetric(float64(next.Load())/time.Since(start).Seconds(), "runs/s")
		})
	}
}
