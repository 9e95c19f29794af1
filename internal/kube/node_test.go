package kube

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/kube/job"
	"github.com/tallyman-dev/tallyman/internal/kube/observe"
)

// hello: their nodes are asked about all the same.
func TestWhoCannotBeHeard(t *testing.T) {
	const hour = time.Hour
	pod := func(scheduled time.Duration, runner tallyman.RunnerMode) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{job.LabelRunner: string(runner)}}, Spec: corev1.PodSpec{NodeName: "n"},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, LastTransitionTime: metav1.NewTime(time.Now().Add(-scheduled))}}},
		}
	}
	for name, c := range map[string]struct {
		attempt tallyman.Attempt
		pod     *corev1.Pod
		asked   bool
		orphan  time.Duration
	}{
		"its runner is heard of":        {tallyman.Attempt{Journal: "J"}, pod(hour, tallyman.RunnerInject), false, 0},
		"its runner is silent":          {tallyman.Attempt{Journal: "J", LastContact: new(time.Now())}, pod(hour, tallyman.RunnerInject), true, hour},
		"its runner has not begun":      {tallyman.Attempt{}, pod(hour, tallyman.RunnerInject), true, hour},
		"bare, at work":                 {tallyman.Attempt{Journal: "pod-x"}, pod(hour, tallyman.RunnerBare), true, 0},
		"bare, its node may be too new": {tallyman.Attempt{}, pod(50*time.Second, tallyman.RunnerBare), false, 0},
		"no node":                       {tallyman.Attempt{}, &corev1.Pod{}, false, 0},
	} {
		b := &Backend{o: Options{Orphan: hour}}
		b.nodes.at = time.Now()
		q := b.silence(t.Context(), c.attempt, observe.Scene{Pod: c.pod, Now: time.Now()})
		if (q != nil) != c.asked || q != nil && (q.Orphan != c.orphan || !q.Gone) {
			t.Errorf("%s: got %+v", name, q)
		}
	}
}
