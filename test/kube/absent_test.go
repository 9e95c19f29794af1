//go:build kube

package kube_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// configCRD is the kind of the task executor, as far as it matters here.
const configCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: configs.agent.benjamin-borbe.de}
spec:
  group: agent.benjamin-borbe.de
  scope: Namespaced
  names: {kind: Config, listKind: ConfigList, plural: configs, singular: config, shortNames: [cfg]}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// A kind that the cluster does not know when the server starts is said once,
// keeps nothing else from working, and is read when it comes.
func TestResourceKindThatComesLater(t *testing.T) {
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(configCRD), &crd.Object); err != nil {
		t.Fatal(err)
	}
	_ = kube.Delete(t.Context(), crd.DeepCopy())
	p := newPlace(t)
	p.crd()
	p.must(p.create(agentResource("other", shell("true"))))
	p.eventually("the other kind works", func() bool { return strings.Contains(p.ok("agents"), "/Agent/"+p.namespace+"/other") })
	told := func() int {
		text, err := os.ReadFile(p.log.Name())
		p.must(err)
		return strings.Count(string(text), "resource=configs.agent.benjamin-borbe.de")
	}
	p.eventually("the absent kind is told", func() bool { return told() > 0 })
	p.must(kube.Create(t.Context(), crd))
	t.Cleanup(func() { _ = kube.Delete(context.Background(), crd) })
	legacy := "apiVersion: agent.benjamin-borbe.de/v1\nkind: Config\nmetadata: {name: legacy}\n" +
		"spec: {assignee: legacy, heartbeat: 5m, taskType: code, image: " + shellImage + ", env: {GREETING: hello}}\n"
	p.eventually("a Config can be made", func() bool { return p.create(legacy) == nil })
	p.eventually("it is an agent", func() bool { return strings.Contains(p.ok("agents"), "/Config/"+p.namespace+"/legacy") })
	run := p.detach(p.namespace + "/legacy")
	var jobs batchv1.JobList
	p.eventually("it has a Job", func() bool {
		p.must(kube.List(t.Context(), &jobs, client.InNamespace(p.namespace), client.MatchingLabels{"tallyman.dev/run": run.ID}))
		return len(jobs.Items) == 1
	})
	pod := jobs.Items[0].Spec.Template.Spec
	c := pod.Containers[0]
	if len(pod.InitContainers) > 0 || len(c.Command) > 0 || c.Image != shellImage || c.ImagePullPolicy != corev1.PullAlways || !slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == "GREETING" && v.Value == "hello" }) {
		t.Errorf("its container is %+v", c)
	}
	p.ok("stop", run.ID)
	if n := told(); n > 2 { // that it is absent, that it is there
		t.Errorf("it was told %d times", n)
	}
}
