//go:build faults

package crash_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/client"
	"github.com/tallyman-dev/tallyman/internal/journal"
)

// truth is what is true inside, once everything has ended.
type truth struct {
	runs     map[string]tallyman.Run
	attempts map[string][]tallyman.Attempt
	events   map[string][]seenEvent
	marks    map[string][]mark // by run
}

// settle waits until every run has ended and every follower is done, and
// reads what is true then.
func (w *world) settle(ctx context.Context) (truth, bool) {
	w.t.Helper()
	var runs []tallyman.Run
	ended := w.eventually("all runs have ended", 40*time.Second, func() bool {
		var err error
		if runs, err = w.list(ctx); err != nil {
			return false
		}
		for _, r := range runs {
			if !r.State.Terminal() {
				return false
			}
		}
		return true
	})
	if !ended {
		for _, r := range runs {
			if !r.State.Terminal() {
				w.wrong("run %s, job %s, is stuck: %s in attempt %d %+v", r.ID, r.Labels[jobLabel], r.State, r.Attempt, r.Waiting)
				w.tell(ctx, r.ID)
			}
		}
		return truth{}, false
	}
	is := truth{runs: map[string]tallyman.Run{}, attempts: map[string][]tallyman.Attempt{}, events: map[string][]seenEvent{}, marks: map[string][]mark{}}
	for _, r := range runs {
		var err error
		is.runs[r.ID] = r
		if is.attempts[r.ID], err = w.client.Attempts(ctx, r.ID); err != nil {
			w.wrong("attempts of %s: %v", r.ID, err)
		}
		is.events[r.ID] = w.events(ctx, r.ID)
	}
	marks, err := readLedger(w.path("ledger"))
	if err != nil {
		w.t.Error(err)
	}
	for _, m := range marks {
		is.marks[m.run] = append(is.marks[m.run], m)
	}
	return is, true
}

func (w *world) list(ctx context.Context) ([]tallyman.Run, error) {
	var all []tallyman.Run
	for cursor := ""; ; {
		items, next, err := w.client.Runs(ctx, tallyman.Filter{Limit: 7, After: cursor}) // several pages
		if err != nil {
			return nil, err
		}
		if all = append(all, items...); next == "" {
			return all, nil
		}
		cursor = next
	}
}

// events reads the events of a run as who comes later does.
func (w *world) events(ctx context.Context, id string) []seenEvent {
	var all []seenEvent
	err := w.client.Events(ctx, id, client.EventOptions{}, func(line []byte) error {
		e, err := splitEvent(line)
		if err != nil {
			return err
		}
		if err := follows(all, e.id); err != nil {
			w.wrong("run %s: %v", id, err)
		}
		all = append(all, e)
		return nil
	})
	if err != nil {
		w.wrong("events of %s: %v", id, err)
	}
	return all
}

// tell logs what the server knows about a run.
func (w *world) tell(ctx context.Context, id string) {
	if entries, err := w.client.Timeline(ctx, id); err == nil {
		for _, e := range entries {
			w.t.Logf("  %s attempt %d %s: %s", e.At.Format("05.000"), e.Attempt, e.Kind, e.Message)
		}
	}
}

// verify holds what is true inside against what was acknowledged outside.
func (w *world) verify(ctx context.Context, is truth) {
	w.t.Helper()
	w.mu.Lock()
	jobs := w.jobs
	w.mu.Unlock()
	for _, j := range jobs {
		for _, f := range j.faults {
			w.wrong("job %d: %s", j.n, f)
		}
		w.acknowledgedOnce(is, j)
		if run, ok := is.runs[j.run.ID]; ok {
			w.stopsCount(is, j, run)
			w.followedAll(is, j, run)
		}
	}
	for id, run := range is.runs {
		before := w.faults
		w.startedOnce(is, run)
		w.retriedForCause(is, run)
		w.truthful(is, run)
		w.transcript(is, run)
		if before == 0 && w.faults > 0 {
			w.t.Logf("run %s, job %s, ended %s %s: %s", id, run.Labels[jobLabel], run.State, run.Reason, run.Message)
			w.tell(ctx, id)
		}
	}
}

// acknowledgedOnce: an acknowledged submit is there, once. Without a key, a
// submit that got no answer may be there too, and never twice.
func (w *world) acknowledgedOnce(is truth, j *job) {
	byTry := map[string][]string{}
	for id, r := range is.runs {
		if r.Labels[jobLabel] == strconv.Itoa(j.n) {
			byTry[r.Labels["try"]] = append(byTry[r.Labels["try"]], id)
		}
	}
	for try, ids := range byTry {
		if len(ids) > 1 {
			w.wrong("job %d, try %q: %d runs: %v", j.n, try, len(ids), ids)
		}
	}
	run, ok := j.acked()
	if !ok {
		w.wrong("job %d was never acknowledged", j.n)
		return
	}
	if _, ok := is.runs[run.ID]; !ok {
		w.wrong("job %d: run %s was acknowledged and is not there", j.n, run.ID)
	}
	if ids := byTry[run.Labels["try"]]; len(ids) != 1 || ids[0] != run.ID {
		w.wrong("job %d: run %s was acknowledged, %v are there", j.n, run.ID, ids)
	}
}

// stopsCount: a run whose stop was acknowledged while it was open ends as
// stopped, unless its work had ended before.
func (w *world) stopsCount(is truth, j *job, run tallyman.Run) {
	if j.stopped == nil || j.stopped.State.Terminal() && j.stopped.Reason != tallyman.ReasonStopped {
		return
	}
	if run.StopRequestedAt == nil {
		w.wrong("job %d: run %s was stopped and does not know it", j.n, run.ID)
		return
	}
	if run.State == tallyman.Stopped {
		return
	}
	for _, e := range is.events[run.ID] {
		if strings.Contains(e.line, `"type":"result"`) && e.id.Attempt == run.Attempt && eventTime(e.line).Before(*run.StopRequestedAt) {
			return
		}
	}
	for _, m := range is.marks[run.ID] {
		if m.what == "end" && m.attempt == run.Attempt && m.at.Before(*run.StopRequestedAt) {
			return
		}
	}
	w.wrong("job %d: run %s was stopped at %s and ended %s %s", j.n, run.ID, run.StopRequestedAt, run.State, run.Reason)
}

func eventTime(line string) time.Time {
	text, _, _ := strings.Cut(strings.TrimPrefix(line, `{"time":"`), `"`)
	at, err := time.Parse(tallyman.EventTime, text)
	if err != nil {
		return time.Now() // no event was before that
	}
	return at
}

// followedAll: the follower was given every event that is there, and the same.
func (w *world) followedAll(is truth, j *job, run tallyman.Run) {
	if !j.whole {
		w.wrong("job %d: the follower of %s was not told that it has everything", j.n, run.ID)
	}
	if at := differ(j.seen, is.events[run.ID]); at != "" {
		w.wrong("job %d: run %s: what was followed and what is there differ: %s", j.n, run.ID, at)
	}
}

// differ says where two lists differ first, "" when they do not.
func differ[T comparable](a, b []T) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("place %d:\n%v\n%v", i+1, a[i], b[i])
		}
	}
	if len(a) == len(b) {
		return ""
	}
	rest := append(slices.Clone(a[min(len(a), len(b)):]), b[min(len(a), len(b)):]...)
	return fmt.Sprintf("%d and %d of them; the first that only one has:\n%v", len(a), len(b), rest[0])
}

// startedOnce: an attempt's work begins at most once, and never while other
// work of the run lives. Work that may have had effects is done again once,
// as the default policy has it, however little of it was reported.
func (w *world) startedOnce(is truth, run tallyman.Run) {
	begun := map[int]int{}
	for _, m := range is.marks[run.ID] {
		switch m.what {
		case "begin":
			if begun[m.attempt]++; begun[m.attempt] > 1 {
				w.wrong("run %s: attempt %d began %d times", run.ID, m.attempt, begun[m.attempt])
			}
		case "overlap":
			w.wrong("run %s: attempt %d began while another one was at work", run.ID, m.attempt)
		}
	}
	if len(begun) > 2 {
		w.wrong("run %s: its work began in %d attempts", run.ID, len(begun))
	}
}

// retriedForCause: every attempt has ended and is numbered in turn; all but
// the last ended since their runner was killed.
func (w *world) retriedForCause(is truth, run tallyman.Run) {
	attempts := is.attempts[run.ID]
	if len(attempts) != run.Attempt {
		w.wrong("run %s is in attempt %d, %d are there", run.ID, run.Attempt, len(attempts))
	}
	for i, a := range attempts {
		if a.Number != i+1 || a.EndedAt == nil {
			w.wrong("run %s: attempt %d at place %d, ended %v", run.ID, a.Number, i+1, a.EndedAt)
		}
		if i < len(attempts)-1 && a.Reason != tallyman.RunnerLost {
			w.wrong("run %s: attempt %d ended %s and was followed by another", run.ID, a.Number, a.Reason)
		}
		pid := lockedBy(w.path("data", "attempts", a.Ref().String(), "lock"))
		if a.Reason == tallyman.RunnerLost && !w.wasKilled(pid) {
			w.wrong("run %s: the runner of attempt %d, process %d, was not killed, and is lost: %s", run.ID, a.Number, pid, a.Message)
		}
	}
}

// truthful: the end of a run is what its work did.
func (w *world) truthful(is truth, run tallyman.Run) {
	finished := false
	for _, m := range is.marks[run.ID] {
		finished = finished || m.what == "end" && m.attempt == run.Attempt
	}
	code := 0
	for _, j := range w.jobs {
		if strconv.Itoa(j.n) == run.Labels[jobLabel] {
			code = j.code
		}
	}
	switch {
	case run.State == tallyman.Succeeded && run.Harness == "script":
		if run.Result != "done "+run.Labels[jobLabel] {
			w.wrong("run %s succeeded with the result %q", run.ID, run.Result)
		}
	case run.State == tallyman.Succeeded && (!finished || code != 0):
		w.wrong("run %s succeeded; its work finished: %v, and exits with %d", run.ID, finished, code)
	case run.State == tallyman.Failed && run.Reason == tallyman.AgentError && code != 0:
		if run.ExitCode == nil || *run.ExitCode != code || !finished {
			w.wrong("run %s failed with exit code %v; its work finished: %v, and exits with %d", run.ID, run.ExitCode, finished, code)
		}
	case run.State == tallyman.Failed && run.Reason != tallyman.RunnerLost:
		w.wrong("run %s failed: %s %s", run.ID, run.Reason, run.Message)
	case run.State == tallyman.Stopped && run.StopRequestedAt == nil:
		w.wrong("run %s is stopped, and nobody asked", run.ID)
	}
}

// transcript: each attempt's events are its journal's, up to its final
// cursor, and a success has a last word.
func (w *world) transcript(is truth, run tallyman.Run) {
	for _, a := range is.attempts[run.ID] {
		var read []string
		for _, e := range is.events[run.ID] {
			if e.id.Attempt == a.Number {
				read = append(read, e.line)
			}
		}
		if uint64(len(read)) != a.FinalCursor {
			w.wrong("run %s: attempt %d (%s) has %d events, its final cursor is %d", run.ID, a.Number, a.Reason, len(read), a.FinalCursor)
		}
		if a.Reason == tallyman.Completed && (len(read) == 0 || !strings.Contains(read[len(read)-1], `"type":"runner.ended"`)) {
			w.wrong("run %s: attempt %d is completed, its last event is not runner.ended", run.ID, a.Number)
		}
		if a.Journal == "" {
			continue // its runner never came to say hello
		}
		kept, err := w.journal(a)
		if err != nil {
			w.wrong("run %s: %v", run.ID, err)
		}
		if at := differ(kept, read); at != "" {
			w.wrong("run %s: attempt %d: journal and history differ: %s", run.ID, a.Number, at)
		}
	}
}

func (w *world) journal(a tallyman.Attempt) (lines []string, err error) {
	r, _, err := journal.Open(w.path("data", "attempts", a.Ref().String(), "journal"))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		_, rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
		lines = append(lines, string(rec))
	}
}

// nothingLeft: no slot is taken, and beside the server no process is left.
func (w *world) nothingLeft(ctx context.Context) {
	w.t.Helper()
	w.start("", "--max-running", "1")
	last := w.workerJob(1_000_000, "", 0, 1, 0, false)
	w.drive(ctx, last)
	if run, err := w.client.Run(ctx, last.run.ID); err != nil || run.State != tallyman.Succeeded || run.Attempt != 1 {
		w.wrong("with one slot a run ended %s %s %v", run.State, run.Message, err)
	}
	// A runner has to hear that its last words were taken.
	w.eventually("only the server is left", 5*time.Second, func() bool { return len(w.processes()) == 1 })
	w.kill(syscall.SIGTERM)
	for pid, args := range w.processes() {
		w.wrong("process %d is left: %s", pid, args)
	}
}
