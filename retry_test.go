package tallyman_test

import (
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

func TestRetries(t *testing.T) {
	n := func(i int) *int { return &i }
	ends := func(reason tallyman.Reason, started bool, count int) []tallyman.AttemptEnd {
		var all []tallyman.AttemptEnd
		for range count {
			all = append(all, tallyman.AttemptEnd{Reason: reason, Started: started})
		}
		return all
	}
	cases := map[string]struct {
		policy  tallyman.Retry
		reason  tallyman.Reason
		started bool
		want    int // retries in a row
	}{
		"a provider's fault before the start: five":    {reason: tallyman.RateLimited, want: 5},
		"a provider's fault after the start: one":      {reason: tallyman.Overloaded, started: true, want: 1},
		"an expired login: none":                       {reason: tallyman.AuthExpired, want: 0},
		"infrastructure before the start: three":       {reason: tallyman.RunnerLost, want: 3},
		"infrastructure after the start: one":          {reason: tallyman.RunnerLost, started: true, want: 1},
		"infrastructure after the start, safe: three":  {policy: tallyman.Retry{Safe: true}, reason: tallyman.RunnerLost, started: true, want: 3},
		"out of memory: none":                          {policy: tallyman.Retry{Safe: true}, reason: tallyman.OOMKilled, started: true, want: 0},
		"the agent's own error: none":                  {reason: tallyman.AgentError, started: true, want: 0},
		"the agent's own error, named: one":            {policy: tallyman.Retry{On: []tallyman.Reason{tallyman.AgentError}}, reason: tallyman.AgentError, started: true, want: 1},
		"named, with a number":                         {policy: tallyman.Retry{On: []tallyman.Reason{tallyman.NoResult}, Max: n(4)}, reason: tallyman.NoResult, started: true, want: 4},
		"max 0: never":                                 {policy: tallyman.Retry{Max: n(0), Safe: true}, reason: tallyman.RunnerLost, want: 0},
		"max does not make an agent's error retryable": {policy: tallyman.Retry{Max: n(9)}, reason: tallyman.AgentError, want: 0},
		"a limit: none":                                {reason: tallyman.DeadlineExceeded, started: true, want: 0},
		"a configuration error: none":                  {reason: tallyman.SetupFailed, want: 0},
		"stopped: none, even when named":               {policy: tallyman.Retry{On: []tallyman.Reason{tallyman.ReasonStopped}}, reason: tallyman.ReasonStopped, want: 0},
		"completed: none, even when named":             {policy: tallyman.Retry{On: []tallyman.Reason{tallyman.Completed}}, reason: tallyman.Completed, want: 0},
		"a reason that does not exist: none":           {reason: "Fine", want: 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := 0
			for {
				_, again := c.policy.Next(tallyman.AttemptEnd{Reason: c.reason, Started: c.started}, ends(c.reason, c.started, got))
				if !again {
					break
				}
				if got++; got > 20 {
					t.Fatal("it never ends")
				}
			}
			if got != c.want {
				t.Errorf("got %d retries, want %d", got, c.want)
			}
		})
	}
}

func TestRetriesOfAnotherKindDoNotCountAgainstThisOne(t *testing.T) {
	earlier := []tallyman.AttemptEnd{{Reason: tallyman.RateLimited, Started: true}}
	if _, again := (tallyman.Retry{}).Next(tallyman.AttemptEnd{Reason: tallyman.RunnerLost, Started: true}, earlier); !again {
		t.Error("a lost runner after a rate limit is not retried")
	}
}

func TestBackoffDoublesUpToItsCeiling(t *testing.T) {
	policy := tallyman.Retry{Backoff: tallyman.Duration(time.Minute), Safe: true}
	five := 9
	policy.Max = &five
	var earlier []tallyman.AttemptEnd
	for _, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute} {
		got, again := policy.Next(tallyman.AttemptEnd{Reason: tallyman.NodeLost}, earlier)
		if !again || got != want {
			t.Errorf("after %d: got %s, want %s", len(earlier), got, want)
		}
		earlier = append(earlier, tallyman.AttemptEnd{Reason: tallyman.NodeLost})
	}
}

func TestABackoffThatIsLongerThanTheCeilingIsKept(t *testing.T) {
	for _, want := range []time.Duration{10 * time.Minute, 1 << 62} {
		policy := tallyman.Retry{Backoff: tallyman.Duration(want), Safe: true}
		for earlier := range 3 {
			got, again := policy.Next(tallyman.AttemptEnd{Reason: tallyman.NodeLost}, make([]tallyman.AttemptEnd, earlier))
			if !again || got != want {
				t.Errorf("after %d: got %s, want %s", earlier, got, want)
			}
		}
	}
}
