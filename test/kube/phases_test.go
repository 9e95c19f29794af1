//go:build kube

package kube_test

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
)

// Phases of an attempt, of which the longer ones are made by its agent.
const (
	longSetUp  = "podTemplate: {spec: {initContainers: [{name: first, image: " + shellImage + ", command: [sh, -c, \"trap 'exit 9' TERM; sleep 300 & wait\"]}]}}\n"
	longDown   = "podTemplate: {spec: {containers: [{name: side, image: " + shellImage + ", command: [sh, -c, \"trap 'sleep 2; exit 9' TERM; while :; do sleep 1; done\"]}]}}\n"
	noSuchNode = "podTemplate: {spec: {nodeSelector: {no: such}}}\n"
)

// settingUp waits until an init container runs.
func settingUp(p *place, run tallyman.Run) bool {
	for _, pod := range p.pods(run) {
		for _, c := range pod.Status.InitContainerStatuses {
			if c.Name == "first" && c.State.Running != nil {
				return true
			}
		}
	}
	return false
}

// tearingDown waits until the agent has ended and something beside it has not.
func tearingDown(p *place, run tallyman.Run) bool {
	for _, pod := range p.pods(run) {
		ended, runs := false, false
		for _, c := range pod.Status.ContainerStatuses {
			ended = ended || c.Name == "agent" && c.State.Terminated != nil
			runs = runs || c.Name == "side" && c.State.Running != nil
		}
		if ended && runs {
			return true
		}
	}
	return false
}

func atOnce(*place, tallyman.Run) bool { return true }

// stopped asks for a run's end, deletePods takes its Pods away by hand.
func stopped(p *place, run tallyman.Run) { _, _ = p.try("stop", "--wait=false", run.ID) }

func deletePods(p *place, run tallyman.Run) {
	for _, pod := range p.pods(run) {
		p.must(client.IgnoreNotFound(kube.Delete(p.Context(), &pod)))
	}
}

func deleteJob(p *place, run tallyman.Run) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: run.Name, Namespace: p.namespace}}
	p.must(client.IgnoreNotFound(kube.Delete(p.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground))))
}

func stoppedAndDeleted(p *place, run tallyman.Run) {
	stopped(p, run)
	deletePods(p, run)
}

// Whenever a run is stopped it counts as stopped, and whenever its Pod is taken
// away as that, unless its agent has already done its work.
func TestPhases(t *testing.T) {
	p := newPlace(t, "TALLYMAN_GRACE=3s")
	work := shell("echo at work; sleep 300")
	deaf := shell("trap : TERM; while :; do sleep 1; done")
	for name, c := range map[string]struct {
		spec   string
		when   func(*place, tallyman.Run) bool
		do     func(*place, tallyman.Run)
		reason tallyman.Reason
		says   string
	}{
		"deleted-in-set-up":          {work + longSetUp, settingUp, deletePods, tallyman.PodDeleted, "before the agent was at work"},
		"deleted-in-teardown":        {shell("echo done") + longDown, tearingDown, deletePods, tallyman.Completed, ""},
		"job-deleted-in-set-up":      {work + longSetUp, settingUp, deleteJob, tallyman.PodDeleted, "deleted"},
		"job-deleted-in-teardown":    {shell("echo done") + longDown, tearingDown, deleteJob, tallyman.Completed, ""},
		"stopped-in-set-up":          {work + longSetUp, settingUp, stopped, tallyman.ReasonStopped, "stopped by"},
		"stopped-in-teardown":        {shell("echo done") + longDown, tearingDown, stopped, tallyman.Completed, ""},
		"stopped-and-deleted":        {work, atWork, stoppedAndDeleted, tallyman.ReasonStopped, "stopped by"},
		"stopped-deleted-set-up":     {work + longSetUp, settingUp, stoppedAndDeleted, tallyman.ReasonStopped, "stopped by"},
		"stopped-deleted-pending":    {work + noSuchNode, pending, stoppedAndDeleted, tallyman.ReasonStopped, "stopped by"},
		"stopped-deleted-at-once":    {work, atOnce, stoppedAndDeleted, tallyman.ReasonStopped, "stopped by"},
		"stopped-deleted-while-deaf": {deaf, atWork, stoppedAndDeleted, tallyman.ReasonStopped, "stopped by"},
		"stopped-while-deaf":         {deaf, atWork, stopped, tallyman.ReasonStopped, "stopped by"},
		"stopped-pod":                {work + longSetUp + podWorkload, settingUp, stopped, tallyman.ReasonStopped, "stopped by"},
		"deleted-pod":                {work + longSetUp + podWorkload, settingUp, deletePods, tallyman.PodDeleted, "deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := *p
			p.T = t
			p.agent(name, c.spec)
			run := p.detach(name)
			p.eventually("it is time", func() bool { return c.when(&p, run) })
			c.do(&p, run)
			begin := time.Now()
			p.holds(p.ended(run.ID), c.reason, c.says)
			p.once(run)
			t.Logf("over after %v", time.Since(begin).Round(100*time.Millisecond))
			if c.reason == tallyman.Completed && p.show(run.ID).Reason != c.reason {
				t.Error("its reason has changed")
			}
		})
	}
}

// A Job that is taken away as soon as it is there was made, and is gone.
func TestAJobThatIsDeletedAtOnce(t *testing.T) {
	p := newPlace(t)
	p.agent("gone", shell("sleep 300"))
	run := p.detach("gone")
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: run.Name, Namespace: p.namespace}}
	for until := time.Now().Add(patience); kube.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)) != nil; {
		if time.Now().After(until) {
			t.Fatal("there is no Job")
		}
	}
	p.holds(p.ended(run.ID), tallyman.PodDeleted, "deleted")
	p.once(run)
	p.eventually("it does not come back", func() bool {
		var jobs batchv1.JobList
		p.must(kube.List(t.Context(), &jobs, client.InNamespace(p.namespace)))
		var pods corev1.PodList
		p.must(kube.List(t.Context(), &pods, client.InNamespace(p.namespace)))
		return len(jobs.Items)+len(pods.Items) == 0
	})
}
