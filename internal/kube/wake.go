package kube

import (
	"context"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
)

const (
	wakePeriod = 2 * time.Second
	wokenLong  = 15 * time.Second // after which a Job that did not stir is woken again
)

// wake makes the Job controller try again once a quota has room: by itself it
// does so after a minute at worst. A change to the Job makes it look.
func (b *Backend) wake(ctx context.Context, now time.Time) error {
	quotas := map[string]*corev1.ResourceQuotaList{}
	for j := range b.seen.jobs.all() {
		ref, ours := refOf(j.Labels)
		if !ours || j.DeletionTimestamp != nil || j.Status.Active > 0 || jobEnded(j) != nil {
			continue
		}
		s, err := b.seen.scene(ref, string(j.UID))
		if err != nil {
			return err
		}
		e := s.overQuota()
		if e == nil || !mayWake(j, lastSeen(e), now) {
			continue
		}
		list := quotas[j.Namespace]
		if list == nil {
			list = &corev1.ResourceQuotaList{}
			if err := b.live.List(ctx, list, client.InNamespace(j.Namespace)); err != nil {
				return fmt.Errorf("list the quotas of namespace %s: %w", j.Namespace, err)
			}
			quotas[j.Namespace] = list
		}
		if !hasRoom(list.Items, e.Message) {
			continue
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, annotationWoken, now.UTC().Format(time.RFC3339))
		if err := b.live.Patch(ctx, j.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("wake Job %s/%s: %w", j.Namespace, j.Name, err)
		}
	}
	return nil
}

// overQuota is the event with which a quota keeps a Job from making its Pod,
// nil where none does.
func (s Scene) overQuota() *corev1.Event {
	if s.Pod != nil {
		return nil
	}
	e := s.failedCreate()
	if e == nil || refusedPod(e.Message).Wait != tallyman.Quota {
		return nil
	}
	return e
}

// mayWake reports whether a Job has failed since it was woken, or sleeps on.
func mayWake(j *batchv1.Job, failed, now time.Time) bool {
	woken, err := time.Parse(time.RFC3339, j.Annotations[annotationWoken])
	return err != nil || !failed.Before(woken) || now.Sub(woken) > wokenLong
}

// hasRoom reports whether the quota that words name has room by now for what
// they say was asked: "exceeded quota: NAME, requested: pods=1, used: …".
// What cannot be understood has: trying costs little.
func hasRoom(quotas []corev1.ResourceQuota, words string) bool {
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
