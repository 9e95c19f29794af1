package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/kube/job"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// scene is a Job with a Pod that was scheduled a minute before noon.
func scene(change ...func(*Scene)) Scene {
	ago := metav1.NewTime(noon.Add(-time.Minute))
	s := Scene{
		Job: &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "run", UID: "job"}},
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "run-x", UID: "pod", CreationTimestamp: ago},
			Spec: corev1.PodSpec{
				NodeName:       "node",
				InitContainers: []corev1.Container{{Name: "tallyman-init"}, {Name: "proxy", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}},
				Containers:     []corev1.Container{{Name: "agent"}, {Name: "db"}},
			},
			Status: corev1.PodStatus{
				Phase:      corev1.PodPending,
				Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: ago}},
			},
		},
		Made: true, Now: noon, Patience: 3 * time.Minute,
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

func agentIs(state corev1.ContainerState) func(*Scene) {
	return func(s *Scene) {
		s.Pod.Status.ContainerStatuses = append(s.Pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: "agent", State: state, Image: "a:1", ImageID: "a@sha256:abc"})
	}
}

func running(s *Scene) {
	s.Pod.Status.Phase = corev1.PodRunning
	agentIs(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}})(s)
}

func waits(reason, message string) func(*Scene) {
	return agentIs(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
}

func ended(code int32, reason, message string) func(*Scene) {
	return func(s *Scene) {
		s.Pod.Status.Phase = corev1.PodFailed
		agentIs(terminated(code, reason, message))(s)
	}
}

func terminated(code int32, reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message, StartedAt: metav1.NewTime(noon.Add(-30 * time.Second)), FinishedAt: metav1.NewTime(noon),
	}}
}

func initEnded(name string, code int32, reason string) func(*Scene) {
	return func(s *Scene) {
		s.Pod.Status.Phase = corev1.PodFailed
		s.Pod.Status.InitContainerStatuses = append(s.Pod.Status.InitContainerStatuses, corev1.ContainerStatus{Name: name, State: terminated(code, reason, "")})
		waits("PodInitializing", "")(s)
	}
}

func disrupted(reason, message string) func(*Scene) {
	return func(s *Scene) {
		s.Pod.Status.Conditions = append(s.Pod.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message})
	}
}

func podSays(reason, message string) func(*Scene) {
	return func(s *Scene) { s.Pod.Status.Reason, s.Pod.Status.Message = reason, message }
}

func warned(reason, message string) func(*Scene) {
	return func(s *Scene) {
		s.Events = append(s.Events, &corev1.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message, LastTimestamp: metav1.NewTime(noon.Add(time.Duration(len(s.Events)) * time.Second))})
	}
}

// failedToStart is a kubelet's event about the agent's container.
func failedToStart(message string) func(*Scene) {
	return func(s *Scene) {
		warned("Failed", message)(s)
		s.Events[len(s.Events)-1].InvolvedObject.FieldPath = "spec.containers{agent}"
	}
}

func noPod(s *Scene) { s.Pod = nil }

func later(d time.Duration) func(*Scene) { return func(s *Scene) { s.Now = noon.Add(d) } }

func isDeleted(s *Scene) { s.Pod.DeletionTimestamp = new(metav1.NewTime(noon)) }

// look looks at a scene as it is, and as the informers keep it, which must be
// the same.
func look(t *testing.T, s Scene) tallyman.Observation {
	t.Helper()
	o := Look(s)
	if s.Job != nil {
		s.Job = made(t, s.Job.DeepCopy())
	}
	if s.Pod != nil {
		s.Pod = made(t, s.Pod.DeepCopy())
	}
	if diff := cmp.Diff(o, Look(s)); diff != "" {
		t.Errorf("what the informers keep is not enough:\n%s", diff)
	}
	return o
}

// made is an object as the informers keep it.
func made[T any](t *testing.T, o T) T {
	t.Helper()
	l, err := Lean(o)
	if err != nil {
		t.Fatal(err)
	}
	return l.(T)
}

// deletedAt is a deletion that was asked for so many seconds after noon, with
// a grace.
func deletedAt(second int, grace int64) func(*Scene) {
	return func(s *Scene) {
		s.Pod.DeletionTimestamp = new(metav1.NewTime(noon.Add(time.Duration(second)*time.Second + time.Duration(grace)*time.Second)))
		s.Pod.DeletionGracePeriodSeconds = new(grace)
	}
}

func limited(deadline string) func(*Scene) {
	return func(s *Scene) { s.Pod.Annotations = map[string]string{job.AnnotationDeadline: deadline} }
}

func bare(s *Scene) { s.Bare = true }

func unschedulable(message string) func(*Scene) {
	return func(s *Scene) {
		s.Pod.Spec.NodeName = ""
		s.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: message}}
	}
}

func asksFor(memory string) func(*Scene) {
	return func(s *Scene) {
		s.Pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
		s.Biggest = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourceCPU: resource.MustParse("4")}
	}
}

// What keeps an agent from starting, and whether it may still change.
func TestLookAtWhatBlocks(t *testing.T) {
	for name, c := range map[string]struct {
		scene  Scene
		reason tallyman.Reason // "": nothing blocks
		gate   tallyman.WaitReason
		never  bool
		says   string
	}{
		"on its way":                 {scene: scene(waits("ContainerCreating", ""))},
		"no status yet":              {scene: scene()},
		"no Pod yet":                 {scene: scene(noPod)},
		"a full quota":               {scene: scene(noPod, warned("FailedCreate", `Error creating: pods "run-x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1`)), reason: tallyman.Unschedulable, gate: tallyman.Quota, says: "exceeded quota: q"},
		"Pod security":               {scene: scene(noPod, warned("FailedCreate", `Error creating: pods "run-x" is forbidden: violates PodSecurity "restricted:latest": host namespaces`)), reason: tallyman.InvalidSpec, never: true, says: `violates PodSecurity "restricted:latest"`},
		"a LimitRange":               {scene: scene(noPod, warned("FailedCreate", `Error creating: pods "run-x" is forbidden: maximum memory usage per Container is 1Gi, but limit is 4Gi`)), reason: tallyman.InvalidSpec, never: true, says: "maximum memory usage"},
		"a webhook":                  {scene: scene(noPod, warned("FailedCreate", `Error creating: admission webhook "w.example" denied the request: no`)), reason: tallyman.InvalidSpec, never: true, says: "denied the request: no"},
		"no account":                 {scene: scene(noPod, warned("FailedCreate", `Error creating: pods "run-x" is forbidden: error looking up service account a/b: serviceaccount "b" not found`)), reason: tallyman.ConfigMissing, never: true, says: `serviceaccount "b" not found`},
		"a trouble that may pass":    {scene: scene(noPod, warned("FailedCreate", "Error creating: etcdserver: request timed out")), reason: tallyman.BackendError, says: "request timed out"},
		"the newest word counts":     {scene: scene(noPod, warned("FailedCreate", "Error creating: etcdserver: request timed out"), warned("FailedCreate", `Error creating: pods "x" is forbidden: exceeded quota: q`)), reason: tallyman.Unschedulable, gate: tallyman.Quota, says: "exceeded quota"},
		"no node just now":           {scene: scene(unschedulable("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."), asksFor("1Gi")), reason: tallyman.Unschedulable, says: "didn't match"},
		"more than any node has":     {scene: scene(unschedulable("0/1 nodes are available: 1 Insufficient memory."), asksFor("9Gi")), reason: tallyman.Unschedulable, never: true, says: "it asks for 9Gi of memory, and the largest node has 8Gi"},
		"nodes that are not known":   {scene: scene(unschedulable("0/1 nodes are available: 1 Insufficient memory."), asksFor("9Gi"), func(s *Scene) { s.Biggest = nil }), reason: tallyman.Unschedulable, says: "Insufficient memory"},
		"an image's name":            {scene: scene(waits("InvalidImageName", "couldn't parse")), reason: tallyman.ImagePullFailed, never: true, says: "container agent: InvalidImageName: couldn't parse"},
		"an image that is not there": {scene: scene(waits("ErrImageNeverPull", "Container image is not present with pull policy of Never")), reason: tallyman.ImagePullFailed, never: true, says: "ErrImageNeverPull"},
		"a registry that is away":    {scene: scene(waits("ErrImagePull", "dial tcp: connection refused")), reason: tallyman.ImagePullFailed, says: "connection refused"},
		"and stays away":             {scene: scene(waits("ErrImagePull", "dial tcp: connection refused"), later(3*time.Minute)), reason: tallyman.ImagePullFailed, never: true, says: "connection refused"},
		"an unknown image":           {scene: scene(waits("ErrImagePull", `failed to resolve reference "x:1": x:1: not found`)), reason: tallyman.ImagePullFailed, never: true, says: "not found"},
		"another architecture":       {scene: scene(waits("ErrImagePull", "no match for platform in manifest sha256:abc: not found")), reason: tallyman.ImagePullFailed, never: true, says: "no match for platform"},
		"backing off with its event": {scene: scene(waits("ImagePullBackOff", `Back-off pulling image "x:1"`), warned("Failed", `Failed to pull image "x:1": manifest unknown`)), reason: tallyman.ImagePullFailed, never: true, says: "manifest unknown"},
		"a missing Secret":           {scene: scene(waits("CreateContainerConfigError", `secret "s" not found`)), reason: tallyman.ConfigMissing, never: true, says: `secret "s" not found`},
		"its event comes first":      {scene: scene(waits("PodInitializing", ""), failedToStart(`Error: secret "s" not found`)), reason: tallyman.ConfigMissing, never: true, says: `container agent: secret "s" not found`},
		"an image's name, early":     {scene: scene(waits("PodInitializing", ""), failedToStart("Error: InvalidImageName")), reason: tallyman.ImagePullFailed, never: true, says: "InvalidImageName"},
		"and why, early": {scene: scene(waits("PodInitializing", ""), failedToStart("Error: InvalidImageName"), func(s *Scene) {
			e := s.Events[len(s.Events)-1].DeepCopy()
			e.Reason, e.Message = "InspectFailed", "repository name (UPPER) must be lowercase"
			s.Events = append(s.Events, e)
		}), reason: tallyman.ImagePullFailed, never: true, says: "InvalidImageName: repository name (UPPER) must be lowercase"},
		"never pulled, early":      {scene: scene(waits("ContainerCreating", ""), failedToStart("Error: ErrImageNeverPull")), reason: tallyman.ImagePullFailed, never: true, says: "ErrImageNeverPull"},
		"a pull that fails, early": {scene: scene(waits("PodInitializing", ""), failedToStart(`Failed to pull image "x:1": connection refused`)), reason: tallyman.ImagePullFailed, says: "connection refused"},
		"with what comes of it":    {scene: scene(waits("PodInitializing", ""), failedToStart(`Failed to pull image "x:1": connection refused`), failedToStart("Error: ErrImagePull")), reason: tallyman.ImagePullFailed, says: `container agent: Failed to pull image "x:1": connection refused`},
		"and later":                {scene: scene(waits("ContainerCreating", ""), failedToStart(`Failed to pull image "x:1": connection refused`), failedToStart("Error: ImagePullBackOff")), reason: tallyman.ImagePullFailed, says: "connection refused"},
		"another's event":          {scene: scene(waits("PodInitializing", ""), warned("Failed", `Error: secret "s" not found`))},
		"a missing key":            {scene: scene(waits("CreateContainerConfigError", `couldn't find key k in Secret ns/s`)), reason: tallyman.ConfigMissing, never: true, says: "couldn't find key k"},
		"a missing ConfigMap":      {scene: scene(waits("CreateContainerConfigError", `configmap "c" not found`)), reason: tallyman.ConfigMissing, never: true, says: `configmap "c"`},
		"a user's name":            {scene: scene(waits("CreateContainerConfigError", "container has runAsNonRoot and image has non-numeric user (agent), cannot verify user is non-root")), reason: tallyman.InvalidSpec, never: true, says: "non-numeric user"},
		"a volume's Secret":        {scene: scene(waits("ContainerCreating", ""), warned("FailedMount", `MountVolume.SetUp failed for volume "v" : secret "s" not found`)), reason: tallyman.ConfigMissing, says: `secret "s" not found`},
		"which does not come":      {scene: scene(waits("ContainerCreating", ""), warned("FailedMount", `MountVolume.SetUp failed for volume "v" : secret "s" not found`), later(3*time.Minute)), reason: tallyman.ConfigMissing, never: true, says: `secret "s" not found`},
		"a volume's disk":          {scene: scene(waits("ContainerCreating", ""), warned("FailedAttachVolume", "Multi-Attach error")), reason: tallyman.StartTimeout, says: "Multi-Attach error"},
	} {
		t.Run(name, func(t *testing.T) {
			o := look(t, c.scene)
			if !o.Running || !o.Deaf || o.Gone || o.Cause != nil {
				t.Errorf("it is not on its way: %+v", o)
			}
			if c.reason == "" {
				if o.Blocked != nil {
					t.Errorf("it is blocked: %+v", *o.Blocked)
				}
				return
			}
			b := o.Blocked
			if b == nil || b.Reason != c.reason || b.Wait != c.gate || b.Hopeless != c.never || !strings.Contains(b.Message, c.says) {
				t.Errorf("got %+v", b)
			}
		})
	}
}

// How an attempt ended whose runner does not say.
func TestLookAtAnEnd(t *testing.T) {
	word := func(o tallyman.Outcome, cursor uint64) string {
		return string(tallyman.LastWord{Attempt: "01KBCB7TMKFCGE0000000000AB-1", Cursor: cursor, At: noon, Outcome: o}.Encode())
	}
	for name, c := range map[string]struct {
		scene  Scene
		reason tallyman.Reason
		code   int // -1: none
		says   string
	}{
		"killed for memory":             {scene(ended(137, "OOMKilled", "")), tallyman.OOMKilled, 137, "container agent was killed for memory"},
		"a group kill with exit code 0": {scene(ended(0, "OOMKilled", "")), tallyman.OOMKilled, 0, "exit code 0"},
		"an init container's memory":    {scene(initEnded("first", 137, "OOMKilled")), tallyman.OOMKilled, 137, "init container first was killed for memory"},
		"an init container fails":       {scene(initEnded("first", 7, "Error")), tallyman.SetupFailed, 7, "init container first ended with exit code 7"},
		"the runner is killed":          {scene(ended(137, "Error", "")), tallyman.RunnerLost, 137, "signal 9"},
		"the runner fails":              {scene(ended(1, "Error", "panic: x")), tallyman.RunnerLost, 1, "panic: x"},
		"the runner says why it cannot": {scene(ended(1, "Error", word(tallyman.Outcome{Reason: tallyman.ServerUnreachable, Message: "no route"}, 0))), tallyman.ServerUnreachable, -1, "no route"},
		"nothing can be started":        {scene(ended(128, "StartError", `exec: "/x": no such file`)), tallyman.InvalidSpec, 128, "cannot be started"},
		"another architecture's":        {scene(ended(255, "Error", "exec /x: exec format error")), tallyman.InvalidSpec, 255, "exec format error"},
		"evicted by the kubelet":        {scene(ended(137, "Error", ""), podSays("Evicted", "The node was low on resource: memory."), disrupted("TerminationByKubelet", "The node was low on resource: memory.")), tallyman.Evicted, -1, "low on resource"},
		"ephemeral storage":             {scene(podSays("Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi."), func(s *Scene) { s.Pod.Status.Phase = corev1.PodFailed }), tallyman.Evicted, -1, "ephemeral local storage"},
		"evicted by the API":            {scene(ended(143, "Error", ""), disrupted("EvictionByEvictionAPI", "Eviction API: evicting"), isDeleted), tallyman.Evicted, -1, "evicting"},
		"preempted":                     {scene(ended(143, "Error", ""), disrupted("PreemptionByScheduler", "default-scheduler: preempting"), isDeleted), tallyman.Preempted, -1, "preempting"},
		"preempted by the kubelet":      {scene(func(s *Scene) { s.Pod.Status.Phase = corev1.PodFailed }, podSays("Preempting", "Preempted in order to admit critical pod")), tallyman.Preempted, -1, "critical pod"},
		"its node is gone":              {scene(func(s *Scene) { s.Pod.Status.Phase = corev1.PodFailed }, disrupted("DeletionByPodGC", "PodGC: node no longer exists"), isDeleted), tallyman.NodeLost, -1, "no longer exists"},
		"a taint":                       {scene(ended(137, "Error", ""), disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"), isDeleted), tallyman.NodeLost, -1, "NoExecute"},
		"the cluster's deadline":        {scene(ended(143, "Error", ""), podSays("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")), tallyman.DeadlineExceeded, -1, "longer than"},
		"deleted at work":               {scene(ended(143, "Error", ""), isDeleted), tallyman.PodDeleted, -1, "while the agent was at work"},
		"deleted before":                {scene(isDeleted, func(s *Scene) { s.Pod.Status.Phase = corev1.PodFailed }), tallyman.PodDeleted, -1, "before the agent was at work"},
		"and not found any more": {scene(initEnded("first", 137, "ContainerStatusUnknown"), deletedAt(5, 10), func(s *Scene) {
			s.Pod.Status.InitContainerStatuses[0].State.Terminated.FinishedAt = metav1.Time{}
		}), tallyman.PodDeleted, -1, "before the agent was at work"},
		"deleted in set-up":        {scene(initEnded("first", 137, "Error"), isDeleted), tallyman.PodDeleted, -1, "before the agent was at work"},
		"its memory, then deleted": {scene(initEnded("first", 137, "OOMKilled"), isDeleted), tallyman.OOMKilled, 137, "init container first"},
		"deleted without a node":   {scene(unschedulable("0/1 nodes are available"), isDeleted), tallyman.PodDeleted, -1, "before the agent was at work"},
		"the Job deleted":          {scene(noPod, func(s *Scene) { s.Job = nil }), tallyman.PodDeleted, -1, "not known"},
		"a Job without its Pod": {scene(noPod, func(s *Scene) {
			s.Job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded", Message: "Job has reached the specified backoff limit"}}
		}), tallyman.PodDeleted, -1, "not known"},
		"refused by the node":       {scene(func(s *Scene) { s.Pod.Status.Phase = corev1.PodFailed }, podSays("OutOfcpu", "Node didn't have enough resource")), tallyman.BackendError, -1, "OutOfcpu"},
		"nobody knows":              {scene(func(s *Scene) { s.Pod.Status.Phase = corev1.PodFailed }), tallyman.RunnerLost, -1, "does not say"},
		"a success that nobody saw": {scene(func(s *Scene) { s.Pod.Status.Phase = corev1.PodSucceeded }, agentIs(terminated(0, "Completed", ""))), tallyman.RunnerLost, -1, "does not say"},
		"a bare image succeeds":     {scene(bare, func(s *Scene) { s.Pod.Status.Phase = corev1.PodSucceeded }, agentIs(terminated(0, "Completed", ""))), tallyman.Completed, 0, ""},
		"a bare image fails":        {scene(bare, ended(3, "Error", "no such task")), tallyman.AgentError, 3, "no such task"},
		"a bare image had its time": {scene(bare, ended(143, "Error", ""), limited("30s"), deletedAt(0, 10)), tallyman.DeadlineExceeded, 143, "deadline of 30s"},
		"in whole seconds":          {scene(bare, ended(143, "Error", ""), limited("30.9s"), deletedAt(0, 10)), tallyman.DeadlineExceeded, 143, "deadline of 30.9s"},
		"deleted before its time":   {scene(bare, ended(143, "Error", ""), limited("31s"), deletedAt(-1, 10)), tallyman.PodDeleted, -1, "while the agent was at work"},
		"polite when deleted":       {scene(bare, ended(0, "Completed", ""), deletedAt(-1, 10)), tallyman.PodDeleted, -1, "while the agent was at work"},
		"in the same second":        {scene(bare, ended(0, "Completed", ""), deletedAt(0, 10)), tallyman.PodDeleted, -1, "deleted"},
		"its clock is behind":       {scene(bare, ended(0, "Completed", ""), deletedAt(5, 10)), tallyman.PodDeleted, -1, "deleted"},
		"done, then deleted":        {scene(bare, ended(0, "Completed", ""), deletedAt(6, 10)), tallyman.Completed, 0, ""},
		"failed, then deleted":      {scene(bare, ended(3, "Error", ""), deletedAt(6, 10)), tallyman.AgentError, 3, "exit code 3"},
		"deleted for good":          {scene(bare, ended(0, "Completed", ""), deletedAt(5, 0)), tallyman.PodDeleted, -1, "deleted"},
		"a bare image's memory":     {scene(bare, ended(0, "OOMKilled", "")), tallyman.OOMKilled, 0, "killed for memory"},
	} {
		t.Run(name, func(t *testing.T) {
			o := look(t, c.scene)
			if !o.Gone || o.Running || o.Cause == nil {
				t.Fatalf("it has not ended: %+v", o)
			}
			if o.Cause.Reason != c.reason || !strings.Contains(o.Cause.Message, c.says) {
				t.Errorf("got %s: %s", o.Cause.Reason, o.Cause.Message)
			}
			if code := o.Cause.ExitCode; c.code < 0 && code != nil || c.code >= 0 && (code == nil || *code != c.code) {
				t.Errorf("exit code %v, want %d", code, c.code)
			}
			if o.Final != nil {
				t.Errorf("a last word was heard: %+v", o.Final)
			}
		})
	}
	said := scene(ended(1, "Error", word(tallyman.Outcome{Reason: tallyman.AgentError, Message: "exit code 3", Started: true}, 17)))
	if o := look(t, said); o.Final == nil || o.Final.Reason != tallyman.AgentError || o.FinalCursor != 17 || !o.FinalAt.Equal(noon) {
		t.Errorf("a runner's last word: %+v", o)
	}
}

func TestLookAtALivingOne(t *testing.T) {
	for name, s := range map[string]Scene{
		"at work":                  scene(running),
		"asked to end":             scene(running, isDeleted, disrupted("EvictionByEvictionAPI", "x")),
		"a node that is not heard": scene(running, podSays("NodeLost", "x")),
		"the Job is deleted":       scene(running, func(s *Scene) { s.Job = nil }),
		"a sidecar has ended badly": scene(running, func(s *Scene) {
			s.Pod.Status.ContainerStatuses = append(s.Pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: "db", State: terminated(137, "OOMKilled", "")})
		}),
	} {
		if o := look(t, s); !o.Running || o.Deaf || o.Gone || o.Cause != nil || o.Blocked != nil || o.Process != "pod" {
			t.Errorf("%s: %+v", name, o)
		}
	}
	if o := look(t, Scene{Now: noon}); o.Running || o.Gone || o.Cause != nil {
		t.Errorf("one that was never made: %+v", o)
	}
	left := scene(func(s *Scene) { s.Pod.Status.Phase = corev1.PodRunning }, agentIs(terminated(137, "Error", "")))
	if o := look(t, left); !o.Gone {
		t.Errorf("a sidecar outlives the agent: %+v", o)
	}
}

func TestTheEvidence(t *testing.T) {
	e := look(t, scene(ended(3, "Error", "x"), warned("BackOff", " restarting "), func(s *Scene) {
		s.Pod.Status.InitContainerStatuses = append(s.Pod.Status.InitContainerStatuses, corev1.ContainerStatus{Name: "tallyman-init", State: terminated(0, "Completed", "")})
		s.Events = append(s.Events, &corev1.Event{Type: corev1.EventTypeNormal, Reason: "Pulled"})
		s.Pod.Status.InitContainerStatuses = append(s.Pod.Status.InitContainerStatuses, corev1.ContainerStatus{Name: "proxy", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
	})).Evidence
	if e.Pod != "run-x" || e.Node != "node" || e.ScheduledAt == nil || len(e.Events) != 1 || e.Events[0].Message != "restarting" {
		t.Errorf("got %+v", e)
	}
	kinds := map[string]string{}
	for _, c := range e.Containers {
		kinds[c.Name] = c.Kind + " " + c.State
	}
	for name, want := range map[string]string{"tallyman-init": "init terminated", "proxy": "sidecar running", "agent": "agent terminated"} {
		if kinds[name] != want {
			t.Errorf("container %s is %q, want %q", name, kinds[name], want)
		}
	}
	if c := e.Containers[len(e.Containers)-1]; c.Digest != "sha256:abc" || c.ExitCode == nil || *c.ExitCode != 3 {
		t.Errorf("the agent's container: %+v", c)
	}
}

// A runtime that starts a container whose program it cannot execute has its
// words in the container's output, and nowhere else.
func TestNotExecutable(t *testing.T) {
	const says = "exec /bin/other: exec format error"
	for name, c := range map[string]struct {
		reason tallyman.Reason
		of     tallyman.ContainerState
		want   tallyman.Reason
	}{
		"the agent":            {tallyman.AgentError, tallyman.ContainerState{Kind: tallyman.AgentContainer, Output: says + "\n", ExitCode: new(255)}, tallyman.InvalidSpec},
		"its runner":           {tallyman.RunnerLost, tallyman.ContainerState{Kind: tallyman.AgentContainer, Output: says, ExitCode: new(1)}, tallyman.InvalidSpec},
		"an init container":    {tallyman.SetupFailed, tallyman.ContainerState{Kind: tallyman.InitContainer, Output: says, ExitCode: new(1)}, tallyman.InvalidSpec},
		"an older runtime":     {tallyman.AgentError, tallyman.ContainerState{Kind: tallyman.AgentContainer, Output: `standard_init_linux.go:228: exec user process caused: exec format error`, ExitCode: new(1)}, tallyman.InvalidSpec},
		"a sidecar":            {tallyman.AgentError, tallyman.ContainerState{Kind: tallyman.SidecarContainer, Output: says, ExitCode: new(1)}, tallyman.AgentError},
		"an agent that tells":  {tallyman.AgentError, tallyman.ContainerState{Kind: tallyman.AgentContainer, Output: "I begin\n" + says, ExitCode: new(1)}, tallyman.AgentError},
		"an agent that ends":   {tallyman.AgentError, tallyman.ContainerState{Kind: tallyman.AgentContainer, Output: says, ExitCode: new(0)}, tallyman.AgentError},
		"what is known better": {tallyman.Evicted, tallyman.ContainerState{Kind: tallyman.AgentContainer, Output: says, ExitCode: new(1)}, tallyman.Evicted},
	} {
		got := NotExecutable(&tallyman.Cause{Reason: c.reason}, &tallyman.Evidence{Containers: []tallyman.ContainerState{c.of}})
		if got.Reason != c.want || c.want == tallyman.InvalidSpec && !strings.Contains(got.Message, "exec format error") {
			t.Errorf("%s: %s (%s), want %s", name, got.Reason, got.Message, c.want)
		}
	}
	if NotExecutable(nil, &tallyman.Evidence{}) != nil {
		t.Error("there is a cause without one")
	}
}

// A sidecar that fails again and again before the agent is told as what the
// agent waits for.
func TestASidecarThatCrashes(t *testing.T) {
	s := scene(func(s *Scene) {
		s.Pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "proxy",
			State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}},
			LastTerminationState: terminated(137, "OOMKilled", ""),
		}}
	}, waits("PodInitializing", ""))
	b := look(t, s).Blocked
	if b == nil || b.Hopeless || b.Reason != tallyman.SetupFailed || !strings.Contains(b.Message, "container proxy: CrashLoopBackOff: back-off 10s (it was killed for memory") {
		t.Errorf("it is blocked by %+v", b)
	}
}

// A sidecar that was started again was killed all the same.
func TestASidecarThatIsStartedAgain(t *testing.T) {
	s := scene(running, func(s *Scene) {
		s.Pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
			Name: "proxy", RestartCount: 2, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, LastTerminationState: terminated(137, "OOMKilled", ""),
		}}
	})
	killed := look(t, s).Evidence.SidecarsKilled()
	if len(killed) != 1 || killed[0].Name != "proxy" || killed[0].State != "running" || !strings.Contains(killed[0].Message, "2 times") {
		t.Errorf("killed are %+v", killed)
	}
}
