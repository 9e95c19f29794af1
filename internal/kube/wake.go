package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman/internal/kube/job"
	"github.com/tallyman-dev/tallyman/internal/kube/observe"
)

const wakePeriod = 2 * time.Second

// wake makes the Job controller try again once a quota has room: by itself it
// does so after a minute at worst. A change to the Job makes it look. One that
// fails keeps no other asleep.
func (b *Backend) wake(ctx context.Context, now time.Time) error {
	quotas := map[string][]corev1.ResourceQuota{}
	var errs []error
	for j := range b.seen.jobs.all() {
		ref, ours := job.RefOf(j.Labels)
		if !ours || j.DeletionTimestamp != nil || j.Status.Active > 0 || observe.JobEnded(j) != nil {
			continue
		}
		s, err := b.seen.scene(ref, observe.Object(j))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		e := s.OverQuota()
		if e == nil || !observe.MayWake(j, observe.LastSeen(e), now) {
			continue
		}
		if _, listed := quotas[j.Namespace]; !listed {
			var list corev1.ResourceQuotaList
			if err := b.live.List(ctx, &list, client.InNamespace(j.Namespace)); err != nil {
				errs = append(errs, fmt.Errorf("list the quotas of namespace %s: %w", j.Namespace, err))
			}
			quotas[j.Namespace] = list.Items // where they cannot be listed trying costs little
		}
		if !observe.HasRoom(quotas[j.Namespace], e.Message) {
			continue
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, job.AnnotationWoken, now.UTC().Format(time.RFC3339))
		if err := b.live.Patch(ctx, j.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("wake Job %s/%s: %w", j.Namespace, j.Name, err))
		}
	}
	return errors.Join(errs...)
}
