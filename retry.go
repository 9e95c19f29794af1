package tallyman

import (
	"slices"
	"time"
)

// AttemptEnd is what deciding about a retry needs to know of an ended attempt.
type AttemptEnd struct {
	Reason  Reason
	Started bool // the agent had started
}

// Next decides whether another attempt follows last, and after how long a
// wait. earlier are the attempts before it.
func (r Retry) Next(last AttemptEnd, earlier []AttemptEnd) (wait time.Duration, again bool) {
	allowed, ok := r.allowance(last)
	if !ok {
		return 0, false
	}
	used := len(earlier)
	if r.Max == nil {
		used = 0
		for _, e := range earlier {
			if e.Reason.Class() == last.Reason.Class() && e.Started == last.Started {
				used++
			}
		}
	}
	if used >= allowed {
		return 0, false
	}
	wait = r.Backoff.D()
	if wait == 0 {
		wait = DefaultBackoff
	}
	ceiling := max(wait, MaxBackoff)
	for range earlier {
		if wait > ceiling/2 {
			return ceiling, true
		}
		wait *= 2
	}
	return wait, true
}

// allowance is how many retries the end permits, and whether it permits any
// by its nature. Max, when given, replaces the number and never the nature.
func (r Retry) allowance(last AttemptEnd) (int, bool) {
	var n int
	switch {
	case last.Reason.Class() == ClassOK, last.Reason.Class() == ClassUser, !last.Reason.Valid():
		return 0, false
	case last.Reason == AuthExpired, last.Reason == OOMKilled:
		// The same again would end the same; a policy may still name them.
		if !slices.Contains(r.On, last.Reason) {
			return 0, false
		}
		n = 1
	case last.Reason.Class() == ClassProvider:
		n = 1
		if !last.Started {
			n = 5
		}
	case last.Reason.Class() == ClassInfra:
		n = 1
		if !last.Started || r.Safe {
			n = 3
		}
	case slices.Contains(r.On, last.Reason):
		n = 1
	default:
		return 0, false
	}
	if r.Max != nil {
		n = *r.Max
	}
	return n, true
}
