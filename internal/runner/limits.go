package runner

import (
	"fmt"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/harness"
)

// watch is what enforcing limits needs to see of a running harness.
type watch struct {
	started  time.Time
	first    time.Time            // the first line on stdout
	activity time.Time            // the last sign of life on stdout
	tools    map[string]time.Time // open tool calls by id, with their start
	progress harness.Progress
	crossed  *order    // the first limit of what is counted that was exceeded before the result
	result   time.Time // since when it is finished
}

// finished reports whether the harness has said its result and means it.
func (w watch) finished() bool { return w.progress.Result && !w.progress.More }

// order is the decision to end the harness.
type order struct {
	reason  tallyman.Reason
	message string
}

// exceeded returns the limit that is exceeded now, nil when none is. used is
// what earlier attempts of the run have taken of budget and tokens.
func exceeded(l tallyman.Limits, used tallyman.Usage, w watch, now time.Time) *order {
	if d := l.Deadline; d != nil && *d > 0 && now.Sub(w.started) >= d.D() {
		return &order{tallyman.DeadlineExceeded, fmt.Sprintf("ran longer than its deadline of %s", d)}
	}
	if d := l.Tool; d != nil && *d > 0 {
		for id, at := range w.tools {
			if now.Sub(at) >= d.D() {
				return &order{tallyman.IdleTimeout, fmt.Sprintf("tool call %s took longer than limits.tool, %s", id, d)}
			}
		}
	}
	if d := l.Idle; d != nil && *d > 0 && len(w.tools) == 0 && now.Sub(w.activity) >= d.D() {
		return &order{tallyman.IdleTimeout, fmt.Sprintf("nothing on standard output for %s", d)}
	}
	if w.crossed != nil {
		return w.crossed
	}
	return overspent(l, used, w.progress)
}

// overspent returns the limit of what is counted that is exceeded, nil when
// none is.
func overspent(l tallyman.Limits, used tallyman.Usage, p harness.Progress) *order {
	if n := l.MaxTurns; n != nil && *n > 0 && p.Turns > *n {
		return &order{tallyman.MaxTurns, fmt.Sprintf("took more than %d turns", *n)}
	}
	total := used.Plus(p.Usage)
	if b := l.BudgetUSD; b != nil && *b > 0 && total.CostUSD > *b {
		return &order{tallyman.BudgetExceeded, fmt.Sprintf("spent $%.4f of a budget of $%.4f", total.CostUSD, *b)}
	}
	if n := l.MaxTokens; n != nil && *n > 0 && total.Tokens() > *n {
		return &order{tallyman.TokenLimit, fmt.Sprintf("used %d of %d tokens", total.Tokens(), *n)}
	}
	return nil
}

// nextLook is when a limit of time can next be exceeded; zero: never.
func nextLook(l tallyman.Limits, w watch) time.Time {
	var next time.Time
	consider := func(d *tallyman.Duration, from time.Time) {
		if d == nil || *d == 0 {
			return
		}
		if at := from.Add(d.D()); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	consider(l.Deadline, w.started)
	for _, at := range w.tools {
		consider(l.Tool, at)
	}
	if len(w.tools) == 0 {
		consider(l.Idle, w.activity)
	}
	return next
}
