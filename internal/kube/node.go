package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
)

// Silence is what is known about an attempt whose runner is not heard of.
type Silence struct {
	Since  time.Time
	Orphan time.Duration // how long its runner goes on without a server, 0: until its deadline
	Gone   bool          // its node is no object any more
	Ready  bool          // its node is, as the cluster sees it
}

// orphanMargin is given to a runner that ends itself.
const orphanMargin = 30 * time.Second

// lost is the end of an attempt whose node is lost: nil while the agent may
// still be at work there. An agent does not outlive its runner's orphan
// budget, whoever could confirm that.
func (s Scene) lost() *tallyman.Cause {
	q := s.Silence
	if q == nil || s.Pod.Spec.NodeName == "" {
		return nil
	}
	silent := s.Now.Sub(q.Since)
	switch {
	case q.Gone:
		return &tallyman.Cause{Reason: tallyman.NodeLost, Message: fmt.Sprintf("its node %s is not there any more", s.Pod.Spec.NodeName)}
	case !q.Ready && q.Orphan > 0 && silent > q.Orphan+orphanMargin:
		return &tallyman.Cause{Reason: tallyman.NodeLost, Message: fmt.Sprintf(
			"its node %s is not ready, and nothing was heard of its runner for %s; a runner ends its agent after %s without a server", s.Pod.Spec.NodeName, silent.Round(time.Second), q.Orphan)}
	case !q.Ready && s.overtime():
		return &tallyman.Cause{Reason: tallyman.NodeLost, Message: fmt.Sprintf(
			"its node %s is not ready, nothing was heard of its runner for %s, and its deadline has passed", s.Pod.Spec.NodeName, silent.Round(time.Second))}
	}
	return nil
}

// overtime reports whether a Pod has had all the time that it has, with what
// its runner needs to end.
func (s Scene) overtime() bool {
	limit, start := s.Pod.Spec.ActiveDeadlineSeconds, s.Pod.Status.StartTime
	return limit != nil && start != nil && s.Now.Sub(start.Time) > time.Duration(*limit)*time.Second+orphanMargin
}

// silence asks about the node of an attempt whose runner is not heard of; nil
// while it is.
func (b *Backend) silence(ctx context.Context, a tallyman.Attempt, pod *corev1.Pod) *Silence {
	if a.LastContact == nil || pod == nil || pod.Spec.NodeName == "" {
		return nil
	}
	q := &Silence{Since: *a.LastContact, Orphan: b.o.Orphan}
	var node corev1.Node
	switch err := b.live.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, &node); {
	case apierrors.IsNotFound(err):
		q.Gone = true
	case apierrors.IsForbidden(err):
		// Nodes may not be looked at. The cluster marks the Pods of one that it
		// has lost.
		c := condition(pod, corev1.PodReady)
		q.Ready = c == nil || c.Status == corev1.ConditionTrue
	case err != nil:
		q.Ready = true // nobody knows
	default:
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				q.Ready = c.Status == corev1.ConditionTrue
			}
		}
	}
	return q
}
