package executor

import (
	"context"
	"errors"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/fault"
)

// bring completes an attempt's events in History and merges them.
func (x *Executor) bring(ctx context.Context, a tallyman.Attempt, obs tallyman.Observation) error {
	if err := x.deliver(ctx, a, obs); err != nil || a.Journal == "" {
		return err
	}
	return x.history.Compact(ctx, a.Journal)
}

// payEvery is how long what could not be delivered is left alone: each try
// reads its journal anew.
const payEvery = 15 * time.Second

// payOwed delivers what is owed, as far as History takes it.
func (x *Executor) payOwed(ctx context.Context) error {
	if time.Now().Before(x.payNext) {
		return nil
	}
	owed, err := x.store.OwedAttempts(ctx)
	for _, a := range owed {
		err = errors.Join(err, x.deliverOwed(ctx, a))
	}
	if err != nil {
		x.payNext = time.Now().Add(payEvery)
	}
	return err
}

// deliverOwed tries again what History did not take. Where the journal is not
// there any more, nothing is owed.
func (x *Executor) deliverOwed(ctx context.Context, a tallyman.Attempt) error {
	obs, err := x.backend.Observe(ctx, a)
	if err == nil && obs.Gone {
		err = x.bring(ctx, a, obs)
	}
	if err != nil && !hopeless(err) {
		return err
	}
	told := x.service.Delivered(ctx, a.Ref())
	if tallyman.CodeOf(told) == tallyman.NotFound {
		// Its run was removed meanwhile: what was delivered is nobody's.
		return errors.Join(err, x.history.Delete(ctx, a.Journal))
	}
	return errors.Join(err, told)
}

// hopeless reports whether History will never take these events: it has
// others in their place.
func hopeless(err error) bool { return tallyman.CodeOf(err) == tallyman.Conflict }

const deliverBatch = 1 << 20

// deliver brings to History what the journal of a gone runner holds and the
// runner could not deliver.
func (x *Executor) deliver(ctx context.Context, a tallyman.Attempt, obs tallyman.Observation) error {
	if obs.Last == 0 || a.Journal != obs.Journal {
		return nil // nothing, or not what this attempt is bound to
	}
	next, err := x.history.Next(ctx, obs.Journal)
	if err != nil {
		return err
	}
	if next > obs.Last {
		return nil
	}
	var lines [][]byte
	size := 0
	flush := func() error {
		if len(lines) == 0 {
			return nil
		}
		fault.Point(fault.ExecutorDelivering)
		n, err := x.history.Append(ctx, obs.Journal, next, lines)
		next, lines, size = n, nil, 0
		return err
	}
	err = x.backend.Leftover(ctx, a.Ref(), next-1, func(_ uint64, line []byte) error {
		lines = append(lines, append([]byte(nil), line...))
		if size += len(line); size >= deliverBatch {
			return flush()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}
