//go:build faults

package crash_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/journal"
)

// TestEveryCheckCanFail holds the checks against worlds in which one thing is
// not as it should be.
func TestEveryCheckCanFail(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*world, *truth, *tallyman.Run)
		says  string // "": nothing is wrong
	}{
		"all is well": {func(*world, *truth, *tallyman.Run) {}, ""},
		"an acknowledged run is lost": {func(_ *world, is *truth, _ *tallyman.Run) {
			clear(is.runs)
		}, "is not there"},
		"a key has brought two runs": {func(_ *world, is *truth, r *tallyman.Run) {
			other := *r
			other.ID = "OTHER"
			is.runs["OTHER"], is.attempts["OTHER"] = other, is.attempts[r.ID]
		}, "2 runs"},
		"a run was never acknowledged": {func(w *world, _ *truth, _ *tallyman.Run) {
			w.jobs[0].run = tallyman.Run{}
		}, "never acknowledged"},
		"an attempt began twice": {func(_ *world, is *truth, r *tallyman.Run) {
			is.marks[r.ID] = append(is.marks[r.ID], mark{what: "begin", run: r.ID, attempt: 1})
		}, "began 2 times"},
		"two were at work at once": {func(_ *world, is *truth, r *tallyman.Run) {
			is.marks[r.ID] = append(is.marks[r.ID], mark{what: "overlap", run: r.ID, attempt: 1})
		}, "while another one was at work"},
		"its work did not finish": {func(_ *world, is *truth, r *tallyman.Run) {
			is.marks[r.ID] = is.marks[r.ID][:1]
		}, "its work finished: false"},
		"its work failed": {func(w *world, _ *truth, _ *tallyman.Run) {
			w.jobs[0].code = 7
		}, "exits with 7"},
		"an attempt is open": {func(_ *world, is *truth, r *tallyman.Run) {
			is.attempts[r.ID][0].EndedAt = nil
		}, "ended <nil>"},
		"an attempt is missing": {func(_ *world, _ *truth, r *tallyman.Run) {
			r.Attempt = 2
		}, "1 are there"},
		"another attempt follows a success": {func(_ *world, is *truth, r *tallyman.Run) {
			second := is.attempts[r.ID][0]
			second.Number, second.Journal, second.FinalCursor, second.Reason = 2, "", 0, tallyman.RunnerLost
			is.attempts[r.ID] = append(is.attempts[r.ID], second)
			r.Attempt = 2
		}, "was followed by another"},
		"a runner is lost that nobody killed": {func(_ *world, is *truth, r *tallyman.Run) {
			is.attempts[r.ID][0].Reason = tallyman.RunnerLost
		}, "was not killed"},
		"it failed for no reason": {func(_ *world, _ *truth, r *tallyman.Run) {
			r.State, r.Reason = tallyman.Failed, tallyman.BackendError
		}, "failed: BackendError"},
		"it is stopped and nobody asked": {func(_ *world, _ *truth, r *tallyman.Run) {
			r.State = tallyman.Stopped
		}, "nobody asked"},
		"a stop was acknowledged and forgotten": {func(w *world, _ *truth, _ *tallyman.Run) {
			w.jobs[0].stopped = &tallyman.Run{State: tallyman.Running}
		}, "does not know it"},
		"a stop was acknowledged before the end": {func(w *world, _ *truth, r *tallyman.Run) {
			early := began.Add(-time.Hour)
			r.StopRequestedAt, w.jobs[0].stopped = &early, &tallyman.Run{State: tallyman.Running}
		}, "was stopped at"},
		"the last event is missing": {func(w *world, is *truth, r *tallyman.Run) {
			is.events[r.ID] = is.events[r.ID][:2]
			w.jobs[0].seen = is.events[r.ID]
		}, "has 2 events, its final cursor is 3"},
		"an event has other bytes than in the journal": {func(w *world, is *truth, r *tallyman.Run) {
			is.events[r.ID][1].line = `{}`
			w.jobs[0].seen = is.events[r.ID]
		}, "journal and history differ"},
		"the follower missed an event": {func(w *world, _ *truth, _ *tallyman.Run) {
			w.jobs[0].seen = w.jobs[0].seen[:2]
		}, "what was followed and what is there differ"},
		"the follower was never told the end": {func(w *world, _ *truth, _ *tallyman.Run) {
			w.jobs[0].whole = false
		}, "not told that it has everything"},
		"the follower saw a fault": {func(w *world, _ *truth, _ *tallyman.Run) {
			w.jobs[0].note("event 1.3 came after 1.1")
		}, "event 1.3 came after 1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			is, run := w.wellWorld(t)
			var said []string
			w.wrong = func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
			c.spoil(w, &is, &run)
			if _, ok := is.runs[run.ID]; ok {
				is.runs[run.ID] = run
			}
			w.verify(t.Context(), is)
			fits := func(s string) bool { return strings.Contains(s, c.says) }
			if c.says == "" && len(said) > 0 || c.says != "" && !slices.ContainsFunc(said, fits) {
				t.Errorf("the checks said %q", said)
			}
		})
	}
}

func TestEventsThatFollowNothingAreSeen(t *testing.T) {
	at := func(attempt int, cursor uint64) seenEvent {
		return seenEvent{id: tallyman.EventID{Attempt: attempt, Cursor: cursor}}
	}
	for _, c := range []struct {
		before []seenEvent
		next   seenEvent
		ok     bool
	}{
		{nil, at(1, 1), true},
		{nil, at(1, 2), false},
		{[]seenEvent{at(1, 1)}, at(1, 2), true},
		{[]seenEvent{at(1, 1)}, at(1, 1), false},
		{[]seenEvent{at(1, 1)}, at(1, 3), false},
		{[]seenEvent{at(1, 5)}, at(3, 1), true},
		{[]seenEvent{at(2, 1)}, at(1, 1), false},
	} {
		if err := follows(c.before, c.next.id); (err == nil) != c.ok {
			t.Errorf("%v after %v: %v", c.next, c.before, err)
		}
	}
}

var began = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// wellWorld is a world with one run, about which everything is right.
func (w *world) wellWorld(t *testing.T) (truth, tallyman.Run) {
	t.Helper()
	ended := began.Add(time.Second)
	run := tallyman.Run{
		ID: "01JZ0000000000000000000001", Harness: "exec", Attempt: 1, Labels: map[string]string{jobLabel: "1"},
		State: tallyman.Succeeded, Reason: tallyman.Completed, EndedAt: &ended,
	}
	a := tallyman.Attempt{RunID: run.ID, Number: 1, Journal: "J", Reason: tallyman.Completed, EndedAt: &ended, FinalCursor: 3}
	dir := w.path("data", "attempts", a.Ref().String())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Create(dir+"/journal", journal.Header{Journal: "J", Run: run.ID, Attempt: 1}, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var events []seenEvent
	for i, kind := range []tallyman.EventType{tallyman.EventAgentStarted, tallyman.EventText, tallyman.EventRunnerEnded} {
		e := tallyman.Event{Time: began, Type: kind}
		line := e.AppendJSON(nil)
		if _, err := j.Append(line); err != nil {
			t.Fatal(err)
		}
		events = append(events, seenEvent{id: tallyman.EventID{Attempt: 1, Cursor: uint64(i + 1)}, line: string(line)})
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	w.jobs = []*job{{n: 1, req: tallyman.Request{Key: "key"}, run: run, seen: slices.Clone(events), whole: true}}
	return truth{
		runs:     map[string]tallyman.Run{run.ID: run},
		attempts: map[string][]tallyman.Attempt{run.ID: {a}},
		events:   map[string][]seenEvent{run.ID: events},
		marks: map[string][]mark{run.ID: {
			{what: "begin", run: run.ID, attempt: 1, at: began}, {what: "end", run: run.ID, attempt: 1, at: ended},
		}},
	}, run
}
