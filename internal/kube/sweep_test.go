package kube

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/kube/job"
)

var discard = slog.New(slog.DiscardHandler)

var attempt = tallyman.AttemptRef{RunID: "01KBCB7TMKFCGE0000000000AB", Number: 1}

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// known is a backend in whose cluster those objects are; it remembers those of
// them that are in memory.
func known(t *testing.T, o Options, inCluster []client.Object, inMemory ...client.Object) *Backend {
	t.Helper()
	o.Config, o.Namespace, o.Log = &rest.Config{Host: "https://127.0.0.1:1"}, "agents", discard
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	b.live = fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(inCluster...).Build()
	b.nodes.at = time.Now()
	for _, object := range inMemory {
		inf := b.seen.jobs[0]
		if _, pod := object.(*corev1.Pod); pod {
			inf = b.seen.pods[0]
		}
		if err := inf.GetIndexer().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	b.seen.places[0].synced.Store(true)
	return b
}

func labelled(name, uid string, runner tallyman.RunnerMode) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "agents", UID: types.UID(uid), CreationTimestamp: metav1.NewTime(noon), Labels: map[string]string{
		job.LabelManagedBy: job.ManagedBy, job.LabelRun: attempt.RunID, job.LabelAttempt: "1", job.LabelRunner: string(runner),
	}}
}

// terminated is a container that ended at noon, after half a minute.
func terminated(code int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: "Error", StartedAt: metav1.NewTime(noon.Add(-30 * time.Second)), FinishedAt: metav1.NewTime(noon),
	}}
}

// podThat is a Pod of its own whose agent is so.
func podThat(phase corev1.PodPhase, runner tallyman.RunnerMode, agent corev1.ContainerState) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: labelled("run", "pod", runner), Status: corev1.PodStatus{
		Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{Name: tallyman.PodAgent, State: agent}},
	}}
}

func (b *Backend) has(t *testing.T, object client.Object) bool {
	t.Helper()
	err := b.live.Get(t.Context(), client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object))
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

func TestSweep(t *testing.T) {
	unknown := tallyman.Errorf(tallyman.NotFound, "no such run")
	isRunning := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}}
	refused := podThat(corev1.PodFailed, tallyman.RunnerInject, corev1.ContainerState{})
	refused.Status.ContainerStatuses = nil
	notOurs := podThat(corev1.PodRunning, tallyman.RunnerInject, terminated(0))
	delete(notOurs.Labels, job.LabelRun)
	ofAJob := podThat(corev1.PodSucceeded, tallyman.RunnerInject, terminated(0))
	ofAJob.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "j", Controller: new(true)}}
	endedJob := &batchv1.Job{ObjectMeta: labelled("run", "job", ""), Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{
		Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon),
	}}}}
	for name, c := range map[string]struct {
		object client.Object
		kept   bool
		err    error
		after  time.Duration // noon
		done   bool          // its bare log
		goes   bool
	}{
		"a sidecar after its agent":              {podThat(corev1.PodRunning, tallyman.RunnerInject, terminated(0)), false, nil, 6 * time.Second, false, true},
		"it has a moment":                        {podThat(corev1.PodRunning, tallyman.RunnerInject, terminated(0)), false, nil, 5 * time.Second, false, false},
		"its agent is at work":                   {podThat(corev1.PodRunning, tallyman.RunnerInject, isRunning), false, nil, time.Hour, false, false},
		"a sidecar of another server":            {podThat(corev1.PodRunning, tallyman.RunnerInject, terminated(0)), false, unknown, 6 * time.Second, false, false},
		"a Pod that is nobody's":                 {notOurs, true, nil, time.Hour, false, false},
		"a sidecar, and the log is not read yet": {podThat(corev1.PodRunning, tallyman.RunnerBare, terminated(0)), false, nil, 6 * time.Second, false, false},
		"a sidecar, and the log is kept":         {podThat(corev1.PodRunning, tallyman.RunnerBare, terminated(0)), false, nil, 6 * time.Second, true, true},
		"a Pod that is kept elsewhere":           {podThat(corev1.PodSucceeded, tallyman.RunnerInject, terminated(0)), true, nil, time.Hour + time.Second, false, true},
		"it may be looked at for an hour":        {podThat(corev1.PodSucceeded, tallyman.RunnerInject, terminated(0)), true, nil, time.Hour, false, false},
		"its record is not complete":             {podThat(corev1.PodSucceeded, tallyman.RunnerInject, terminated(0)), false, nil, 100 * time.Hour, false, false},
		"a Pod that a node refused":              {refused, true, nil, time.Hour + time.Second, false, true},
		"a Pod that nobody knows":                {podThat(corev1.PodSucceeded, tallyman.RunnerInject, terminated(0)), false, unknown, job.Backstop, false, false},
		"nor after its time":                     {podThat(corev1.PodSucceeded, tallyman.RunnerInject, terminated(0)), false, unknown, job.Backstop + time.Second, false, true},
		"a Job's Pod goes with it":               {ofAJob, true, nil, 100 * time.Hour, false, false},
		"a Job that is kept elsewhere":           {endedJob, true, nil, time.Hour + time.Second, false, true},
		"a Job that nobody knows ends itself":    {endedJob, false, unknown, job.Backstop + time.Second, false, false},
		"a store that cannot be asked":           {endedJob, false, errors.New("disk"), 100 * time.Hour, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := known(t, Options{Ended: time.Hour, Kept: func(context.Context, tallyman.AttemptRef) (bool, error) { return c.kept, c.err }}, []client.Object{c.object.DeepCopyObject().(client.Object)}, c.object)
			b.scribe.pods["pod"] = &page{pod: podThat(corev1.PodRunning, tallyman.RunnerBare, terminated(0)), since: time.Now(), done: c.done}
			err := b.sweep(t.Context(), noon.Add(c.after))
			if lost := c.err != nil && c.err != unknown; (err != nil) != lost {
				t.Errorf("it says %v", err)
			}
			if b.has(t, c.object) == c.goes {
				t.Errorf("it is there: %t", !c.goes)
			}
		})
	}
}

func TestDeadlinesOfBareAgents(t *testing.T) {
	isRunning := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}}
	for name, c := range map[string]struct {
		limit, made string
		after       time.Duration
		goes        bool
	}{
		"it has had its time":       {"30s", "agents/pod", 30 * time.Second, true},
		"it has some left":          {"30s", "agents/pod", 29 * time.Second, false},
		"there is no limit":         {"", "agents/pod", time.Hour, false},
		"a copy of another's":       {"30s", "agents/other", time.Hour, false},
		"it is not recorded yet":    {"30s", "", time.Hour, false},
		"how long, is not readable": {"soon", "agents/pod", time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podThat(corev1.PodRunning, tallyman.RunnerBare, isRunning)
			if c.limit != "" {
				pod.Annotations = map[string]string{job.AnnotationDeadline: c.limit}
			}
			b := known(t, Options{Object: func(context.Context, tallyman.AttemptRef) (string, error) { return c.made, nil }}, []client.Object{pod.DeepCopy()}, pod)
			if err := b.holdDeadlines(t.Context(), noon.Add(c.after)); (err != nil) != (c.made == "") {
				t.Errorf("it says %v", err)
			}
			if b.has(t, pod) == c.goes {
				t.Errorf("it is there: %t", !c.goes)
			}
		})
	}
}

// Memory may be behind: what it does not know is asked for where a wrong
// answer would be one about an end.
func TestWhatMemoryDoesNotKnow(t *testing.T) {
	made := &batchv1.Job{ObjectMeta: labelled("run", "job", tallyman.RunnerInject)}
	over := made.DeepCopy()
	over.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	pod := podThat(corev1.PodSucceeded, tallyman.RunnerInject, terminated(0))
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "run", UID: "job", Controller: new(true)}}
	a := tallyman.Attempt{RunID: attempt.RunID, Number: 1, Object: "agents/job"}

	b := known(t, Options{}, []client.Object{over.DeepCopy(), pod}, over)
	o, err := b.Observe(t.Context(), a)
	if err != nil || !o.Gone || o.Process != "pod" || o.Cause != nil && o.Cause.Reason == tallyman.PodDeleted {
		t.Errorf("an ended Job whose Pod is not in memory: %+v, %v", o, err)
	}

	b = known(t, Options{}, []client.Object{made.DeepCopy()})
	if err := b.Kill(t.Context(), tallyman.Attempt{RunID: attempt.RunID, Number: 1}); err != nil || b.has(t, made) {
		t.Errorf("a Job whose making was not answered: %v, it is there: %t", err, b.has(t, made))
	}
}

// A Pod with our labels that was not made for the attempt gets no journal.
func TestACopyGetsNoJournal(t *testing.T) {
	pod := podThat(corev1.PodRunning, tallyman.RunnerBare, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}})
	b := known(t, Options{Object: func(context.Context, tallyman.AttemptRef) (string, error) { return "other", nil }}, nil, pod)
	if err := b.scribe.writeOnce(t.Context(), &page{ref: attempt, pod: pod}, pod); tallyman.CodeOf(err) != tallyman.Stale { // nobody is there to be greeted
		t.Errorf("got %v", err)
	}
}

// A lost node shows no logs, and each that is asked takes its time.
func TestALostNodeIsNotAskedForLogs(t *testing.T) {
	pod := podThat(corev1.PodRunning, tallyman.RunnerInject, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}})
	pod.Spec.NodeName = "lost"
	b := known(t, Options{}, nil, pod)
	o, err := b.Observe(t.Context(), tallyman.Attempt{RunID: attempt.RunID, Number: 1, Object: "agents/pod", Journal: "J", LastContact: new(noon)})
	if err != nil || !o.Gone || o.Cause == nil || o.Cause.Reason != tallyman.NodeLost || len(o.Evidence.Containers) != 1 {
		t.Fatalf("got %+v, %v", o, err)
	}
	o, err = b.Observe(t.Context(), tallyman.Attempt{RunID: attempt.RunID, Number: 1, Object: "agents/pod", LastContact: new(noon)})
	if err != nil || o.Evidence.Containers[0].Output != "" {
		t.Errorf("it was asked: %q, %v", o.Evidence.Containers[0].Output, err)
	}
}
