package observe

import (
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/kube/job"
)

// OverQuota is the event with which a quota keeps a Job from making its Pod,
// nil where none does.
func (s Scene) OverQuota() *corev1.Event {
	if s.Pod != nil {
		return nil
	}
	e := s.failedCreate()
	if e == nil || Refused(e.Message).Wait != tallyman.Quota {
		return nil
	}
	return e
}

// wokenLong is after what time a Job that did not stir is woken again.
const wokenLong = 15 * time.Second

// MayWake reports whether a Job has failed since it was woken, or sleeps on.
func MayWake(j *batchv1.Job, failed, now time.Time) bool {
	woken, err := time.Parse(time.RFC3339, j.Annotations[job.AnnotationWoken])
	return err != nil || !failed.Before(woken) || now.Sub(woken) > wokenLong
}

// HasRoom reports whether the quota that words name has room by now for what
// they say was asked: "exceeded quota: NAME, requested: pods=1, used: …".
// What cannot be understood has: trying costs little.
func HasRoom(quotas []corev1.ResourceQuota, words string) bool {
	_, words, _ = strings.Cut(words, "exceeded quota: ")
	name, words, _ := strings.Cut(words, ", requested: ")
	asked, _, _ := strings.Cut(words, ", used: ")
	for _, q := range quotas {
		if q.Name != name {
			continue
		}
		for pair := range strings.SplitSeq(asked, ",") {
			what, much, _ := strings.Cut(pair, "=")
			more, err := resource.ParseQuantity(much)
			if err != nil {
				continue
			}
			most, limited := q.Status.Hard[corev1.ResourceName(what)]
			used := q.Status.Used[corev1.ResourceName(what)]
			used.Add(more)
			if limited && used.Cmp(most) > 0 {
				return false
			}
		}
	}
	return true
}
