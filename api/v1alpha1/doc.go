// Package v1alpha1 has the Go types of tallyman's Kubernetes kinds: what
// Kubernetes adds to the spec that the root has.
//
// +kubebuilder:object:generate=false
// +groupName=tallyman.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is what the kinds belong to.
var GroupVersion = schema.GroupVersion{Group: "tallyman.dev", Version: "v1alpha1"}

// Resource is the plural of the kind Agent.
const Resource = "agents"

// AddToScheme makes the kinds known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Agent{}, &AgentList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
