package observe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tallyman-dev/tallyman"
)

// Look turns a scene into neutral facts. It is pure.
func Look(s Scene) tallyman.Observation {
	var o tallyman.Observation
	o.Evidence = s.evidence()
	if s.Pod == nil {
		s.withoutPod(&o)
		return o
	}
	o.Process = string(s.Pod.UID)
	if s.Bare {
		o.StartedAt = TimeOf(StartOf(s.Pod))
	}
	agent := Agent(s.Pod)
	// A Pod without a node that is being deleted gets none any more.
	never := s.Pod.Spec.NodeName == "" && s.Pod.DeletionTimestamp != nil
	switch {
	case never, HasEnded(s.Pod):
		o.Gone = true
		s.end(&o, agent)
	case s.Lost() != nil:
		o.Gone, o.Cause = true, s.Lost()
	default:
		o.Running, o.Deaf = true, s.Bare
		if agent == nil || agent.State.Running == nil {
			o.Deaf = true
			o.Blocked = s.blocked()
		}
	}
	return o
}

// withoutPod is about an attempt whose Pod is not there: not yet, or not any
// more.
func (s Scene) withoutPod(o *tallyman.Observation) {
	switch {
	case s.Job == nil && !s.Made:
		return // never started
	case s.Job == nil:
		o.Gone = true
		o.Cause = &tallyman.Cause{Reason: tallyman.PodDeleted, Message: "its object in the cluster was deleted; how the agent ended is not known"}
	case JobEnded(s.Job) != nil:
		o.Gone = true
		o.Cause = causeOfJob(JobEnded(s.Job))
	default:
		o.Running, o.Deaf = true, true
		o.Blocked = s.notCreated()
	}
}

// causeOfJob is the end of a Job whose Pod nobody has seen.
func causeOfJob(c *batchv1.JobCondition) *tallyman.Cause {
	if c.Reason == batchv1.JobReasonDeadlineExceeded {
		return &tallyman.Cause{Reason: tallyman.DeadlineExceeded, Message: c.Message}
	}
	return &tallyman.Cause{Reason: tallyman.PodDeleted, Message: fmt.Sprintf("its Pod was deleted; how the agent ended is not known (%s: %s)", c.Reason, c.Message)}
}

// evidence collects what is kept of the scene.
func (s Scene) evidence() *tallyman.Evidence {
	e := &tallyman.Evidence{}
	if p := s.Pod; p != nil {
		e.Namespace, e.Pod, e.Node = p.Namespace, p.Name, p.Spec.NodeName
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
				e.ScheduledAt = new(c.LastTransitionTime.UTC())
			}
		}
		sidecar := map[string]bool{}
		for _, c := range p.Spec.InitContainers {
			sidecar[c.Name] = c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		}
		for _, c := range p.Status.InitContainerStatuses {
			kind := tallyman.InitContainer
			if sidecar[c.Name] {
				kind = tallyman.SidecarContainer
			}
			e.Containers = append(e.Containers, stateOf(c, kind))
		}
		for _, c := range p.Status.ContainerStatuses {
			kind := tallyman.SidecarContainer
			if c.Name == tallyman.PodAgent {
				kind = tallyman.AgentContainer
			}
			e.Containers = append(e.Containers, stateOf(c, kind))
		}
	}
	for _, ev := range s.Events {
		if ev.Type != corev1.EventTypeWarning {
			continue
		}
		e.Events = append(e.Events, tallyman.ClusterEvent{
			At: LastSeen(ev).UTC(), Object: ev.InvolvedObject.Kind + "/" + ev.InvolvedObject.Name,
			Reason: ev.Reason, Message: strings.TrimSpace(ev.Message), Count: int(max(ev.Count, 1)),
		})
	}
	slices.SortStableFunc(e.Events, func(a, b tallyman.ClusterEvent) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Reason, b.Reason), strings.Compare(a.Message, b.Message))
	})
	return e
}

func LastSeen(e *corev1.Event) time.Time {
	for _, t := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.FirstTimestamp.Time} {
		if !t.IsZero() {
			return t
		}
	}
	return e.CreationTimestamp.Time
}

func stateOf(c corev1.ContainerStatus, kind string) tallyman.ContainerState {
	k := tallyman.ContainerState{Name: c.Name, Kind: kind, State: "waiting", Image: c.Image, Digest: digestOf(c.ImageID)}
	switch st := c.State; {
	case st.Terminated != nil:
		k.State, k.Reason, k.Signal = "terminated", st.Terminated.Reason, int(st.Terminated.Signal)
		k.Message = strings.TrimSpace(st.Terminated.Message)
		k.ExitCode = new(int(st.Terminated.ExitCode))
		k.StartedAt, k.EndedAt = TimeOf(st.Terminated.StartedAt.Time), TimeOf(st.Terminated.FinishedAt.Time)
	case st.Running != nil:
		k.State, k.StartedAt = "running", TimeOf(st.Running.StartedAt.Time)
	case st.Waiting != nil:
		k.Reason, k.Message = st.Waiting.Reason, strings.TrimSpace(st.Waiting.Message)
	}
	if last := c.LastTerminationState.Terminated; last != nil && last.Reason == "OOMKilled" {
		k.Reason, k.Message = last.Reason, fmt.Sprintf("it was killed for memory and started again, %d times", c.RestartCount)
	}
	return k
}

// digestOf is the digest in an image id, "" where the runtime gives none.
func digestOf(id string) string {
	if i := strings.LastIndex(id, "sha256:"); i >= 0 {
		return id[i:]
	}
	return ""
}

func TimeOf(t time.Time) *time.Time {
	if t.IsZero() || t.Unix() == 0 {
		return nil
	}
	return new(t.UTC())
}
