package kube

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// mapper knows the kinds that a backend uses. Asking the cluster for them
// would keep a server from starting while that is away.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	add := func(kind schema.GroupVersionKind, scope meta.RESTScope) {
		m.Add(kind, scope)
		m.Add(kind.GroupVersion().WithKind(kind.Kind+"List"), scope)
	}
	for _, kind := range []string{"Pod", "Event", "ConfigMap", "ResourceQuota"} {
		add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	add(batchv1.SchemeGroupVersion.WithKind("Job"), meta.RESTScopeNamespace)
	add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	add(authenticationv1.SchemeGroupVersion.WithKind("TokenReview"), meta.RESTScopeRoot)
	return m
}
