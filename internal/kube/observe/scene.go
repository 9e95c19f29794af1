package observe

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/kube/job"
)

// Scene is everything that a cluster says about an attempt.
type Scene struct {
	Job     *batchv1.Job        // nil: there is none
	Pod     *corev1.Pod         // nil: there is none
	Events  []*corev1.Event     // warnings about either
	Made    bool                // the object was made once
	Bare    bool                // the agent is the container's own process
	Biggest corev1.ResourceList // what the largest node offers of each resource, nil when that is not known

	Silence  *Silence // nil: its runner is heard of
	Now      time.Time
	Patience time.Duration // with an image, and with what a Pod mounts
}

// None reports whether nothing of an attempt is there.
func (s Scene) None() bool { return s.Job == nil && s.Pod == nil }

// With adds the objects of an attempt: of those that carry its labels the one
// that was made for it and its Pod, once that is recorded. Others are copies
// that somebody has made. Of several Pods the youngest counts.
func (s Scene) With(object string, jobs []*batchv1.Job, pods []*corev1.Pod) Scene {
	for _, j := range jobs {
		if object == "" || Object(j) == object {
			s.Job = j
		}
	}
	for _, p := range pods {
		if object != "" && ObjectOf(p) != object {
			continue
		}
		if s.Pod == nil || s.Pod.CreationTimestamp.Before(&p.CreationTimestamp) {
			s.Pod = p
		}
	}
	if s.Pod != nil {
		s.Bare = s.Pod.Labels[job.LabelRunner] == string(tallyman.RunnerBare)
	}
	return s
}

// Object is how what was made for an attempt is recorded: NAMESPACE/UID.
func Object(o client.Object) string { return o.GetNamespace() + "/" + string(o.GetUID()) }

// ObjectOf is the object that a Pod came from: its Job, or itself.
func ObjectOf(p *corev1.Pod) string {
	if owner := metav1.GetControllerOf(p); owner != nil {
		if owner.Kind == "Job" && owner.APIVersion == batchv1.SchemeGroupVersion.String() {
			return p.Namespace + "/" + string(owner.UID)
		}
		return "" // somebody else's
	}
	return Object(p)
}

// Objects are those that are there.
func (s Scene) Objects() []client.Object {
	var all []client.Object
	if s.Job != nil {
		all = append(all, s.Job)
	}
	if s.Pod != nil {
		all = append(all, s.Pod)
	}
	return all
}

// Unrecorded reports whether a server has made an attempt's object and ended
// before it was recorded: nobody would be heard for it. Starting it again
// adopts what is there.
func (s Scene) Unrecorded(a tallyman.Attempt) bool {
	return a.Object == "" && a.Journal == "" && a.EndedAt == nil && (s.Job != nil || s.Pod != nil)
}

// JobEnded is the condition that a Job has ended with, nil while it lasts.
func JobEnded(j *batchv1.Job) *batchv1.JobCondition {
	for i, c := range j.Status.Conditions {
		if (c.Type == batchv1.JobFailed || c.Type == batchv1.JobComplete) && c.Status == corev1.ConditionTrue {
			return &j.Status.Conditions[i]
		}
	}
	return nil
}

// HasEnded reports whether a Pod's agent is not at work any more.
func HasEnded(pod *corev1.Pod) bool {
	agent := Agent(pod)
	return agent != nil && agent.State.Terminated != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Agent is the status of the agent's container, nil before there is one.
func Agent(p *corev1.Pod) *corev1.ContainerStatus {
	for i, c := range p.Status.ContainerStatuses {
		if c.Name == tallyman.PodAgent {
			return &p.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// StartOf is when a Pod's agent began, zero before that, and for one whose
// container could not be started.
func StartOf(pod *corev1.Pod) time.Time {
	agent := Agent(pod)
	switch {
	case agent == nil:
	case agent.State.Running != nil:
		return agent.State.Running.StartedAt.Time
	case agent.State.Terminated != nil && TimeOf(agent.State.Terminated.StartedAt.Time) != nil:
		return agent.State.Terminated.StartedAt.Time
	}
	return time.Time{}
}

// BegunAt is when a Pod's agent began, by the cluster's clock as well as can be
// known: not before its Pod had a node, however far behind that one's clock is.
func BegunAt(pod *corev1.Pod) time.Time {
	begun := StartOf(pod)
	if c := Condition(pod, corev1.PodScheduled); c != nil && c.LastTransitionTime.After(begun) {
		return c.LastTransitionTime.Time
	}
	return begun
}

// EndOf is when a Pod has ended, zero before that: also one whose containers
// never began.
func EndOf(p *corev1.Pod) time.Time {
	agent := Agent(p)
	switch {
	case agent != nil && agent.State.Terminated != nil:
		return agent.State.Terminated.FinishedAt.Time
	case p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed:
		return time.Time{}
	}
	at := p.CreationTimestamp.Time
	for _, c := range p.Status.Conditions {
		if c.LastTransitionTime.After(at) {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}
