//go:build kube

package kube_test

import (
	"encoding/json"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What --dry-run prints is what a run becomes: the cluster takes it, and
// nothing is made.
func TestDryRun(t *testing.T) {
	p := newPlace(t)
	p.agent("says", shell("echo hello"))
	var shown, made batchv1.Job
	p.must(json.Unmarshal([]byte(p.ok("run", "--dry-run", "-o", "json", "says", "a prompt")), &shown))
	var all batchv1.JobList
	p.must(kube.List(t.Context(), &all, client.InNamespace(p.namespace)))
	if len(all.Items) != 0 || p.ok("ls", "-o", "name") != "" {
		t.Errorf("something was made: %v", all.Items)
	}
	p.must(kube.Create(t.Context(), &shown, client.DryRunAll))

	run := p.detach("says", "a prompt")
	p.eventually("its Job is there", func() bool {
		return kube.Get(t.Context(), client.ObjectKey{Namespace: p.namespace, Name: run.Name}, &made) == nil
	})
	shown.Spec.Template.Spec.Containers[0].Command[3] = run.ID + "-1" // each run has its own id
	a, b := shown.Spec.Template.Spec, made.Spec.Template.Spec
	if x, y := asJSON(t, a), asJSON(t, b); x != y {
		t.Errorf("shown and made differ:\n%s\n%s", x, y)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
