package kube

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tallyman-dev/tallyman"
)

// An agent whose node is not heard of may be at work: its slot is free when it
// cannot be any more.
func TestALostNode(t *testing.T) {
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	for name, c := range map[string]struct {
		silence *Silence
		says    string // "": it goes on
	}{
		"heard of":                             {nil, ""},
		"silent on a node that is well":        {&Silence{For: 10 * time.Hour, Orphan: time.Hour, Ready: true}, ""},
		"its node has just been lost":          {&Silence{For: time.Minute, Orphan: time.Hour}, ""},
		"its runner may still be ending":       {&Silence{For: time.Hour + 30*time.Second, Orphan: time.Hour}, ""},
		"its runner has ended itself":          {&Silence{For: time.Hour + 31*time.Second, Orphan: time.Hour}, "for 1h0m31s"},
		"its runner goes on to its deadline":   {&Silence{For: 100 * time.Hour}, ""},
		"its node is not in the cluster":       {&Silence{For: time.Minute, Orphan: time.Hour, Gone: true}, "node is not there any more"},
		"the same, and no budget would end it": {&Silence{For: time.Minute, Gone: true}, "node is not there any more"},
		"its deadline has passed":              {&Silence{For: 2 * time.Hour}, "its deadline has passed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := scene(running)
			s.Silence = c.silence
			s.Pod.Spec.ActiveDeadlineSeconds = new(int64(3600))
			s.Pod.Status.StartTime = new(metav1.NewTime(ago(time.Minute)))
			if strings.Contains(name, "deadline has passed") {
				s.Pod.Status.StartTime = new(metav1.NewTime(ago(time.Hour + 31*time.Second)))
			}
			o := look(t, s)
			if c.says == "" {
				if !o.Running || o.Gone || o.Cause != nil {
					t.Errorf("it does not go on: %+v", o)
				}
				return
			}
			if !o.Gone || o.Cause == nil || o.Cause.Reason != tallyman.NodeLost || !strings.Contains(o.Cause.Message, c.says) {
				t.Errorf("got %+v, %+v", o, o.Cause)
			}
		})
	}
}

// A bare agent is never heard of, and neither is a runner that has not said
// hello: their nodes are asked about all the same.
func TestWhoCannotBeHeard(t *testing.T) {
	const hour = time.Hour
	pod := func(scheduled time.Duration, runner tallyman.RunnerMode) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labelRunner: string(runner)}}, Spec: corev1.PodSpec{NodeName: "n"},
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
		q := b.silence(t.Context(), c.attempt, Scene{Pod: c.pod, Now: time.Now()})
		if (q != nil) != c.asked || q != nil && (q.Orphan != c.orphan || !q.Gone) {
			t.Errorf("%s: got %+v", name, q)
		}
	}
}
