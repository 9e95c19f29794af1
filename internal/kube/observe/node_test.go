package observe

import (
	"strings"
	"testing"
	"time"

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
