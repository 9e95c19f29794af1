package kube

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/kube/job"
	"github.com/tallyman-dev/tallyman/internal/kube/observe"
)

// newNode is how long a Pod's node may be one that is not in memory yet.
const newNode = time.Minute

// silence asks about the node of an attempt whose runner is not heard of, or
// that has none; nil while there is nothing to ask.
func (b *Backend) silence(ctx context.Context, a tallyman.Attempt, s observe.Scene) *observe.Silence {
	pod := s.Pod
	if pod == nil || pod.Spec.NodeName == "" {
		return nil
	}
	q := &observe.Silence{Orphan: b.o.Orphan}
	bare := pod.Labels[job.LabelRunner] == string(tallyman.RunnerBare)
	switch {
	case a.LastContact != nil:
		q.For = time.Since(*a.LastContact) // this is our own time
	case a.Journal != "" && !bare:
		return nil
	default:
		// Nobody could be heard yet, or ever. A new node may not be known.
		c := observe.Condition(pod, corev1.PodScheduled)
		if c == nil || s.Now.Sub(c.LastTransitionTime.Time) < newNode {
			return nil
		}
		q.For = s.Now.Sub(c.LastTransitionTime.Time)
		if bare {
			q.Orphan = 0
		}
	}
	all, err := b.nodes.list(ctx)
	switch {
	case apierrors.IsForbidden(err):
		// Nodes may not be looked at. The cluster marks the Pods of one that it
		// has lost.
		c := observe.Condition(pod, corev1.PodReady)
		q.Ready = c == nil || c.Status == corev1.ConditionTrue
		return q
	case err != nil:
		q.Ready = true // nobody knows
		return q
	}
	q.Gone = true
	for _, n := range all {
		if n.Name == pod.Spec.NodeName {
			q.Gone, q.Ready = false, isReady(n)
		}
	}
	return q
}

func isReady(n corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// nodes are the cluster's nodes, as they were a moment ago: when many attempts
// ask, one asks the cluster.
type nodes struct {
	live client.Client

	mu  sync.Mutex
	at  time.Time
	all []corev1.Node
	err error
}

const nodesAge = 10 * time.Second

// list returns the nodes; the error is the cluster's own.
func (n *nodes) list(ctx context.Context) ([]corev1.Node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.at) < nodesAge {
		return n.all, n.err
	}
	var list corev1.NodeList
	n.err = n.live.List(ctx, &list)
	n.all, n.at = list.Items, time.Now()
	return n.all, n.err
}

// biggest is what the largest node offers of each resource, nil where nodes
// may not be looked at: then the start's own patience decides.
func biggest(all []corev1.Node, err error) corev1.ResourceList {
	if err != nil || len(all) == 0 {
		return nil
	}
	most := corev1.ResourceList{}
	for _, n := range all {
		for name, q := range n.Status.Allocatable {
			if have := most[name]; q.Cmp(have) > 0 {
				most[name] = q
			}
		}
	}
	return most
}
