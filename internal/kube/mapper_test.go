package kube

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// A cache of several namespaces asks whether a kind has one, of lists too.
func TestMapper(t *testing.T) {
	for _, o := range []runtime.Object{
		&corev1.Pod{}, &corev1.PodList{}, &batchv1.Job{}, &batchv1.JobList{}, &corev1.Event{}, &corev1.EventList{},
		&corev1.ResourceQuotaList{}, &corev1.ConfigMap{},
	} {
		if namespaced, err := apiutil.IsObjectNamespaced(o, scheme.Scheme, mapper()); err != nil || !namespaced {
			t.Errorf("%T: %v, %v", o, namespaced, err)
		}
	}
	if namespaced, err := apiutil.IsObjectNamespaced(&corev1.NodeList{}, scheme.Scheme, mapper()); err != nil || namespaced {
		t.Errorf("nodes: %v, %v", namespaced, err)
	}
}
