package observe

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tallyman-dev/tallyman"
)

// Whoever may make Pods may give them our labels: an attempt is what was made
// for it, and not a copy of that.
func TestACopyIsNotTheAttempt(t *testing.T) {
	controlled := func(uid, kind, owner string, age time.Duration) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", UID: types.UID(uid), CreationTimestamp: metav1.NewTime(noon.Add(-age))}}
		if owner != "" {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: kind, UID: types.UID(owner), Controller: new(true)}}
		}
		return p
	}
	job := func(uid string) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", UID: types.UID(uid)}}
	}
	mine := controlled("mine", "Job", "job", time.Hour)
	for name, c := range map[string]struct {
		object   string
		jobs     []*batchv1.Job
		pods     []*corev1.Pod
		job, pod string
	}{
		"nothing is recorded yet":      {"", []*batchv1.Job{job("job")}, []*corev1.Pod{mine}, "job", "mine"},
		"a younger copy of its Pod":    {"agents/job", []*batchv1.Job{job("job")}, []*corev1.Pod{mine, controlled("copy", "", "", 0)}, "job", "mine"},
		"a copy that another controls": {"agents/job", nil, []*corev1.Pod{controlled("copy", "ReplicaSet", "job", 0)}, "", ""},
		"a Job that was made again":    {"agents/job", []*batchv1.Job{job("again")}, []*corev1.Pod{controlled("x", "Job", "again", 0)}, "", ""},
		"a Pod without a Job":          {"agents/alone", nil, []*corev1.Pod{controlled("copy", "", "", 0), controlled("alone", "", "", time.Hour)}, "", "alone"},
	} {
		s := Scene{}.With(c.object, c.jobs, c.pods)
		gotJob, gotPod := "", ""
		if s.Job != nil {
			gotJob = string(s.Job.UID)
		}
		if s.Pod != nil {
			gotPod = string(s.Pod.UID)
		}
		if gotJob != c.job || gotPod != c.pod {
			t.Errorf("%s: got Job %q and Pod %q", name, gotJob, gotPod)
		}
	}
}

// A Pod that a node has refused has no container that ended: it goes as the
// others do.
func TestWhenAPodHasEnded(t *testing.T) {
	refused := scene(podSays("OutOfcpu", "no room"), func(s *Scene) {
		s.Pod.Status.Phase, s.Pod.Status.ContainerStatuses = corev1.PodFailed, nil
		s.Pod.CreationTimestamp = metav1.NewTime(noon.Add(-time.Minute))
		s.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, LastTransitionTime: metav1.NewTime(noon)}}
	})
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want time.Time
	}{
		"at work":  {scene(running).Pod, time.Time{}},
		"its end":  {scene(ended(0, "Completed", "")).Pod, noon},
		"no start": {refused.Pod, noon},
	} {
		if got := EndOf(c.pod); !got.Equal(c.want) {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// What was made and not recorded is started again, unless it is over.
func TestUnrecorded(t *testing.T) {
	for name, c := range map[string]struct {
		scene   Scene
		attempt tallyman.Attempt
		want    bool
	}{
		"made, not recorded": {scene(), tallyman.Attempt{}, true},
		"recorded":           {scene(), tallyman.Attempt{Object: "job"}, false},
		"nothing is there":   {Scene{}, tallyman.Attempt{}, false},
		"heard of":           {scene(), tallyman.Attempt{Journal: "J"}, false},
		"over":               {scene(), tallyman.Attempt{EndedAt: &noon}, false},
	} {
		if got := c.scene.Unrecorded(c.attempt); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A node's clock may be behind: an agent has not begun before it had a node.
func TestWhenAnAgentHasBegun(t *testing.T) {
	for name, c := range map[string]struct {
		at   time.Time
		want string
	}{
		"by its node":              {noon.Add(-10 * time.Second), "-10s"},
		"by a node that is behind": {noon.Add(-time.Hour), "-1m0s"},
	} {
		s := scene(agentIs(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.at)}}))
		if got := BegunAt(s.Pod).Sub(noon).String(); got != c.want {
			t.Errorf("%s: begun at noon %s, want %s", name, got, c.want)
		}
	}
}
