package kube

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
)

const (
	sweepPeriod  = 10 * time.Second
	sidecarGrace = 5 * time.Second // after the agent, for what beside it does not end
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
		err := look(ctx, time.Now())
		if err == nil {
			told = ""
		} else if ctx.Err() == nil && err.Error() != told {
			told = err.Error()
			b.o.Log.WarnContext(ctx, what, "err", err)
		}
	}
}

// sweep removes what is done with: sidecars that do not end when their agent
// has, and objects whose attempt is kept elsewhere.
func (b *Backend) sweep(ctx context.Context, now time.Time) error {
	for p := range b.seen.pods.all() {
		agent := agentStatus(p)
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil && agent != nil && agent.State.Terminated != nil &&
			now.Sub(agent.State.Terminated.FinishedAt.Time) > sidecarGrace {
			if err := b.live.Delete(ctx, p, client.Preconditions{UID: &p.UID}); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return err
			}
		}
	}
	for j := range b.seen.jobs.all() {
		if c := jobEnded(j); c != nil && now.Sub(c.LastTransitionTime.Time) > b.o.Ended {
			if err := b.sweepKept(ctx, j, Scene{Job: j}); err != nil {
				return err
			}
		}
	}
	for p := range b.seen.pods.all() {
		agent := agentStatus(p)
		if metav1.GetControllerOf(p) == nil && agent != nil && agent.State.Terminated != nil && now.Sub(agent.State.Terminated.FinishedAt.Time) > b.o.Ended {
			if err := b.sweepKept(ctx, p, Scene{Pod: p}); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweepKept removes an ended object once its attempt's record is complete.
func (b *Backend) sweepKept(ctx context.Context, o client.Object, s Scene) error {
	ref, ours := refOf(o.GetLabels())
	if !ours || o.GetDeletionTimestamp() != nil {
		return nil
	}
	kept, err := b.o.Kept(ctx, ref)
	if err != nil || !kept {
		if tallyman.CodeOf(err) == tallyman.NotFound {
			return nil // another server's; the object ends itself
		}
		return err
	}
	return b.remove(ctx, s)
}
