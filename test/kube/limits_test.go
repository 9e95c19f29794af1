//go:build kube

package kube_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
)

const podWorkload = "workload: pod\n"

// workloads are the two ways to make an attempt's Pod.
var workloads = map[string]string{"job": "", "pod": podWorkload}

// label labels the namespace.
func (p *place) label(key, value string) {
	p.Helper()
	var ns corev1.Namespace
	p.must(kube.Get(p.Context(), client.ObjectKey{Name: p.namespace}, &ns))
	before := ns.DeepCopy()
	ns.Labels[key] = value
	p.must(kube.Patch(p.Context(), &ns, client.MergeFrom(before)))
}

// sleeper is a Pod of somebody else.
func (p *place) sleeper(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: p.namespace},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: shellImage, Command: []string{"sleep", "1000"}}}},
	}
	for _, c := range change {
		c(pod)
	}
	p.must(kube.Create(p.Context(), pod))
	p.Cleanup(func() { _ = kube.Delete(context.Background(), pod, client.GracePeriodSeconds(0)) })
	return pod
}

// quota lets the namespace have so much of something, and waits until the
// cluster knows how much there is.
func (p *place) quota(name string, hard corev1.ResourceList) *corev1.ResourceQuota {
	p.Helper()
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: p.namespace}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	p.must(kube.Create(p.Context(), q))
	p.eventually("the quota is counted", func() bool {
		p.must(kube.Get(p.Context(), client.ObjectKeyFromObject(q), q))
		return len(q.Status.Used) > 0
	})
	return q
}

// A run whose namespace is full waits, says for what, and goes on soon after
// there is room.
func TestQuota(t *testing.T) {
	for name, workload := range workloads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			holder := p.sleeper("holder")
			p.quota("few-pods", corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")})
			p.agent("waits", shell("echo hello")+workload)
			run := p.detach("waits")
			p.waits(run, tallyman.Quota, "exceeded quota: few-pods, requested: pods=1, used: pods=1, limited: pods=1")
			time.Sleep(35 * time.Second) // the Job controller tries less and less often: after 31 s, then after 63 s
			p.waits(run, tallyman.Quota, "few-pods")
			p.must(kube.Delete(t.Context(), holder, client.GracePeriodSeconds(0)))
			p.soon(run, time.Now())
		})
	}
}

// soon checks that a run completes soon after there is room for it.
func (p *place) soon(run tallyman.Run, freed time.Time) {
	p.Helper()
	run = p.ended(run.ID)
	p.holds(run, tallyman.Completed)
	p.once(run)
	took := p.attempts(run)[0].StartedAt.Sub(freed).Round(100 * time.Millisecond)
	p.Logf("it was at work %v after there was room", took)
	if took > 10*time.Second {
		p.Errorf("it was at work only %v after there was room", took)
	}
}

// A quota counts what is asked for too, and Jobs themselves.
func TestQuotaOfOtherThings(t *testing.T) {
	for name, hard := range map[string]corev1.ResourceList{
		"limits.memory":    {corev1.ResourceLimitsMemory: resource.MustParse("100Mi")},
		"count/jobs.batch": {"count/jobs.batch": resource.MustParse("0")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			q := p.quota("little", hard)
			p.agent("waits", shell("echo hello"))
			run := p.detach("waits")
			p.waits(run, tallyman.Quota, "exceeded quota: little, requested: "+name+"=")
			p.must(kube.Delete(t.Context(), q))
			p.soon(run, time.Now())
		})
	}
}

// What the namespace's own rules refuse is told at once, in their words.
func TestRulesRefuse(t *testing.T) {
	share := "podTemplate: {spec: {volumes: [{name: share, nfs: {server: nfs.example, path: /}}]}}\n"
	for name, c := range map[string]struct {
		rule func(*place)
		spec string
		says []string
	}{
		"limit-range": {(*place).littleMemory, shell("true"), []string{"forbidden", "maximum memory usage per Container is 64Mi"}},
		"restricted":  {func(p *place) { p.label("pod-security.kubernetes.io/enforce", "restricted") }, shell("true") + share, []string{`violates PodSecurity "restricted`, "nfs"}},
		"webhook":     {func(p *place) { p.webhook("pods", "CREATE", "no agents on Wednesdays") }, shell("true"), []string{"denied the request", "no agents on Wednesdays"}},
		"policy":      {(*place).policy, shell("true"), []string{"denied request", "agents need a cost centre"}},
	} {
		for kind, workload := range workloads {
			t.Run(name+"-"+kind, func(t *testing.T) {
				t.Parallel()
				p := newPlace(t)
				c.rule(p)
				p.agent("refused", c.spec+workload)
				begin := time.Now()
				run := p.ended(p.detach("refused").ID)
				p.holds(run, tallyman.InvalidSpec, c.says...)
				t.Logf("after %v: %s", time.Since(begin).Round(time.Second), run.Message)
				p.eventually("its Job is gone, and makes no Pod when the rule is", func() bool {
					return apierrors.IsNotFound(kube.Get(t.Context(), client.ObjectKey{Namespace: p.namespace, Name: run.Name}, &batchv1.Job{}))
				})
				if pods := p.pods(run); len(pods) > 0 {
					t.Errorf("%d Pods were made", len(pods))
				}
			})
		}
	}
}

// A webhook that refuses the Job itself is no different.
func TestAWebhookRefusesTheJob(t *testing.T) {
	p := newPlace(t)
	p.webhook("jobs", "CREATE", "no Jobs on Wednesdays")
	p.agent("refused", shell("true"))
	run := p.ended(p.detach("refused").ID)
	p.holds(run, tallyman.InvalidSpec, "denied the request", "no Jobs on Wednesdays")
}

// A webhook that does not answer may come back: the run waits for it.
func TestAWebhookThatIsDown(t *testing.T) {
	p := newPlace(t)
	hook := p.webhook("pods", "CREATE", "")
	p.agent("waits", shell("echo hello"))
	p.agent("waits-pod", shell("echo hello")+podWorkload)
	job, pod := p.detach("waits"), p.detach("waits-pod")
	p.waits(job, tallyman.PodPending, "failed calling webhook")
	p.waits(pod, tallyman.NoBackend, "failed calling webhook")
	p.must(kube.Delete(t.Context(), hook))
	for _, run := range []tallyman.Run{pod, job} {
		run = p.ended(run.ID)
		p.holds(run, tallyman.Completed)
		p.once(run)
	}
}

// Our own Pods keep the strictest rules, each kind of them.
func TestOurPodsAreRestricted(t *testing.T) {
	p := newPlace(t)
	p.label("pod-security.kubernetes.io/enforce", "restricted")
	openshift := "podTemplate: {spec: {securityContext: {runAsUser: 1000650000, runAsGroup: 0, fsGroup: 1000650000}}}\n"
	for name, spec := range map[string]string{
		"inject":      shell("echo x > x && echo hello"),
		"image":       strings.Replace(shell("echo x > x && echo hello"), shellImage, bothImage, 1) + "runner: image\n",
		"bare":        bare("echo hello"),
		"pod":         shell("echo hello") + podWorkload,
		"random-user": shell("test $(id -u):$(id -g) = 1000650000:0 && echo x > x && echo x > $HOME/x && echo x > $TMPDIR/x && echo hello") + openshift,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := *p
			p.T = t
			p.agent(name, spec)
			run := p.ended(p.detach(name).ID)
			p.holds(run, tallyman.Completed)
			if got := p.ok("logs", run.ID); got != "hello\n" {
				t.Errorf("the transcript is %q", got)
			}
			p.once(run)
		})
	}
}

func (p *place) littleMemory() {
	p.Helper()
	p.must(p.create("apiVersion: v1\nkind: LimitRange\nmetadata: {name: little}\nspec: {limits: [{type: Container, max: {memory: 64Mi}}]}"))
}

// webhook makes the namespace ask before it does something. Without words
// nobody answers.
func (p *place) webhook(resource, operation, words string) client.Object {
	p.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Request struct{ UID string } }
		if err := decode(r.Body, &review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": %q, "allowed": false, "status": {"code": 403, "message": %q}}}`, review.Request.UID, words)
	}))
	p.Cleanup(s.Close)
	url := s.URL
	if words == "" {
		url = "https://127.0.0.1:1"
	}
	group := map[string]string{"pods": "", "jobs": "batch"}[resource]
	hook := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: p.namespace},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "calendar.example.com", SideEffects: new(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			ClientConfig:      admissionv1.WebhookClientConfig{URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": p.namespace}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.OperationType(operation)},
				Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}},
			}},
		}},
	}
	p.must(kube.Create(p.Context(), hook))
	p.Cleanup(func() { _ = kube.Delete(context.Background(), hook) })
	p.asked(resource)
	return hook
}

// policy is a rule that the API server holds itself.
func (p *place) policy() {
	p.Helper()
	name := metav1.ObjectMeta{Name: p.namespace}
	rule := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: name, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}}}},
		Validations: []admissionv1.Validation{{Expression: "false", Message: "agents need a cost centre"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: p.namespace, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": p.namespace}}},
	}}
	for _, o := range []client.Object{rule, binding} {
		p.must(kube.Create(p.Context(), o))
		p.Cleanup(func() { _ = kube.Delete(context.Background(), o) })
	}
	p.asked("pods")
}

// asked waits until the API server holds a new rule.
func (p *place) asked(resource string) {
	p.Helper()
	p.eventually("the rule is in force", func() bool { return kube.Create(p.Context(), probe(resource, p.namespace), client.DryRunAll) != nil })
}

// An image whose USER is a name is run as our user; where the cluster is to
// give one and gives none, its own words tell why it does not run.
func TestAnImagesUserIsAName(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	const named = "docker.io/local/user-name:test"
	p := newPlace(t)
	p.must(err)
	p.image(named, `["/bin/sh", "-c", "echo as $(id -u)"]`, busybox+"=/bin/busybox", "link:busybox=/bin/sh", "link:busybox=/bin/id", "user:agent")
	asked := strings.NewReplacer(shellImage, named)
	p.agent("inject", asked.Replace(shell("echo as $(id -u)")))
	p.agent("bare", "harness: exec\nrunner: bare\nimage: "+named)
	for _, name := range []string{"inject", "bare"} {
		run := p.ended(p.detach(name).ID)
		p.holds(run, tallyman.Completed)
		if got := p.ok("logs", run.ID); got != "as 10001\n" {
			t.Errorf("%s: the transcript is %q", name, got)
		}
	}
	p.stop(syscall.SIGTERM)
	p.env = append(p.env, "TALLYMAN_OPENSHIFT=true")
	p.up()
	p.holds(p.ended(p.detach("bare").ID), tallyman.InvalidSpec, "non-numeric user (agent)")
}
