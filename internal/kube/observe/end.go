package observe

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/kube/job"
)

// end fills in how an attempt ended whose agent's container has. A runner's
// last word is taken as such; why there is none, or with a bare image how it
// went, is the cause: disruptions first, then containers.
func (s Scene) end(o *tallyman.Observation, agent *corev1.ContainerStatus) {
	if agent != nil && agent.State.Terminated != nil && !s.Bare {
		w, ok := tallyman.ParseLastWord(agent.State.Terminated.Message)
		switch {
		case ok && w.Cursor > 0:
			o.Final, o.FinalCursor, o.FinalAt = &w.Outcome, w.Cursor, w.At
		case ok && w.Outcome.Reason.Valid(): // it never got to its journal
			o.Cause = &tallyman.Cause{Reason: w.Outcome.Reason, Message: w.Outcome.Message}
			return
		}
	}
	for _, judge := range []func(*corev1.ContainerStatus) *tallyman.Cause{s.disrupted, s.initFailed, s.overdue, s.agentEnded, s.deleted} {
		if o.Cause = judge(agent); o.Cause != nil {
			return
		}
	}
	o.Cause = &tallyman.Cause{Reason: tallyman.RunnerLost, Message: strings.TrimSpace(fmt.Sprintf("the Pod is %s and does not say how the agent ended %s %s", s.Pod.Status.Phase, s.Pod.Status.Reason, s.Pod.Status.Message))}
}

// disrupted is an end that the cluster has brought about.
func (s Scene) disrupted(*corev1.ContainerStatus) *tallyman.Cause {
	st := s.Pod.Status
	say := func(r tallyman.Reason, words string) *tallyman.Cause {
		return &tallyman.Cause{Reason: r, Message: strings.TrimSpace(words)}
	}
	if st.Reason == "DeadlineExceeded" {
		return say(tallyman.DeadlineExceeded, "the cluster ended the Pod: "+st.Message)
	}
	if c := Condition(s.Pod, corev1.DisruptionTarget); c != nil && c.Status == corev1.ConditionTrue {
		words := c.Message
		if st.Message != "" && !strings.Contains(words, st.Message) {
			words += " " + st.Message
		}
		switch c.Reason {
		case "PreemptionByScheduler":
			return say(tallyman.Preempted, words)
		case "DeletionByTaintManager", "DeletionByPodGC":
			return say(tallyman.NodeLost, words)
		default: // EvictionByEvictionAPI, TerminationByKubelet, and whatever comes
			if st.Reason == "Preempting" {
				return say(tallyman.Preempted, words)
			}
			return say(tallyman.Evicted, words)
		}
	}
	switch st.Reason {
	case "Evicted", "Terminated", "NodeShutdown":
		return say(tallyman.Evicted, st.Reason+": "+st.Message)
	case "Preempting":
		return say(tallyman.Preempted, st.Message)
	case "NodeLost":
		return say(tallyman.NodeLost, st.Message)
	case "NodeAffinity", "OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfephemeral-storage", "UnexpectedAdmissionError", "TopologyAffinityError":
		return say(tallyman.BackendError, "the node refused the Pod: "+st.Reason+": "+st.Message)
	}
	return nil
}

// initFailed is an end before the agent's container.
func (s Scene) initFailed(agent *corev1.ContainerStatus) *tallyman.Cause {
	if agent != nil && agent.State.Terminated != nil && !agent.State.Terminated.StartedAt.IsZero() {
		return nil
	}
	for _, c := range s.Pod.Status.InitContainerStatuses {
		t := c.State.Terminated
		if t == nil || t.Reason != "OOMKilled" && (t.ExitCode == 0 || !s.byItself(t)) {
			continue
		}
		return causeOf("init container "+c.Name, t, tallyman.SetupFailed)
	}
	return nil
}

// overdue is the end of an agent without a runner at its deadline: whoever saw
// that it had had its time has deleted the Pod.
func (s Scene) overdue(agent *corev1.ContainerStatus) *tallyman.Cause {
	limit := job.Deadline(s.Pod)
	if !s.Bare || limit == 0 || agent == nil || agent.State.Terminated == nil || s.byItself(agent.State.Terminated) {
		return nil
	}
	t := agent.State.Terminated
	if t.StartedAt.IsZero() || t.FinishedAt.Sub(t.StartedAt.Time) < limit.Truncate(time.Second) {
		return nil // a cluster tells whole seconds
	}
	c := &tallyman.Cause{Reason: tallyman.DeadlineExceeded, ExitCode: new(int(t.ExitCode))}
	c.Message = fmt.Sprintf("the agent was at work for longer than its deadline of %s", limit)
	return c
}

// apart is how far a node's clock, by which a container ends, may be behind the
// API server's, by which its Pod is deleted.
const apart = 5 * time.Second

// byItself reports whether a container had ended before its Pod was deleted.
// Where nobody knows it had not: within some seconds, once the kubelet has
// deleted the Pod for good, which changes the time, and where it has not found
// the container any more.
func (s Scene) byItself(t *corev1.ContainerStateTerminated) bool {
	if s.Pod.DeletionTimestamp == nil {
		return true
	}
	grace := s.Pod.DeletionGracePeriodSeconds
	if grace == nil || *grace == 0 || t.FinishedAt.IsZero() {
		return false
	}
	asked := s.Pod.DeletionTimestamp.Add(-time.Duration(*grace) * time.Second)
	return t.FinishedAt.Add(apart).Before(asked)
}

// agentEnded is what the agent's container says of its end.
func (s Scene) agentEnded(agent *corev1.ContainerStatus) *tallyman.Cause {
	if agent == nil || agent.State.Terminated == nil {
		return nil
	}
	t := agent.State.Terminated
	switch own := s.byItself(t); {
	case t.Reason == "OOMKilled", t.ExitCode != 0 && t.Reason != "ContainerStatusUnknown" && own:
		lost := tallyman.RunnerLost
		if s.Bare {
			lost = tallyman.AgentError
		}
		return causeOf("container "+agent.Name, t, lost)
	case s.Bare && t.ExitCode == 0 && t.Reason == "Completed" && own:
		return &tallyman.Cause{Reason: tallyman.Completed, ExitCode: new(0)}
	default:
		return nil
	}
}

// deleted is an end by somebody who has deleted the Pod.
func (s Scene) deleted(agent *corev1.ContainerStatus) *tallyman.Cause {
	if s.Pod.DeletionTimestamp == nil {
		return nil
	}
	cause := &tallyman.Cause{Reason: tallyman.PodDeleted, Message: "the Pod was deleted while the agent was at work"}
	if agent == nil || agent.State.Terminated == nil || agent.State.Terminated.StartedAt.IsZero() {
		cause.Message = "the Pod was deleted before the agent was at work"
	}
	return cause
}

// causeOf judges a terminated container; other is the reason where the
// cluster names none that we know.
func causeOf(what string, t *corev1.ContainerStateTerminated, other tallyman.Reason) *tallyman.Cause {
	c := &tallyman.Cause{Reason: other, ExitCode: new(int(t.ExitCode))}
	words := strings.TrimSpace(t.Message)
	switch {
	case t.Reason == "OOMKilled":
		c.Reason = tallyman.OOMKilled
		c.Message = fmt.Sprintf("%s was killed for memory (OOMKilled, exit code %d)", what, t.ExitCode)
		return c
	case t.Reason == "StartError", t.Reason == "ContainerCannotRun", strings.Contains(words, "exec format error"):
		c.Reason = tallyman.InvalidSpec
		c.Message = fmt.Sprintf("%s cannot be started: %s", what, words)
		return c
	}
	c.Message = fmt.Sprintf("%s ended with exit code %d", what, t.ExitCode)
	if t.ExitCode > 128 && t.ExitCode < 160 {
		c.Signal = fmt.Sprintf("signal %d", t.ExitCode-128)
		c.Message += " (" + c.Signal + ")"
	}
	if words != "" {
		c.Message += ": " + words
	}
	return c
}

// execFormat are the words of a runtime that cannot execute a program. They
// are all that the container has printed.
var execFormat = regexp.MustCompile(`^(exec|standard_init_linux\.go:\d+: exec user process caused:?) [^\n]*exec format error"?$`)

// NotExecutable is the cause of an end, and another where the container's only
// words are that its program is built for another machine: the cluster's
// status has no more than an exit code.
func NotExecutable(c *tallyman.Cause, e *tallyman.Evidence) *tallyman.Cause {
	if c == nil || c.Reason != tallyman.AgentError && c.Reason != tallyman.RunnerLost && c.Reason != tallyman.SetupFailed {
		return c
	}
	for _, k := range e.Containers {
		words := strings.TrimSpace(k.Output)
		if k.Kind == tallyman.SidecarContainer || k.ExitCode == nil || *k.ExitCode == 0 || !execFormat.MatchString(words) {
			continue
		}
		what := "container " + k.Name
		if k.Kind == tallyman.InitContainer {
			what = "init " + what
		}
		return &tallyman.Cause{
			Reason: tallyman.InvalidSpec, ExitCode: k.ExitCode,
			Message: fmt.Sprintf("%s cannot be started: %s; its image is built for another machine than node %s", what, words, e.Node),
		}
	}
	return c
}
