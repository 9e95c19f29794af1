//go:build faults

package crash_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// jobLabel tells the runs of one job from all others.
const jobLabel = "job"

// job is one piece of work asked for from outside, and what was acknowledged.
type job struct {
	n    int
	req  tallyman.Request
	code int           // what the worker exits with
	at   time.Duration // when it is submitted
	stop time.Duration // after the acknowledgement; 0: never
	cut  time.Duration // when its follower loses the connection; 0: never

	mu      sync.Mutex
	tries   int           // submits that were sent
	run     tallyman.Run  // as acknowledged, ID "" before
	stopped *tallyman.Run // the answer to the stop
	seen    []seenEvent   // what its follower was given
	whole   bool          // the follower was told that nothing is missing
	faults  []string      // what must not have happened

}

type seenEvent struct {
	id   tallyman.EventID
	line string // without the id
}

// note remembers something that must not have happened.
func (j *job) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.faults = append(j.faults, fmt.Sprintf(format, args...))
}

// acked is the run that was acknowledged, if one was.
func (j *job) acked() (tallyman.Run, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.run, j.run.ID != ""
}

// workerJob is a job of the agent worker.
func (w *world) workerJob(n int, key string, over time.Duration, lines, code int, tail bool) *job {
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	command := []string{self, workerVerb, "-ledger", w.path("ledger"), "-lines", strconv.Itoa(lines), "-over", over.String(), "-code", strconv.Itoa(code)}
	if tail {
		command = append(command, "-tail")
	}
	return &job{n: n, code: code, req: tallyman.Request{
		Agent: "worker", Command: command, Key: key, Labels: map[string]string{jobLabel: strconv.Itoa(n)},
	}}
}

// playerJob is a job of the agent player, a script.
func (w *world) playerJob(n int, key string, pause time.Duration) *job {
	steps := fmt.Sprintf(`[{"say":"one"},{"think":{"text":"some words to think","over":"%s"}},{"tool":{"name":"look","output":"seen","duration":"%s"}},{"usage":{"input_tokens":%d}},{"result":"done %d"}]`,
		pause, pause, n+1, n)
	return &job{n: n, req: tallyman.Request{
		Agent: "player", Prompt: steps, Key: key, Labels: map[string]string{jobLabel: strconv.Itoa(n)},
	}}
}

// draw makes the jobs of a seed.
func (w *world) draw(r *rand.Rand, count int, within time.Duration) []*job {
	chance := func(percent int) bool { return r.IntN(100) < percent }
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	var all []*job
	for n := range count {
		key := ""
		if chance(50) {
			key = fmt.Sprintf("key-%d", n)
		}
		var j *job
		switch kind := r.IntN(100); {
		case kind < 45:
			j = w.workerJob(n, key, upTo(200*time.Millisecond), 1+r.IntN(40), 0, chance(20))
		case kind < 70:
			j = w.workerJob(n, key, time.Second+upTo(2*time.Second), 1+r.IntN(60), 0, chance(20))
		case kind < 80:
			j = w.workerJob(n, key, upTo(200*time.Millisecond), 3, 7, false)
		default:
			j = w.playerJob(n, key, upTo(time.Second))
		}
		j.at = upTo(within)
		if chance(20) {
			j.stop = 1 + upTo(1500*time.Millisecond)
		}
		if chance(30) {
			j.cut = 1 + upTo(time.Second)
		}
		all = append(all, j)
	}
	return all
}

// drive does to the server what a job needs, and returns when its follower
// has everything or ctx ends.
func (w *world) drive(ctx context.Context, j *job) {
	w.mu.Lock()
	w.jobs = append(w.jobs, j)
	w.mu.Unlock()
	if !sleep(ctx, j.at) {
		return
	}
	if !w.submit(ctx, j) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { w.follow(ctx, j) })
	if j.stop > 0 {
		both.Go(func() { w.stop(ctx, j) })
	}
	both.Wait()
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// submit submits until it is acknowledged. A submit without a key that got no
// answer may have made a run: the next one is another run, and says so.
func (w *world) submit(ctx context.Context, j *job) bool {
	for {
		req := j.req
		j.mu.Lock()
		j.tries++
		if req.Key == "" {
			req.Labels = map[string]string{jobLabel: req.Labels[jobLabel], "try": strconv.Itoa(j.tries)}
		}
		j.mu.Unlock()
		run, err := w.ask(ctx, req)
		if err == nil {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.run = run
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if tallyman.CodeOf(err) != tallyman.Unavailable {
			j.note("submit: %v", err)
			return false
		}
		if !sleep(ctx, 10*time.Millisecond) {
			return false
		}
	}
}

func (w *world) ask(ctx context.Context, req tallyman.Request) (tallyman.Run, error) {
	w.calls.RLock()
	defer w.calls.RUnlock()
	return w.client.Submit(ctx, req)
}

// again submits an acknowledged key once more.
func (w *world) again(ctx context.Context, j *job) {
	first, ok := j.acked()
	if !ok || j.req.Key == "" {
		return
	}
	run, err := w.ask(ctx, j.req)
	switch {
	case tallyman.CodeOf(err) == tallyman.Unavailable || ctx.Err() != nil:
	case err != nil:
		j.note("submit of the same key: %v", err)
	case run.ID != first.ID:
		j.note("key %s brought %s first and %s later", j.req.Key, first.ID, run.ID)
	}
	other := j.req
	other.Labels = map[string]string{jobLabel: "another"}
	if _, err = w.ask(ctx, other); err == nil || tallyman.CodeOf(err) != tallyman.Conflict && tallyman.CodeOf(err) != tallyman.Unavailable {
		j.note("another request with key %s: %v", j.req.Key, err)
	}
}

func (w *world) stop(ctx context.Context, j *job) {
	if !sleep(ctx, j.stop) {
		return
	}
	run, _ := j.acked()
	for {
		w.calls.RLock()
		answer, err := w.client.Stop(ctx, run.ID)
		w.calls.RUnlock()
		if err == nil {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.stopped = &answer
			return
		}
		if ctx.Err() != nil {
			return
		}
		if tallyman.CodeOf(err) != tallyman.Unavailable {
			j.note("stop: %v", err)
			return
		}
		if !sleep(ctx, 10*time.Millisecond) {
			return
		}
	}
}
