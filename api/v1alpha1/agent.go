package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tallyman-dev/tallyman"
)

// Agent is a named configuration of how to run. Its namespace is that of its
// runs and of their Jobs.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=agt,categories=tallyman
// +kubebuilder:printcolumn:name="Harness",type=string,JSONPath=`.spec.harness`
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.spec.model`,priority=1
// +kubebuilder:printcolumn:name="Runner",type=string,JSONPath=`.spec.runner`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.running`
// +kubebuilder:printcolumn:name="Queued",type=integer,JSONPath=`.status.queued`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Agent struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   tallyman.AgentSpec `json:"spec"`
	Status AgentStatus        `json:"status,omitzero"`
}

// AgentStatus is what the server says of an agent.
type AgentStatus struct {
	// Conditions say whether the agent can be run: Ready, and if not, why.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation of the spec that this is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Queued is how many runs wait for their turn.
	//
	// +optional
	Queued int64 `json:"queued"`
	// Running is how many runs start or are at work.
	//
	// +optional
	Running int64 `json:"running"`
	// Succeeded is how many of the runs that are kept have succeeded.
	//
	// +optional
	Succeeded int64 `json:"succeeded"`
	// Failed is how many of the runs that are kept have failed.
	//
	// +optional
	Failed int64 `json:"failed"`
	// Stopped is how many of the runs that are kept were stopped.
	//
	// +optional
	Stopped int64 `json:"stopped"`
}

// Ready is the type of the condition that says whether an agent can be run.
const Ready = "Ready"

// Reasons of the condition Ready.
const (
	ReasonValid   = "Valid"   // it can be run
	ReasonInvalid = "Invalid" // the message names the field
	ReasonHidden  = "Hidden"  // an agent file of the server has its name
)

// AgentList is a list of agents.
//
// +kubebuilder:object:root=true
type AgentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Agent `json:"items"`
}
