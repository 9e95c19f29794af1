package tallyman_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
)

var (
	t0 = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	t1 = t0.Add(time.Minute)
)

// run is a run in a state, in its second attempt where it has one.
func run(s tallyman.State) tallyman.Run {
	r := tallyman.Run{ID: "01J", Name: "demo-1", State: s, Attempt: 2, Version: 7}
	switch s {
	case tallyman.Succeeded:
		r.Reason, r.EndedAt = tallyman.Completed, &t0
	case tallyman.Failed:
		r.Reason, r.EndedAt = tallyman.AgentError, &t0
	case tallyman.Stopped:
		r.Reason, r.EndedAt, r.StopRequestedAt = tallyman.ReasonStopped, &t0, &t0
	case tallyman.Running:
		r.StartedAt = &t0
	}
	return r
}

// TestEveryStateAndTrigger names what becomes of every state under every
// trigger that is about its own attempt. "same" is no change, "refused" is a
// Conflict.
func TestEveryStateAndTrigger(t *testing.T) {
	const same, refused = "same", "refused"
	want := map[tallyman.TriggerKind]map[tallyman.State]string{
		tallyman.TriggerAdmitted: {
			tallyman.Queued: "starting", tallyman.Starting: refused, tallyman.Running: refused, tallyman.Suspended: refused,
			tallyman.Succeeded: refused, tallyman.Failed: refused, tallyman.Stopped: refused,
		},
		tallyman.TriggerAgentStarted: {
			tallyman.Queued: same, tallyman.Starting: "running", tallyman.Running: same, tallyman.Suspended: same,
			tallyman.Succeeded: same, tallyman.Failed: same, tallyman.Stopped: same,
		},
		tallyman.TriggerEnded: {
			tallyman.Queued: same, tallyman.Starting: "failed", tallyman.Running: "failed", tallyman.Suspended: same,
			tallyman.Succeeded: same, tallyman.Failed: same, tallyman.Stopped: same,
		},
		tallyman.TriggerStopRequested: {
			tallyman.Queued: "stopped", tallyman.Starting: "starting", tallyman.Running: "running", tallyman.Suspended: "suspended",
			tallyman.Succeeded: same, tallyman.Failed: same, tallyman.Stopped: same,
		},
		tallyman.TriggerWaiting: {
			tallyman.Queued: "queued", tallyman.Starting: "starting", tallyman.Running: same, tallyman.Suspended: same,
			tallyman.Succeeded: same, tallyman.Failed: same, tallyman.Stopped: same,
		},
	}
	for _, kind := range tallyman.TriggerKinds {
		for _, state := range tallyman.States {
			t.Run(fmt.Sprintf("%s when %s", kind, state), func(t *testing.T) {
				was := run(state)
				reason := tallyman.AgentError
				if kind == tallyman.TriggerStopRequested {
					reason = tallyman.ReasonStopped
				}
				is, err := was.Apply(tallyman.Trigger{Kind: kind, At: t1, Attempt: 2, Reason: reason, Waiting: &tallyman.Waiting{Reason: tallyman.GlobalCap}})
				switch expect := want[kind][state]; expect {
				case refused:
					if tallyman.CodeOf(err) != tallyman.Conflict || !cmp.Equal(is, was) {
						t.Errorf("got %v, %v; want a Conflict and no change", is.State, err)
					}
				case same:
					if err != nil || !cmp.Equal(is, was) {
						t.Errorf("got a change or %v: %s", err, cmp.Diff(was, is))
					}
				default:
					if err != nil || string(is.State) != expect || is.Version != was.Version+1 {
						t.Errorf("got %s, version %d, %v; want %s", is.State, is.Version, err, expect)
					}
				}
			})
		}
	}
	if _, err := run(tallyman.Queued).Apply(tallyman.Trigger{Kind: "other"}); tallyman.CodeOf(err) != tallyman.Internal {
		t.Errorf("an unknown trigger: got %v", err)
	}
}

func TestObservationsAboutAnotherAttemptChangeNothing(t *testing.T) {
	for _, kind := range []tallyman.TriggerKind{tallyman.TriggerAgentStarted, tallyman.TriggerEnded, tallyman.TriggerWaiting} {
		for _, attempt := range []int{0, 1, 3} {
			for _, state := range tallyman.States {
				was := run(state)
				is, err := was.Apply(tallyman.Trigger{Kind: kind, At: t1, Attempt: attempt, Reason: tallyman.Completed})
				if err != nil || !cmp.Equal(is, was) {
					t.Errorf("%s of attempt %d when %s: %v %s", kind, attempt, state, err, cmp.Diff(was, is))
				}
			}
		}
	}
}

func TestTheEndOfAnAttempt(t *testing.T) {
	again := t1.Add(time.Minute)
	code := 3
	stopAsked := run(tallyman.Running)
	stopAsked.StopRequestedAt, stopAsked.StopReason = &t0, tallyman.ReasonStopped
	cases := map[string]struct {
		was   tallyman.Run
		t     tallyman.Trigger
		state tallyman.State
		check func(tallyman.Run) bool
	}{
		"a completed one succeeds and brings the result": {
			run(tallyman.Running), tallyman.Trigger{Reason: tallyman.Completed, Outcome: tallyman.Outcome{Result: "42"}},
			tallyman.Succeeded, func(r tallyman.Run) bool { return r.Result == "42" && r.EndedAt.Equal(t1) },
		},
		"a failed one with more to come is queued again": {
			run(tallyman.Running), tallyman.Trigger{Reason: tallyman.RunnerLost, RetryAt: &again},
			tallyman.Queued, func(r tallyman.Run) bool {
				return r.NotBefore.Equal(again) && r.EndedAt == nil && r.Reason == "" && r.Attempt == 2
			},
		},
		"no retry once a stop was asked": {
			stopAsked, tallyman.Trigger{Reason: tallyman.RunnerLost, RetryAt: &again},
			tallyman.Failed, func(r tallyman.Run) bool { return r.NotBefore == nil },
		},
		"a reason that does not exist is a failure": {
			run(tallyman.Running), tallyman.Trigger{Reason: "Fine"}, tallyman.Failed, nil,
		},
		"no reason at all is a failure": {run(tallyman.Running), tallyman.Trigger{}, tallyman.Failed, nil},
		"the exit code is kept": {
			run(tallyman.Running), tallyman.Trigger{Reason: tallyman.AgentError, Outcome: tallyman.Outcome{ExitCode: &code, OOMKills: 2}},
			tallyman.Failed, func(r tallyman.Run) bool { return *r.ExitCode == 3 && r.OOMKills == 2 },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.t.Kind, c.t.At, c.t.Attempt = tallyman.TriggerEnded, t1, 2
			is, err := c.was.Apply(c.t)
			if err != nil || is.State != c.state || c.check != nil && !c.check(is) {
				t.Errorf("got %+v, %v", is, err)
			}
		})
	}
}

func TestEveryReasonHasOneStateAndUnknownIsNeverSuccess(t *testing.T) {
	for _, r := range tallyman.Reasons() {
		want := tallyman.Failed
		switch r.Class() {
		case tallyman.ClassOK:
			want = tallyman.Succeeded
		case tallyman.ClassUser:
			want = tallyman.Stopped
		}
		if got := r.State(); got != want {
			t.Errorf("%s: %s, want %s", r, got, want)
		}
	}
	if got := tallyman.Reason("").State(); got != tallyman.Failed {
		t.Errorf("no reason: %s", got)
	}
}

// How an attempt ended is told of the run until its next one is on its way.
func TestTheNextAttemptHasNoExitCodeYet(t *testing.T) {
	run := tallyman.Run{State: tallyman.Queued, Attempt: 1, ExitCode: new(3), NotBefore: new(time.Now()), Version: 4}
	got, err := run.Apply(tallyman.Trigger{Kind: tallyman.TriggerAdmitted, At: time.Now(), Attempt: 1})
	if err != nil || got.State != tallyman.Starting || got.Attempt != 2 || got.ExitCode != nil || got.NotBefore != nil || got.Version != 5 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// What an attempt waited for is told until it is at work, or over.
func TestAWaitOfAnAttemptEndsWithIt(t *testing.T) {
	waits := run(tallyman.Starting)
	waits.Waiting = &tallyman.Waiting{Reason: tallyman.PodPending, Detail: "no node"}
	for _, trigger := range []tallyman.Trigger{
		{Kind: tallyman.TriggerAgentStarted, At: t1, Attempt: 2},
		{Kind: tallyman.TriggerEnded, At: t1, Attempt: 2, Reason: tallyman.Unschedulable},
		{Kind: tallyman.TriggerEnded, At: t1, Attempt: 2, Reason: tallyman.RunnerLost, RetryAt: &t1},
		{Kind: tallyman.TriggerWaiting, At: t1, Attempt: 2},
	} {
		if got, err := waits.Apply(trigger); err != nil || got.Waiting != nil {
			t.Errorf("after %s it waits for %+v, %v", trigger.Kind, got.Waiting, err)
		}
	}
}
