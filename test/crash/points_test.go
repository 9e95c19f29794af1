//go:build faults

package crash_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/fault"
)

// attemptsAfter says in how many attempts a run may have succeeded whose
// runner was killed at a point. Before its final event is on the disk a
// runner's death costs an attempt; afterwards it costs nothing.
var attemptsAfter = map[string][]int{
	fault.RunnerEnded:   {1, 2}, // the final event may be on the disk, or not
	fault.RunnerDrained: {1},
}

// TestEveryPoint kills at each named point once, in the first process that
// comes by, and then starts a server without faults.
func TestEveryPoint(t *testing.T) {
	for _, name := range fault.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			j := w.workerJob(1, "key", 300*time.Millisecond, 20, 0, true)
			if strings.HasPrefix(name, "service.end-") {
				j = w.workerJob(1, "key", 0, 50_000, 0, true) // its end is heard of before its last events
			}
			var driving sync.WaitGroup
			switch name {
			case fault.ExecutorDelivering:
				w.leave(ctx, j, &driving)
				w.start(name + ":1")
			default:
				w.start(name + ":1")
				driving.Go(func() { w.drive(ctx, j) })
			}
			if !w.eventually("a process is killed at the point", 20*time.Second, func() bool { return len(w.fired()[name]) > 0 }) {
				return
			}
			w.kill(syscall.SIGKILL)
			w.start("")
			w.again(ctx, j)
			if _, ok := w.settle(ctx); !ok {
				return
			}
			driving.Wait()
			is, _ := w.settle(ctx)
			w.verify(ctx, is)
			want := attemptsAfter[name]
			switch {
			case want != nil:
			case strings.HasPrefix(name, "runner."), name == fault.ExecutorDelivering:
				want = []int{2}
			default:
				want = []int{1} // a server's death is nothing to a run
			}
			if run := is.runs[j.run.ID]; run.State != tallyman.Succeeded || !slices.Contains(want, run.Attempt) {
				t.Errorf("the run ended %s %s (%s) in attempt %d, want one of %v", run.State, run.Reason, run.Message, run.Attempt, want)
			}
			w.kill(syscall.SIGKILL)
			w.nothingLeft(ctx)
		})
	}
}

// TestARunnerThatAlwaysDies has every runner killed at the same place. How
// often the work is tried depends on whether it may have begun, be that
// reported or not.
func TestARunnerThatAlwaysDies(t *testing.T) {
	for name, c := range map[string]struct{ attempts, begun int }{
		fault.RunnerJournalCreated: {4, 0},
		fault.RunnerWelcomed:       {4, 0},
		fault.RunnerAgentStarting:  {2, 0}, // nobody can know that nothing had begun
		fault.RunnerAgentForked:    {2, 2},
		fault.RunnerAgentRecorded:  {2, 2},
		fault.RunnerStreaming:      {2, 2},
		fault.RunnerEnding:         {2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			w.start(name + ":1")
			j := w.workerJob(1, "", 50*time.Millisecond, 3, 0, true)
			w.drive(ctx, j)
			is, ok := w.settle(ctx)
			if !ok {
				return
			}
			w.verify(ctx, is)
			begun := 0
			for _, m := range is.marks[j.run.ID] {
				if m.what == "begin" {
					begun++
				}
			}
			run := is.runs[j.run.ID]
			if run.State != tallyman.Failed || run.Reason != tallyman.RunnerLost || run.Attempt != c.attempts || begun > c.begun {
				t.Errorf("the run ended %s %s in attempt %d, its work began %d times; want %d and at most %d", run.State, run.Reason, run.Attempt, begun, c.attempts, c.begun)
			}
			w.kill(syscall.SIGKILL)
			w.nothingLeft(ctx)
		})
	}
}

// leave has a run whose runner is killed while no server is there to take
// what it has written.
func (w *world) leave(ctx context.Context, j *job, driving *sync.WaitGroup) {
	w.start("")
	driving.Go(func() { w.drive(ctx, j) })
	begun := func() int {
		j.mu.Lock()
		defer j.mu.Unlock()
		return len(j.seen)
	}
	w.eventually("events come", 10*time.Second, func() bool { return begun() > 5 })
	w.kill(syscall.SIGKILL)
	time.Sleep(100 * time.Millisecond) // it goes on writing
	w.killRunner(0)
}
