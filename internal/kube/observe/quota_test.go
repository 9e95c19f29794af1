package observe

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tallyman-dev/tallyman/internal/kube/job"
)

func TestHasRoom(t *testing.T) {
	quota := func(name, pods, used, memory, usedMemory string) corev1.ResourceQuota {
		return corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.ResourceQuotaStatus{
			Hard: corev1.ResourceList{"pods": resource.MustParse(pods), "limits.memory": resource.MustParse(memory)},
			Used: corev1.ResourceList{"pods": resource.MustParse(used), "limits.memory": resource.MustParse(usedMemory)},
		}}
	}
	const both = `Error creating: pods "x-" is forbidden: exceeded quota: few, requested: limits.memory=1Gi,pods=1, used: limits.memory=2Gi,pods=1, limited: limits.memory=2Gi,pods=1`
	for name, c := range map[string]struct {
		quotas []corev1.ResourceQuota
		words  string
		want   bool
	}{
		"full":                     {[]corev1.ResourceQuota{quota("few", "1", "1", "2Gi", "2Gi")}, both, false},
		"room for one of two":      {[]corev1.ResourceQuota{quota("few", "1", "0", "2Gi", "1500Mi")}, both, false},
		"room":                     {[]corev1.ResourceQuota{quota("few", "1", "0", "2Gi", "1Gi")}, both, true},
		"another is full":          {[]corev1.ResourceQuota{quota("other", "0", "0", "0", "0")}, both, true},
		"it is gone":               {nil, both, true},
		"words of many events":     {[]corev1.ResourceQuota{quota("few", "1", "1", "2Gi", "2Gi")}, "(combined from similar events): " + both, false},
		"words that nobody knows":  {[]corev1.ResourceQuota{quota("few", "1", "1", "2Gi", "2Gi")}, "exceeded quota: few", true},
		"a resource without limit": {[]corev1.ResourceQuota{quota("few", "1", "0", "2Gi", "0")}, "exceeded quota: few, requested: requests.cpu=4, used: ", true},
	} {
		if got := HasRoom(c.quotas, c.words); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestMayWake(t *testing.T) {
	job := func(woken string) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{job.AnnotationWoken: woken}}}
	}
	at := func(d time.Duration) string { return noon.Add(d).Format(time.RFC3339) }
	for name, c := range map[string]struct {
		job    *batchv1.Job
		failed time.Duration
		want   bool
	}{
		"never woken":             {&batchv1.Job{}, -time.Minute, true},
		"woken, and failed again": {job(at(-4 * time.Second)), -3 * time.Second, true},
		"woken just now":          {job(at(-4 * time.Second)), -time.Minute, false},
		"woken, and did not stir": {job(at(-time.Minute)), -2 * time.Minute, true},
		"woken by who knows whom": {job("yesterday"), -time.Minute, true},
	} {
		if got := MayWake(c.job, noon.Add(c.failed), noon); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestOverQuota(t *testing.T) {
	event := func(words string) func(*Scene) {
		return func(s *Scene) {
			s.Events = append(s.Events, &corev1.Event{Reason: "FailedCreate", Message: "Error creating: " + words, LastTimestamp: metav1.NewTime(noon)})
		}
	}
	for name, c := range map[string]struct {
		scene Scene
		want  bool
	}{
		"over":            {scene(noPod, event("exceeded quota: few")), true},
		"something else":  {scene(noPod, event("is forbidden: maximum memory")), false},
		"nothing":         {scene(noPod), false},
		"it has gone on":  {scene(event("exceeded quota: few")), false},
		"it was, is else": {scene(noPod, event("exceeded quota: few"), func(s *Scene) { s.Events[0].LastTimestamp = metav1.NewTime(noon.Add(-time.Second)) }, event("is forbidden")), false},
	} {
		if got := c.scene.OverQuota() != nil; got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// When a Job was woken is known from what the informers keep of it.
func TestWhenAJobWasWokenIsKept(t *testing.T) {
	j := made(t, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{job.AnnotationWoken: noon.Format(time.RFC3339), "tallyman.dev/labels": "{}"}}})
	if MayWake(j, noon.Add(-time.Second), noon.Add(time.Second)) || len(j.Annotations) != 1 {
		t.Errorf("its annotations are %v", j.Annotations)
	}
}
