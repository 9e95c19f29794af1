package observe

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tallyman-dev/tallyman/internal/kube/job"
)

// Lean leaves of an object what looks at it need: thousands of them are kept
// in memory, and most of each is what we have said ourselves. It is for the
// informers alone: an object that was made lean must not be written back.
func Lean(o any) (any, error) {
	switch o := o.(type) {
	case *batchv1.Job:
		o.ManagedFields = nil
		o.Annotations = only(o.Annotations, job.AnnotationWoken)
		o.Spec = batchv1.JobSpec{}
	case *corev1.Pod:
		o.ManagedFields = nil
		o.Annotations = only(o.Annotations, job.AnnotationDeadline)
		o.Spec = corev1.PodSpec{
			NodeName: o.Spec.NodeName, ActiveDeadlineSeconds: o.Spec.ActiveDeadlineSeconds,
			InitContainers: leanContainers(o.Spec.InitContainers, o.Spec.NodeName), Containers: leanContainers(o.Spec.Containers, o.Spec.NodeName),
		}
	case toolscache.DeletedFinalStateUnknown:
		// It is what was kept.
	case metav1.Object:
		o.SetManagedFields(nil)
	}
	return o, nil
}

func only(all map[string]string, key string) map[string]string {
	if v, there := all[key]; there {
		return map[string]string{key: v}
	}
	return nil
}

// leanContainers are containers with what is asked about them: which they are,
// and as long as no node has them what they ask for.
func leanContainers(all []corev1.Container, node string) []corev1.Container {
	kept := make([]corev1.Container, len(all))
	for i, c := range all {
		kept[i] = corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy}
		if node == "" {
			kept[i].Resources = c.Resources
		}
	}
	return kept
}
