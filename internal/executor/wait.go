package executor

import (
	"context"
	"errors"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// unknown is about an attempt that cannot be looked at or started just now.
// One that has not started waits, and says for what; of one at work the
// timeline says so after a while. What is wrong is the backend's to log.
func (x *Executor) unknown(ctx context.Context, a tallyman.Active, err error) error {
	var e *tallyman.Error
	if !errors.As(err, &e) || e.Wait == "" || a.Attempt.EndedAt != nil {
		return err
	}
	if a.Run.State != tallyman.Starting {
		return x.unseen(ctx, a.Attempt.Ref(), e.Message)
	}
	x.memory(a.Attempt.Ref()).since = time.Now()
	return x.service.Wait(ctx, a.Run, &tallyman.Waiting{Reason: e.Wait, Detail: e.Message})
}

// unseen notes once, after a while, why nobody sees how an attempt is that is at
// work.
func (x *Executor) unseen(ctx context.Context, ref tallyman.AttemptRef, why string) error {
	m := x.memory(ref)
	if m.unseen.IsZero() {
		m.unseen = time.Now()
	}
	if m.unseenTold || time.Since(m.unseen) < x.patience.Quiet {
		return nil
	}
	m.unseenTold = true
	return x.service.Note(ctx, ref, "unseen", why)
}

// held tells what keeps an attempt from starting, while it may still change.
func (x *Executor) held(ctx context.Context, a tallyman.Active, b *tallyman.Blocked) error {
	if a.Run.State != tallyman.Starting {
		return nil
	}
	if b == nil {
		return x.service.Wait(ctx, a.Run, nil)
	}
	gate := b.Wait
	if gate == "" {
		gate = tallyman.PodPending
	}
	return x.service.Wait(ctx, a.Run, &tallyman.Waiting{Reason: gate, Detail: b.Message})
}
