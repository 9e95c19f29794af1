package observe

import (
	"fmt"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// Silence is what is known about an attempt whose runner is not heard of.
type Silence struct {
	For    time.Duration
	Orphan time.Duration // how long its runner goes on without a server, 0: until its deadline
	Gone   bool          // its node is no object any more
	Ready  bool          // its node is, as the cluster sees it
}

// orphanMargin is given to a runner that ends itself.
const orphanMargin = 30 * time.Second

// Lost is the end of an attempt whose node is lost: nil while the agent may
// still be at work there. An agent does not outlive its runner's orphan
// budget, whoever could confirm that.
func (s Scene) Lost() *tallyman.Cause {
	q := s.Silence
	if q == nil || s.Pod.Spec.NodeName == "" {
		return nil
	}
	switch {
	case q.Gone:
		return &tallyman.Cause{Reason: tallyman.NodeLost, Message: fmt.Sprintf("its node %s is not there any more", s.Pod.Spec.NodeName)}
	case !q.Ready && q.Orphan > 0 && q.For > q.Orphan+orphanMargin:
		return &tallyman.Cause{Reason: tallyman.NodeLost, Message: fmt.Sprintf(
			"its node %s is not ready, and nothing was heard of its runner for %s; a runner ends its agent after %s without a server", s.Pod.Spec.NodeName, q.For.Round(time.Second), q.Orphan)}
	case !q.Ready && s.overtime():
		return &tallyman.Cause{Reason: tallyman.NodeLost, Message: fmt.Sprintf(
			"its node %s is not ready, nothing was heard of its runner for %s, and its deadline has passed", s.Pod.Spec.NodeName, q.For.Round(time.Second))}
	}
	return nil
}

// overtime reports whether a Pod has had all the time that it has, with what
// its runner needs to end.
func (s Scene) overtime() bool {
	limit, start := s.Pod.Spec.ActiveDeadlineSeconds, s.Pod.Status.StartTime
	return limit != nil && start != nil && s.Now.Sub(start.Time) > time.Duration(*limit)*time.Second+orphanMargin
}
