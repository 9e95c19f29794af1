package observe

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tallyman-dev/tallyman"
)

// failedCreate is the newest event of a Job that could not make its Pod, nil
// when there is none.
func (s Scene) failedCreate() *corev1.Event {
	var newest *corev1.Event
	for _, e := range s.Events {
		if e.Reason == "FailedCreate" && (newest == nil || LastSeen(e).After(LastSeen(newest))) {
			newest = e
		}
	}
	return newest
}

// notCreated is what keeps a Job from making its Pod, in the words of that
// event.
func (s Scene) notCreated() *tallyman.Blocked {
	e := s.failedCreate()
	if e == nil {
		return nil
	}
	return Refused(strings.TrimPrefix(e.Message, "Error creating: "))
}

// missingAccount finds the ServiceAccount that a refusal names.
var missingAccount = regexp.MustCompile(`serviceaccount "[^"]+" not found`)

// Denied are the words with which a webhook refuses, whatever its code.
const Denied = "denied the request"

// noRight finds the words for a right that somebody lacks: it may be given.
var noRight = regexp.MustCompile(`User "[^"]*" cannot [a-z]+ resource`)

// Refused judges the words with which an API server has refused a Pod, or
// the Job around it.
func Refused(words string) *tallyman.Blocked {
	switch {
	case strings.Contains(words, "exceeded quota"):
		return wait(tallyman.Quota, tallyman.Unschedulable, words)
	case noRight.MatchString(words):
		return wait("", tallyman.BackendError, words)
	case strings.Contains(words, "because it is being terminated"): // the namespace
		return hopeless(tallyman.ConfigMissing, words)
	case missingAccount.MatchString(words):
		return hopeless(tallyman.ConfigMissing, words)
	case strings.Contains(words, "is forbidden"), strings.Contains(words, "is invalid"), strings.Contains(words, Denied):
		return hopeless(tallyman.InvalidSpec, words)
	default:
		return wait("", tallyman.BackendError, words)
	}
}

func wait(gate tallyman.WaitReason, reason tallyman.Reason, words string) *tallyman.Blocked {
	return &tallyman.Blocked{Cause: tallyman.Cause{Reason: reason, Message: strings.TrimSpace(words)}, Wait: gate}
}

func hopeless(reason tallyman.Reason, words string) *tallyman.Blocked {
	return &tallyman.Blocked{Cause: tallyman.Cause{Reason: reason, Message: strings.TrimSpace(words)}, Hopeless: true}
}

// blocked is what keeps a Pod's agent from starting; nil when nothing does.
func (s Scene) blocked() *tallyman.Blocked {
	if c := Condition(s.Pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		if what := s.neverFits(); what != "" {
			return hopeless(tallyman.Unschedulable, what+" ("+c.Message+")")
		}
		return wait("", tallyman.Unschedulable, c.Message)
	}
	for _, list := range [][]corev1.ContainerStatus{s.Pod.Status.InitContainerStatuses, s.Pod.Status.ContainerStatuses} {
		for _, c := range list {
			if c.State.Waiting == nil {
				continue
			}
			if b := s.waiting(c); b != nil {
				return b
			}
		}
	}
	return s.notMounted()
}

func Condition(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i, c := range p.Status.Conditions {
		if c.Type == kind {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// neverFits says what the Pod asks for that no node has.
func (s Scene) neverFits() string {
	if s.Biggest == nil {
		return ""
	}
	asked := requested(s.Pod.Spec)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		want, most := asked[name], s.Biggest[name]
		if want.Cmp(most) > 0 {
			return fmt.Sprintf("it asks for %s of %s, and the largest node has %s", &want, name, &most)
		}
	}
	return ""
}

// requested is what a Pod asks for: its containers and sidecars together, or
// its largest init container.
func requested(p corev1.PodSpec) corev1.ResourceList {
	sum, largest := corev1.ResourceList{}, corev1.ResourceList{}
	add := func(r corev1.ResourceList) {
		for name, q := range r {
			have := sum[name]
			have.Add(q)
			sum[name] = have
		}
	}
	for _, c := range p.Containers {
		add(c.Resources.Requests)
	}
	for _, c := range p.InitContainers {
		if c.RestartPolicy != nil {
			add(c.Resources.Requests)
			continue
		}
		for name, q := range c.Resources.Requests {
			if have := largest[name]; q.Cmp(have) > 0 {
				largest[name] = q
			}
		}
	}
	for name, q := range largest {
		if have := sum[name]; q.Cmp(have) > 0 {
			sum[name] = q
		}
	}
	return sum
}

// named finds the Secret, ConfigMap or key that words name as missing.
var named = regexp.MustCompile(`(?i)(secret|configmap) "[^"]+" not found|couldn't find key .+ in (secret|configmap)|references non-existent (secret|config) key|object "[^"]+"/"[^"]+" not registered`)

// cannotHeal are words about images that no patience changes.
var cannotHeal = []string{"manifest unknown", ": not found", "no match for platform", "invalid reference format"}

// waiting judges why a container does not run.
func (s Scene) waiting(c corev1.ContainerStatus) *tallyman.Blocked {
	w := c.State.Waiting
	words := strings.TrimSpace(w.Reason + ": " + w.Message)
	about := fmt.Sprintf("container %s: %s", c.Name, words)
	switch w.Reason {
	case "InvalidImageName", "ErrImageNeverPull":
		return hopeless(tallyman.ImagePullFailed, about)
	case "ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed":
		return s.pulling(fmt.Sprintf("container %s: %s", c.Name, s.pullWords(w.Message)))
	case "CreateContainerConfigError":
		if named.MatchString(w.Message) {
			return hopeless(tallyman.ConfigMissing, about)
		}
		return hopeless(tallyman.InvalidSpec, about)
	case "CreateContainerError", "RunContainerError", "PreCreateHookError", "PostStartHookError", "PreStartHookError":
		return s.patient(tallyman.InvalidSpec, about)
	case "CrashLoopBackOff": // a sidecar that the agent is to come after
		if t := c.LastTerminationState.Terminated; t != nil {
			about += " (" + causeOf("it", t, tallyman.SetupFailed).Message + ")"
		}
		return wait("", tallyman.SetupFailed, about)
	default: // PodInitializing, ContainerCreating: it is on its way
		return s.failedStart(c.Name)
	}
}

// failedStart is what the newest event about a container says of its start. A
// kubelet tells its events at once, and the state of a container that it could
// not make some ten seconds later.
func (s Scene) failedStart(container string) *tallyman.Blocked {
	var newest *corev1.Event
	for _, e := range s.Events {
		about := e.Reason == "Failed" && strings.HasSuffix(e.InvolvedObject.FieldPath, "{"+container+"}")
		if about && (newest == nil || !LastSeen(e).Before(LastSeen(newest))) {
			newest = e
		}
	}
	if newest == nil {
		return nil
	}
	words := strings.TrimPrefix(newest.Message, "Error: ")
	about := fmt.Sprintf("container %s: %s", container, words)
	switch {
	case named.MatchString(words):
		return hopeless(tallyman.ConfigMissing, about)
	case words == "ErrImageNeverPull", words == "InvalidImageName":
		return hopeless(tallyman.ImagePullFailed, about+s.imageWords(container))
	case strings.Contains(words, "ull image"), words == "ErrImagePull", words == "ImagePullBackOff":
		return s.pulling(fmt.Sprintf("container %s: %s", container, s.pullWords(words)))
	}
	return nil
}

// imageWords are those of the event that says what is wrong with a container's
// image, where there is one.
func (s Scene) imageWords(container string) string {
	for _, e := range s.Events {
		if (e.Reason == "InspectFailed" || e.Reason == "ErrImageNeverPull") && strings.HasSuffix(e.InvolvedObject.FieldPath, "{"+container+"}") {
			return ": " + e.Message
		}
	}
	return ""
}

// pulling judges an image that is not there yet.
func (s Scene) pulling(about string) *tallyman.Blocked {
	for _, never := range cannotHeal {
		if strings.Contains(about, never) {
			return hopeless(tallyman.ImagePullFailed, about)
		}
	}
	return s.patient(tallyman.ImagePullFailed, about)
}

// pullWords are the words about a pull. While the kubelet backs off the state
// has none of them; the event does.
func (s Scene) pullWords(message string) string {
	var newest time.Time
	words := message
	for _, e := range s.Events {
		if e.Reason == "Failed" && strings.Contains(e.Message, "ull image") && !LastSeen(e).Before(newest) {
			newest, words = LastSeen(e), e.Message
		}
	}
	return strings.TrimSpace(words)
}

// patient makes what may heal hopeless after the patience with an image.
func (s Scene) patient(reason tallyman.Reason, words string) *tallyman.Blocked {
	b := wait("", reason, words)
	since := s.Pod.CreationTimestamp.Time
	if c := Condition(s.Pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionTrue {
		since = c.LastTransitionTime.Time
	}
	b.Hopeless = s.Now.Sub(since) >= s.Patience
	return b
}

// notMounted is about volumes that cannot be mounted. One whose Secret or
// ConfigMap is missing counts after the patience with an image: it may come.
func (s Scene) notMounted() *tallyman.Blocked {
	for _, e := range s.Events {
		switch {
		case e.Reason == "FailedMount" && named.MatchString(e.Message):
			return s.patient(tallyman.ConfigMissing, e.Message)
		case e.Reason == "FailedMount", e.Reason == "FailedAttachVolume", e.Reason == "FailedCreatePodSandBox":
			return wait("", tallyman.StartTimeout, e.Reason+": "+e.Message)
		}
	}
	return nil
}
