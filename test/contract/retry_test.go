//go:build linux

package contract_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

func TestRetriesWithBackoff(t *testing.T) {
	p := newPlace(t)
	p.agent("agent", `harness: exec
retry: {on: [AgentError], max: 2, backoff: 400ms}
outputs: [{path: made, required: false}]
command: [sh, -c, 'test -e made && echo not fresh; touch made; echo "$TALLYMAN_ATTEMPT_NO: $TALLYMAN_LAST_FAILURE"; exit $((6 + TALLYMAN_ATTEMPT_NO))']`)
	s := p.up()
	run, err := s.api.Submit(t.Context(), tallyman.Request{Agent: "agent"})
	if err != nil {
		t.Fatal(err)
	}
	waiting := s.until(run.ID, "it waits for its second attempt", func(r tallyman.Run) bool {
		return r.State == tallyman.Queued && r.Attempt == 1 && r.Waiting != nil
	})
	if waiting.Waiting.Reason != tallyman.Backoff || waiting.NotBefore == nil || waiting.Waiting.Position != 1 {
		t.Errorf("it waits as %+v until %v", waiting.Waiting, waiting.NotBefore)
	}
	run = s.ended(run.ID)
	p.holds(run, tallyman.AgentError)
	if run.Attempt != 3 || *run.ExitCode != 9 {
		t.Errorf("%d attempts, exit code %d", run.Attempt, *run.ExitCode)
	}
	if got := p.ok("logs", run.ID); got != "1: \n2: attempt 1 ended with AgentError: exit code 7\n3: attempt 2 ended with AgentError: exit code 8\n" {
		t.Errorf("the attempts say:\n%s", got)
	}
	attempts, err := s.api.Attempts(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []time.Duration{400 * time.Millisecond, 800 * time.Millisecond} {
		if wait := attempts[i+1].AdmittedAt.Sub(*attempts[i].EndedAt); wait < want || wait > want+2*time.Second {
			t.Errorf("attempt %d came after %s, want %s", i+2, wait, want)
		}
	}
	// A stop while it waits is a stop at once.
	run, err = s.api.Rerun(t.Context(), run.ID, map[string]string{"label.second": "time"})
	if err != nil {
		t.Fatal(err)
	}
	s.until(run.ID, "it waits", func(r tallyman.Run) bool { return r.State == tallyman.Queued && r.Attempt >= 1 })
	run, err = s.api.Stop(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	p.holds(s.ended(run.ID), tallyman.ReasonStopped)
}

func TestWhatIsRetried(t *testing.T) {
	failing := `settings: {steps: [{result: {text: no, failed: true, reason: REASON}}]}`
	for name, c := range map[string]struct {
		reason   tallyman.Reason
		retry    string
		attempts int
	}{
		"the agent's own failure is not":     {tallyman.AgentError, "", 1},
		"but is when it is named":            {tallyman.AgentError, "on: [AgentError], ", 2},
		"a provider's is once":               {tallyman.RateLimited, "", 2},
		"and as often as is said":            {tallyman.RateLimited, "max: 2, ", 3},
		"nothing is when that is said":       {tallyman.Overloaded, "max: 0, ", 1},
		"an expired login is not":            {tallyman.AuthExpired, "", 1},
		"what is not configured is not":      {tallyman.SetupFailed, "", 1},
		"what the infrastructure broke, one": {tallyman.BackendError, "", 2},
		"or three when it is safe":           {tallyman.BackendError, "safe: true, ", 4},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.agent("agent", "harness: script\nretry: {"+c.retry+"backoff: 20ms}\n"+strings.ReplaceAll(failing, "REASON", string(c.reason)))
			if run := p.ends(c.reason, "agent", "x"); run.Attempt != c.attempts {
				t.Errorf("%d attempts, want %d", run.Attempt, c.attempts)
			}
		})
	}
}

func TestAKeptWorkspaceGoesOn(t *testing.T) {
	p := newPlace(t)
	p.agent("agent", `harness: exec
workspace: {keep: true}
retry: {on: [AgentError], backoff: 20ms}
command: [sh, -c, 'echo x >> log; wc -l < log; [ $TALLYMAN_ATTEMPT_NO = 2 ]']`)
	run := p.ends(tallyman.Completed, "agent")
	if got := p.ok("logs", run.ID); strings.Join(strings.Fields(got), " ") != "1 2" {
		t.Errorf("the attempts say %q", got)
	}
}
