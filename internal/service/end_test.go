package service_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
)

// A stop counts from when it was acknowledged, whether or not the runner ever
// heard of it: what ended later ends as stopped.
func TestAStopIsHeldAgainstTheEndOfTheWork(t *testing.T) {
	h := newFaultHouse(t)
	before, after := -time.Hour, time.Hour // of the end, seen from the stop
	cases := map[string]struct {
		reason   tallyman.Reason // the runner's last word, "" when it said none
		end      time.Duration
		reported bool // by the runner; else it was found in its journal
		want     tallyman.Reason
	}{
		"it ended well before, and says so":       {tallyman.Completed, before, true, tallyman.Completed},
		"it ended well after, and says so":        {tallyman.Completed, after, true, tallyman.ReasonStopped},
		"it failed after, and says so":            {tallyman.AgentError, after, true, tallyman.ReasonStopped},
		"it hit a limit, and says so":             {tallyman.DeadlineExceeded, after, true, tallyman.DeadlineExceeded},
		"it ended well before, by its journal":    {tallyman.Completed, before, false, tallyman.Completed},
		"it ended well after, by its journal":     {tallyman.Completed, after, false, tallyman.ReasonStopped},
		"it hit a limit before, by its journal":   {tallyman.DeadlineExceeded, before, false, tallyman.DeadlineExceeded},
		"its runner was lost, nobody knows when":  {"", 0, false, tallyman.ReasonStopped},
		"it carried the stop out, and says so":    {tallyman.ReasonStopped, after, true, tallyman.ReasonStopped},
		"it carried the stop out, by its journal": {tallyman.ReasonStopped, after, false, tallyman.ReasonStopped},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h.t = t
			s := h.newScene()
			s.running()
			s.must(s.stop())
			out := tallyman.Outcome{Reason: c.reason, Started: true}
			e := tallyman.Settlement{Reason: c.reason, Outcome: out, FinalCursor: 9}
			switch at := time.Now().Add(c.end); {
			case c.reason == "":
				e.Reason = tallyman.RunnerLost
			case c.reported:
				s.must(s.report(tallyman.Fact{Cursor: 9, Kind: tallyman.FactFinal, At: at, Outcome: &out}))
			default:
				e.FinalAt = at
			}
			s.must(s.end(e))
			if run := s.now(); run.Reason != c.want || run.State != c.want.State() {
				t.Errorf("it ended %s %s, want %s", run.State, run.Reason, c.want)
			}
			s.hold()
			s.clear()
		})
	}
}

// An attempt that is only known to have started from what its runner left
// counts as started, in the retries after it too.
func TestAStartThatNobodyReportedCounts(t *testing.T) {
	h := newFaultHouse(t)
	s := h.newScene()
	s.greeted()
	at := time.Now().UTC().Truncate(time.Microsecond)
	lost := tallyman.Settlement{Reason: tallyman.RunnerLost, StartedAt: &at}
	s.must(s.end(lost))
	if run, a := s.now(), s.attempt(); run.State != tallyman.Queued || run.StartedAt == nil || !run.StartedAt.Equal(at) || a.StartedAt == nil || !a.StartedAt.Equal(at) {
		t.Errorf("after the first: %s, started %v and %v", run.State, run.StartedAt, a.StartedAt)
	}
	s.must(s.admit())
	_, err := s.service.End(s.ctx(), tallyman.AttemptRef{RunID: s.run.ID, Number: 2}, lost)
	s.must(err)
	if run := s.now(); run.State != tallyman.Failed || run.Reason != tallyman.RunnerLost {
		t.Errorf("after the second: %s %s, want that it is not tried a third time", run.State, run.Reason)
	}
	s.hold()
}

func TestTheLastEvidenceIsKept(t *testing.T) {
	h := newHall(t)
	r := h.start(h.submit(command()).ID)
	first := &tallyman.Evidence{Pod: "p", Node: "n"}
	if _, err := h.End(t.Context(), r.ref, tallyman.Settlement{Reason: tallyman.Completed, Evidence: first}); err != nil {
		t.Fatal(err)
	}
	last := &tallyman.Evidence{Pod: "p", Node: "n", Containers: []tallyman.ContainerState{
		{Name: "db", Kind: tallyman.SidecarContainer, State: "terminated", Reason: "OOMKilled", Output: "its last words"},
		{Name: "agent", Kind: tallyman.AgentContainer, State: "terminated", Reason: "OOMKilled"},
	}}
	for _, e := range []*tallyman.Evidence{last, {}, nil} {
		if err := h.Gone(t.Context(), r.ref, false, e); err != nil {
			t.Fatal(err)
		}
		a, err := h.store.Attempt(t.Context(), r.ref)
		if diff := cmp.Diff(last, a.Evidence); err != nil || diff != "" {
			t.Errorf("after %+v: %v\n%s", e, err, diff)
		}
	}
	timeline, err := h.store.Timeline(t.Context(), r.ref.RunID)
	if err != nil {
		t.Fatal(err)
	}
	var notices []string
	for _, e := range timeline {
		if e.Kind == "notice" {
			notices = append(notices, e.Message)
		}
	}
	if diff := cmp.Diff([]string{"sidecar db was killed for memory"}, notices); diff != "" {
		t.Errorf("the notices:\n%s", diff)
	}
}

// A verdict may be made a moment before control hears the final event: how it
// ended is what that says, its result among it.
func TestAFinalEventThatWasHeardMeanwhile(t *testing.T) {
	h := newHall(t)
	r := h.start(h.submit(command()).ID)
	r.began()
	r.tell(tallyman.Fact{Cursor: 7, Kind: tallyman.FactFinal, Outcome: &tallyman.Outcome{Reason: tallyman.Completed, Result: "its result", OutputTail: "last", Started: true}})
	run, err := h.End(t.Context(), r.ref, tallyman.Settlement{Reason: tallyman.Completed, Outcome: tallyman.Outcome{Reason: tallyman.Completed, ExitCode: ptr(0)}})
	if err != nil || run.Result != "its result" {
		t.Errorf("the result is %q: %v", run.Result, err)
	}
	a, err := h.store.Attempt(t.Context(), r.ref)
	if err != nil || a.OutputTail != "last" || a.FinalCursor != 7 {
		t.Errorf("the attempt is %+v: %v", a, err)
	}
}
