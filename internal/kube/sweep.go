package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/kube/job"
	"github.com/tallyman-dev/tallyman/internal/kube/observe"
)

const (
	sweepPeriod    = 10 * time.Second
	deadlinePeriod = time.Second
	sidecarGrace   = 5 * time.Second // after the agent, for what beside it does not end
)

// every looks at what is in memory, again and again. What goes wrong is told
// once, and again when it is something else.
func (b *Backend) every(ctx context.Context, period time.Duration, what string, look func(ctx context.Context, now time.Time) error) {
	t := time.NewTicker(period)
	defer t.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if b.seen.ready() != nil {
			continue
		}
		err := look(ctx, b.clock.now())
		if err == nil {
			told = ""
		} else if ctx.Err() == nil && err.Error() != told {
			told = err.Error()
			b.o.Log.WarnContext(ctx, what, "err", err)
		}
	}
}

// sweep removes what is done with: sidecars that do not end when their agent
// has, and objects whose attempt is kept elsewhere. What fails with one is no
// reason to leave the others.
func (b *Backend) sweep(ctx context.Context, now time.Time) error {
	var errs []error
	for p := range b.seen.pods.all() {
		errs = append(errs, b.sweepSidecars(ctx, p, now))
		if at := observe.EndOf(p); metav1.GetControllerOf(p) == nil && !at.IsZero() && now.Sub(at) > b.o.Ended {
			errs = append(errs, b.sweepKept(ctx, observe.Scene{Pod: p}, now.Sub(at)))
		}
	}
	for j := range b.seen.jobs.all() {
		if c := observe.JobEnded(j); c != nil && now.Sub(c.LastTransitionTime.Time) > b.o.Ended {
			errs = append(errs, b.sweepKept(ctx, observe.Scene{Job: j}, now.Sub(c.LastTransitionTime.Time)))
		}
	}
	return errors.Join(errs...)
}

// sweepSidecars ends a Pod of this server whose agent has ended, once what the
// agent has printed is kept.
func (b *Backend) sweepSidecars(ctx context.Context, p *corev1.Pod, now time.Time) error {
	ref, ours := job.RefOf(p.Labels)
	agent := observe.Agent(p)
	if !ours || p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil || agent == nil || agent.State.Terminated == nil ||
		now.Sub(agent.State.Terminated.FinishedAt.Time) <= sidecarGrace {
		return nil
	}
	if p.Labels[job.LabelRunner] == string(tallyman.RunnerBare) && !b.scribe.finished(p) {
		return nil
	}
	if _, err := b.o.Kept(ctx, ref); err != nil {
		return unlessUnknown(err) // another server's
	}
	return b.deletePod(ctx, p, time.Duration(job.GraceSeconds)*time.Second)
}

// sweepKept removes an ended object once its attempt's record is complete. A
// Job that nobody here knows ends itself; a Pod does not.
func (b *Backend) sweepKept(ctx context.Context, s observe.Scene, age time.Duration) error {
	o := s.Objects()[0]
	ref, ours := job.RefOf(o.GetLabels())
	if !ours || o.GetDeletionTimestamp() != nil {
		return nil
	}
	kept, err := b.o.Kept(ctx, ref)
	if unknown := err != nil && unlessUnknown(err) == nil; unknown {
		kept, err = s.Job == nil && age > job.Backstop, nil
	}
	if err != nil || !kept {
		return err
	}
	return b.remove(ctx, s)
}

// unlessUnknown is nil for an attempt that this server does not know.
func unlessUnknown(err error) error {
	if tallyman.CodeOf(err) == tallyman.NotFound {
		return nil
	}
	return err
}

// holdDeadlines ends Pods without a runner whose agent has had its time. It
// does not need their journals, and asking again does no harm.
func (b *Backend) holdDeadlines(ctx context.Context, now time.Time) error {
	var errs []error
	for p := range b.seen.pods.all() {
		ref, ours := job.RefOf(p.Labels)
		limit, agent := job.Deadline(p), observe.Agent(p)
		if !ours || limit == 0 || agent == nil || agent.State.Running == nil || now.Sub(observe.BegunAt(p)) < limit {
			continue
		}
		err := b.checkOwner(ctx, ref, p)
		if code := tallyman.CodeOf(err); code == tallyman.NotFound || code == tallyman.Stale {
			continue // not of this server
		}
		if err == nil {
			err = b.deletePod(ctx, p, b.o.Grace)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("attempt %s: %w", ref, err))
		}
	}
	return errors.Join(errs...)
}
