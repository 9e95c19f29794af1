package kube

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tallyman-dev/tallyman/internal/kube/job"
)

// A Job that cannot be woken, or whose quotas may not be listed, keeps no other
// asleep.
func TestOneThatIsNotWokenKeepsNoOtherAsleep(t *testing.T) {
	var all []client.Object
	for _, name := range []string{"a", "b", "c"} {
		j := &batchv1.Job{ObjectMeta: labelled(name, name, "")}
		j.Labels[job.LabelRun] = strings.Replace(attempt.RunID, "AB", "A"+strings.ToUpper(name), 1)
		all = append(all, j)
	}
	b := known(t, Options{}, all, all...)
	for _, j := range all {
		e := &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: j.GetName(), Namespace: "agents"}, InvolvedObject: corev1.ObjectReference{UID: j.GetUID()},
			Reason: "FailedCreate", Message: `Error creating: pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1`, LastTimestamp: metav1.NewTime(noon),
		}
		if err := b.seen.events[0].GetIndexer().Add(e); err != nil {
			t.Fatal(err)
		}
	}
	failed := ""
	b.live = interceptor.NewClient(b.live.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("no right to list quotas")
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if failed == "" {
				failed = o.GetName()
				return errors.New("a webhook is down")
			}
			return w.Patch(ctx, o, p, opts...)
		},
	})
	err := b.wake(t.Context(), noon.Add(time.Second))
	if err == nil || !strings.Contains(err.Error(), "no right") || !strings.Contains(err.Error(), "wake Job agents/"+failed) {
		t.Errorf("it says %v", err)
	}
	for _, j := range all {
		var now batchv1.Job
		if err := b.live.Get(t.Context(), client.ObjectKeyFromObject(j), &now); err != nil {
			t.Fatal(err)
		}
		if woken := now.Annotations[job.AnnotationWoken] != ""; woken != (j.GetName() != failed) {
			t.Errorf("Job %s is woken: %t", j.GetName(), woken)
		}
	}
}
