//go:build kube

package kube_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
)

// retried is an agent whose ends are tried again as they are by default.
func retried(script string) string {
	return strings.Replace(shell(script), "retry: {max: 0}", "retry: {backoff: 1s}", 1)
}

// most is half of the node and more: two such Pods have no room there.
func most(spec string) string {
	return spec + "podTemplate: {spec: {containers: [{name: agent, resources: {requests: {memory: 13Gi}}}]}}\n"
}

func evict(p *place, run tallyman.Run) {
	for _, pod := range p.pods(run) {
		if pod.DeletionTimestamp == nil {
			p.must(kube.SubResource("eviction").Create(p.Context(), &pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}}))
		}
	}
}

// oneAtATime watches that never two agents of a run are at work, until it ends,
// and returns the run.
func (p *place) oneAtATime(run tallyman.Run) tallyman.Run {
	p.Helper()
	p.eventually("run "+run.Name+" ends", func() bool {
		if busy := p.busy(run); len(busy) > 1 {
			p.Errorf("at work at once: %v", busy)
		}
		return p.show(run.ID).State.Terminal()
	})
	return p.show(run.ID)
}

// reasons are those of a run's attempts.
func (p *place) reasons(run tallyman.Run) (all []tallyman.Reason) {
	p.Helper()
	for _, a := range p.attempts(run) {
		all = append(all, a.Reason)
	}
	return all
}

// An eviction is nobody's fault: the agent works again, in another Job, after
// the first is over.
func TestEvictionIsTriedAgain(t *testing.T) {
	for name, workload := range workloads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.agent("again", retried("echo attempt $TALLYMAN_ATTEMPT_NO; test $TALLYMAN_ATTEMPT_NO = 2 || sleep 300")+workload)
			run := p.detach("again")
			p.running(run)
			evict(p, run)
			run = p.oneAtATime(run)
			if run.Reason != tallyman.Completed || !slices.Equal(p.reasons(run), []tallyman.Reason{tallyman.Evicted, tallyman.Completed}) {
				t.Errorf("it ended with %s (%s), its attempts with %v", run.Reason, run.Message, p.reasons(run))
			}
			if got := p.ok("logs", run.ID); !strings.HasSuffix(got, "attempt 2\n") {
				t.Errorf("the transcript is %q", got)
			}
			if workload == "" {
				p.must(kube.Get(t.Context(), client.ObjectKey{Namespace: p.namespace, Name: run.Name + "-2"}, &batchv1.Job{}))
			}
		})
	}
}

// A run that has to give way to one that matters more is tried again, unless
// its agent does not want that.
func TestPreemption(t *testing.T) {
	p := newPlace(t)
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}, Value: 1000}
	p.must(kube.Create(t.Context(), class))
	t.Cleanup(func() { _ = kube.Delete(context.Background(), class) })
	for name, c := range map[string]struct {
		spec string
		want []tallyman.Reason
	}{
		"once":  {most(shell("sleep 300")), []tallyman.Reason{tallyman.Preempted}},
		"again": {most(retried("test $TALLYMAN_ATTEMPT_NO = 2 || sleep 300")), []tallyman.Reason{tallyman.Preempted, tallyman.Completed}},
	} {
		t.Run(name, func(t *testing.T) { // one after the other: there is one node
			p := *p
			p.T = t
			p.agent(name, c.spec)
			run := p.detach(name)
			p.running(run)
			high := p.sleeper("high-"+name, func(pod *corev1.Pod) {
				pod.Spec.PriorityClassName = class.Name
				pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("13Gi")}
			})
			begin := time.Now()
			p.eventually("it gives way", func() bool { return p.attempts(run)[0].EndedAt != nil })
			a := p.attempts(run)[0]
			t.Logf("after %v: %s: %s", time.Since(begin).Round(time.Second), a.Reason, a.Message)
			if !strings.Contains(a.Message, "preempt") {
				t.Errorf("it says %q", a.Message)
			}
			if len(c.want) > 1 {
				p.eventually("the next attempt waits", func() bool { r := p.show(run.ID); return r.Attempt == 2 && r.Waiting != nil })
			}
			p.must(kube.Delete(t.Context(), high, client.GracePeriodSeconds(0)))
			p.oneAtATime(run)
			if got := p.reasons(run); !slices.Equal(got, c.want) {
				t.Errorf("its attempts ended with %v, want %v", got, c.want)
			}
		})
	}
}

// Who takes more of the disk than it may is evicted, in the kubelet's words.
func TestDisk(t *testing.T) {
	p := newPlace(t)
	fill := func(where string) string {
		return shell("busybox dd if=/dev/zero of=" + where + "/x bs=1M count=60; sleep 300")
	}
	for name, c := range map[string]struct{ spec, says string }{
		"volume":    {fill("/d") + "podTemplate: {spec: {volumes: [{name: d, emptyDir: {sizeLimit: 10Mi}}], containers: [{name: agent, volumeMounts: [{name: d, mountPath: /d}]}]}}", `EmptyDir volume "d" exceeds the limit "10Mi"`},
		"container": {fill("$HOME") + "podTemplate: {spec: {containers: [{name: agent, resources: {limits: {ephemeral-storage: 20Mi}}}]}}", "ephemeral"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := *p
			p.T = t
			p.agent(name, c.spec)
			run := p.detach(name)
			p.running(run)
			begin := time.Now()
			run = p.ended(run.ID)
			p.holds(run, tallyman.Evicted, c.says)
			t.Logf("after %v: %s", time.Since(begin).Round(time.Second), run.Message)
			p.once(run)
		})
	}
}
