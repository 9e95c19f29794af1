//go:build kube

package kube_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/api/v1alpha1"
)

// create gives the cluster a document, as kubectl would: strictly.
func (p *place) create(text string) error {
	p.Helper()
	var u unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		p.Fatal(err)
	}
	u.SetNamespace(p.namespace)
	return kube.Create(p.Context(), &u, client.FieldValidation(metav1.FieldValidationStrict))
}

// newNamespace makes a namespace without a server.
func newNamespace(t *testing.T) *place {
	t.Helper()
	p := &place{T: t, namespace: strings.ToLower(fmt.Sprintf("t-%x", time.Now().UnixNano()))}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
	p.must(kube.Create(t.Context(), ns))
	t.Cleanup(func() { _ = kube.Delete(context.Background(), ns) })
	return p
}

// crd makes the cluster know the kind Agent.
func (p *place) crd() {
	p.Helper()
	kubectl := filepath.Join(os.Getenv("HOME"), ".cache/tallyman-cluster/bin/kubectl")
	for _, args := range [][]string{
		{"apply", "--server-side", "--force-conflicts", "-f", "../../deploy/crds/"},
		{"wait", "--for=condition=Established", "--timeout=60s", "crd/agents.tallyman.dev"},
	} {
		if out, err := exec.Command(kubectl, append([]string{"--kubeconfig", kubeconfig}, args...)...).CombinedOutput(); err != nil {
			p.Fatalf("kubectl %s: %v\n%s", args[0], err, out)
		}
	}
}

// status is what the server has written into an agent, and whether it is ready.
func (p *place) status(name string) (v1alpha1.AgentStatus, metav1.Condition) {
	p.Helper()
	var a v1alpha1.Agent
	if err := kube.Get(p.Context(), client.ObjectKey{Namespace: p.namespace, Name: name}, &a); err != nil {
		p.Fatal(err)
	}
	for _, c := range a.Status.Conditions {
		if c.Type == v1alpha1.Ready {
			return a.Status, c
		}
	}
	return a.Status, metav1.Condition{}
}

func agentResource(name, spec string) string {
	return "apiVersion: tallyman.dev/v1alpha1\nkind: Agent\nmetadata: {name: " + name + "}\nspec:\n  " + strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  ") + "\n"
}

// An agent that is a resource is run beside itself, its status counts its
// runs, and when it is gone it cannot be run any more.
func TestResourceIsAnAgent(t *testing.T) {
	p := newPlace(t)
	p.crd()
	p.must(v1alpha1.AddToScheme(kube.Scheme()))
	p.must(p.create(agentResource("worker", shell("echo at work; sleep 5; echo done"))))
	p.must(p.create(agentResource("bad", "harness: exec\nimage: x\ncommand: [x]\npodTemplate: {spec: {hostNetwork: true}}")))
	p.eventually("worker is ready", func() bool {
		_, ready := p.status("worker")
		return ready.Status == metav1.ConditionTrue && ready.Reason == v1alpha1.ReasonValid
	})
	p.eventually("bad says which field is wrong", func() bool {
		_, ready := p.status("bad")
		return ready.Status == metav1.ConditionFalse && strings.Contains(ready.Message, "hostNetwork")
	})
	name := p.namespace + "/worker"
	if out := p.ok("agents"); !strings.Contains(out, "resource:tallyman.dev/Agent/"+name) || strings.Contains(out, p.namespace+"/bad") {
		t.Errorf("agents does not list what can be run:\n%s", out)
	}
	if out := p.inFolder("agents", name); !strings.Contains(out, `"worker"`) {
		t.Errorf("the command line of the data folder does not show it:\n%s", out)
	}
	if _, err := p.try("run", "-d", p.namespace+"/bad"); err == nil || !strings.Contains(err.Error(), "hostNetwork") {
		t.Errorf("one that is not ready: %v", err)
	}
	if _, err := p.try("run", "-d", "worker"); err == nil || !strings.Contains(err.Error(), "there is "+name) {
		t.Errorf("without its namespace: %v", err)
	}
	run := p.detach(name)
	if run.Namespace != p.namespace {
		t.Errorf("its namespace is %q, want %q", run.Namespace, p.namespace)
	}
	p.eventually("its status counts it as running", func() bool { s, _ := p.status("worker"); return s.Running == 1 })
	var jobs batchv1.JobList
	p.must(kube.List(t.Context(), &jobs, client.InNamespace(p.namespace), client.MatchingLabels{"tallyman.dev/run": run.ID}))
	if len(jobs.Items) != 1 {
		t.Errorf("%d Jobs in its namespace, want 1", len(jobs.Items))
	}
	p.holds(p.ended(run.ID), tallyman.Completed)
	for _, named := range []string{run.Name, p.namespace + "/" + run.Name} {
		if out := p.ok("logs", named); !strings.Contains(out, "at work") {
			t.Errorf("logs %s says %q", named, out)
		}
	}
	if out := p.ok("show", run.Name); !strings.Contains(out, name+", harness exec") || !strings.Contains(out, "in namespace "+p.namespace) {
		t.Errorf("show says %s", out)
	}
	p.eventually("its status counts it as succeeded", func() bool {
		s, _ := p.status("worker")
		return s.Running == 0 && s.Queued == 0 && s.Succeeded == 1
	})
	if out := p.ok("ls", "--namespace", p.namespace, "-o", "name"); strings.TrimSpace(out) != run.Name {
		t.Errorf("ls says %q, want %s", out, run.Name)
	}
	p.must(kube.Delete(t.Context(), &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "worker", Namespace: p.namespace}}))
	p.eventually("it cannot be run any more", func() bool {
		_, err := p.try("run", "-d", name)
		return err != nil && strings.Contains(err.Error(), "unknown agent")
	})
}
