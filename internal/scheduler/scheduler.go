// Package scheduler decides which queued runs may start. A pass looks at what
// is true, plans, and admits; a notice wakes it and a tick makes it certain.
package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/pace"
)

const (
	tick = 5 * time.Second
	// perAgent is how many runs of one group a pass looks at.
	perAgent = 50
)

// Queue is what the scheduler reads.
type Queue interface {
	Queue(ctx context.Context, perAgent int) ([]tallyman.Run, error)
	Load(ctx context.Context) (total int, byAgent map[string]int, err error)
}

// Service is what the scheduler changes.
type Service interface {
	AgentCap(ctx context.Context, run tallyman.Run) (int, error)
	Admit(ctx context.Context, run tallyman.Run, global, perAgent int, backend string) (tallyman.Attempt, error)
	Wait(ctx context.Context, run tallyman.Run, w *tallyman.Waiting) error
	QueueChanged() (<-chan struct{}, func())
}

// Scheduler admits queued runs under the caps.
type Scheduler struct {
	queue   Queue
	service Service
	global  int
	backend string
	log     *slog.Logger
}

// New makes a scheduler. global caps all running attempts, 0: no cap.
func New(q Queue, s Service, global int, backend string, log *slog.Logger) *Scheduler {
	return &Scheduler{queue: q, service: s, global: global, backend: backend, log: log}
}

// Run makes passes until ctx ends.
func (s *Scheduler) Run(ctx context.Context) error {
	changed, end := s.service.QueueChanged()
	defer end()
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		began := time.Now()
		next, err := s.pass(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.ErrorContext(ctx, "admitting runs", "err", err)
		}
		pace.Rest(ctx, began)
		timer.Reset(max(min(next, tick), time.Millisecond))
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-timer.C:
		}
	}
}

// pass plans once and carries the plan out. It returns how long nothing
// changes by itself.
func (s *Scheduler) pass(ctx context.Context) (time.Duration, error) {
	snap := Snapshot{Now: time.Now(), Global: s.global, Caps: map[string]int{}}
	var err error
	if snap.Queue, err = s.queue.Queue(ctx, perAgent); err != nil || len(snap.Queue) == 0 {
		return tick, err
	}
	if snap.Total, snap.ByAgent, err = s.queue.Load(ctx); err != nil {
		return tick, err
	}
	broken := s.readCaps(ctx, &snap)
	plan := Make(snap)
	for _, r := range plan.Admit {
		if _, err := s.service.Admit(ctx, r, s.global, snap.Caps[r.AgentKey()], s.backend); err != nil {
			if code := tallyman.CodeOf(err); code == tallyman.Conflict || code == tallyman.NotFound {
				continue // it has moved: the next pass sees how
			}
			return tick, errors.Join(broken, err)
		}
	}
	for _, r := range snap.Queue {
		w, waits := plan.Wait[r.ID]
		if !waits {
			continue
		}
		if err := s.service.Wait(ctx, r, w); err != nil && tallyman.CodeOf(err) != tallyman.NotFound {
			return tick, errors.Join(broken, err)
		}
	}
	if plan.Next.IsZero() {
		return tick, broken
	}
	return time.Until(plan.Next), broken
}

// readCaps fills in the caps of the agents in the queue. An agent whose cap
// cannot be read does not keep the others from running: its runs are left out.
func (s *Scheduler) readCaps(ctx context.Context, snap *Snapshot) error {
	var errs []error
	unknown := map[string]bool{}
	for _, r := range snap.Queue {
		key := r.AgentKey()
		if _, known := snap.Caps[key]; known || unknown[key] {
			continue
		}
		limit, err := s.service.AgentCap(ctx, r)
		if err != nil {
			errs = append(errs, err)
			unknown[key] = true
			continue
		}
		snap.Caps[key] = limit
	}
	snap.Queue = slices.DeleteFunc(snap.Queue, func(r tallyman.Run) bool { return unknown[r.AgentKey()] })
	return errors.Join(errs...)
}
