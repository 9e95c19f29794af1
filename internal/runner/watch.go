package runner

import (
	"context"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// ending is what we know of the end of a harness, whatever it says itself.
type ending struct {
	intent      *order // why we ended it; nil: we did not, or not for a reason of ours
	interrupted bool   // we had to end without knowing why
	said        bool   // its result was there before our first signal
}

// watch waits for the harness to end and ends it when something demands it:
// an order, a limit, a result that the process outlives, our own end.
func (r *run) watch(ctx context.Context, a *agent, lost <-chan struct{}) (e ending) {
	stopping := false
	stop := func() {
		if !stopping {
			stopping = true
			w, _ := r.rec.look()
			e.said = w.finished()
			go a.stop(r.adapter.StopOrder(), r.spec.Grace.D())
		}
	}
	interrupt := func() { e.interrupted = true; stop() }
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var told told
	done, final, failed := ctx.Done(), r.up.final, r.rec.failed
	for {
		w, cursor := r.rec.look()
		now := time.Now()
		again := r.tell(&told, w, cursor, now)
		if o := r.demand(w, now, e.intent == nil); o != nil {
			if o.reason != "" {
				e.intent = o
			}
			stop()
		}
		if b := r.spec.OrphanBudget.D(); b > 0 && r.up.silence() >= b {
			interrupt()
		}
		timer.Reset(min(again, r.wait(w, now)))
		select {
		case <-a.exited:
			return e
		case <-r.rec.changed:
		case <-timer.C:
		case o := <-r.up.orders:
			if w, _ := r.rec.look(); e.intent == nil && !w.finished() {
				e.intent = &order{o.Reason, o.Message}
				r.rec.event(tallyman.Event{Type: tallyman.EventNotice, Name: "stop", Text: o.Message})
			}
			stop()
		case <-done:
			done = nil
			interrupt()
		case <-final:
			final = nil
			interrupt()
		case <-lost:
			lost = nil
			interrupt()
		case <-failed:
			failed = nil
			e.intent = &order{tallyman.BackendError, brokenMessage(r.up.dir, r.rec.err)}
			stop()
		}
	}
}

// demand is what the harness's own progress demands: nil to let it go on, an
// order without a reason to end it with what it says itself. Limits are looked
// at when asked for, and count until its result only.
func (r *run) demand(w watch, now time.Time, limits bool) *order {
	if limits && (!w.finished() || w.crossed != nil) {
		if o := exceeded(r.spec.Agent.Limits, r.spec.Used, w, now); o != nil {
			r.rec.event(tallyman.Event{Type: tallyman.EventNotice, Name: "limit", Text: string(o.reason) + ": " + o.message})
			return o
		}
	}
	if w.progress.Fatal != "" || w.finished() && now.Sub(w.result) >= r.spec.ResultGrace.D() {
		return &order{}
	}
	return nil
}

// told is what control has been told of a harness at work.
type told struct {
	first bool
	usage tallyman.Usage
	at    time.Time // when usage was
}

// tell tells control what is new, and returns when there may be more to tell
// even if nothing happens.
func (r *run) tell(t *told, w watch, cursor uint64, now time.Time) (again time.Duration) {
	if !t.first && !w.first.IsZero() {
		t.first = true
		r.up.fact(tallyman.Fact{Cursor: cursor, Kind: tallyman.FactFirst, At: w.first})
	}
	u := w.progress.Usage
	if u == t.usage {
		return time.Hour
	}
	if due := t.at.Add(usagePeriod).Sub(now); due > 0 {
		return due
	}
	r.up.fact(tallyman.Fact{Cursor: cursor, Kind: tallyman.FactUsage, At: now, Usage: &u})
	t.usage, t.at = u, now
	return time.Hour
}

// wait is how long nothing needs to be looked at, if nothing happens.
func (r *run) wait(w watch, now time.Time) time.Duration {
	wait := time.Hour
	if next := nextLook(r.spec.Agent.Limits, w); !next.IsZero() {
		wait = next.Sub(now)
	}
	if w.finished() {
		wait = min(wait, w.result.Add(r.spec.ResultGrace.D()).Sub(now))
	}
	if b := r.spec.OrphanBudget.D(); b > 0 {
		wait = min(wait, b-r.up.silence(), time.Second)
	}
	// A limit that was exceeded already is being acted on: look now and then.
	return max(wait, 20*time.Millisecond)
}
