//go:build kube

package kube_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// The API server refuses what is wrong by itself, and names the field.
func TestResourceIsRefused(t *testing.T) {
	p := newNamespace(t)
	p.crd()
	for name, c := range map[string]struct{ spec, says string }{
		"unknown":       {"harness: exec\nimagee: x", `unknown field "spec.imagee"`},
		"unknown-deep":  {"harness: exec\nlimits: {deadlin: 1m}", `unknown field "spec.limits.deadlin"`},
		"unknown-item":  {"harness: exec\nenv: [{name: A, valeu: x}]", `unknown field "spec.env[0].valeu"`},
		"pod":           {"harness: exec\npodTemplate: {spek: {}}", `unknown field "spec.podTemplate.spek"`},
		"no-harness":    {"image: x", "spec.harness: Required value"},
		"harness":       {"harness: exce", `spec.harness: Unsupported value: "exce"`},
		"runner":        {"harness: exec\nrunner: injekt", `spec.runner: Unsupported value: "injekt"`},
		"workload":      {"harness: exec\nworkload: jobs", `spec.workload: Unsupported value: "jobs"`},
		"type":          {"harness: exec\ncommand: make test", "spec.command"},
		"number":        {"harness: exec\nlimits: {maxTurns: many}", "spec.limits.maxTurns"},
		"negative":      {"harness: exec\nlimits: {maxTokens: -1}", "spec.limits.maxTokens: Invalid value"},
		"money":         {"harness: exec\nlimits: {budgetUSD: -0.5}", "spec.limits.budgetUSD: Invalid value"},
		"duration":      {"harness: exec\nlimits: {deadline: 90}", "spec.limits.deadline"},
		"duration-text": {"harness: exec\nlimits: {deadline: soon}", "spec.limits.deadline: Invalid value"},
		"backoff":       {"harness: exec\nretry: {backoff: -1s}", "spec.retry.backoff: Invalid value"},
		"reason":        {"harness: exec\nretry: {'on': [Tired]}", `spec.retry.on[0]: Unsupported value: "Tired"`},
		"never-retried": {"harness: exec\nretry: {'on': [Completed]}", `spec.retry.on[0]: Unsupported value: "Completed"`},
		"twice":         {"harness: exec\nenv: [{name: A, value: b}, {name: A, value: c}]", `spec.env[1]: Duplicate value: {"name":"A"}`},
		"variable":      {"harness: exec\nenv: [{name: 1A, value: b}]", "spec.env[0].name: Invalid value"},
		"ours":          {"harness: exec\nenv: [{name: TALLYMAN_X, value: b}]", "spec.env[0].name: Invalid value"},
		"host":          {"harness: exec\nenvFrom: [{host: [PASSWORD]}]", "spec.envFrom[0].host"},
		"file":          {"harness: exec\nenvFrom: [{file: /etc/passwd}]", "spec.envFrom[0].file"},
		"no-source":     {"harness: exec\nenvFrom: [{optional: true}]", "spec.envFrom[0]: Invalid value"},
		"no-secret":     {"harness: exec\nenvFrom: [{secretRef: {key: a}}]", "spec.envFrom[0].secretRef.name: Required value"},
		"cap":           {"harness: exec\nconcurrency: {max: 0}", "spec.concurrency.max: Invalid value"},
		"cap-key":       {"harness: exec\nconcurrency: {key: k}", "spec.concurrency.key"},
		"priority":      {"harness: exec\npriority: 2000000", "spec.priority: Invalid value"},
		"workspace":     {"harness: exec\nworkspace: {path: here}", "spec.workspace.path: Invalid value"},
		"output":        {"harness: exec\noutputs: [{required: true}]", "spec.outputs[0].path: Required value"},
		"bare-outputs":  {"harness: exec\nrunner: bare\noutputs: [{path: a}]", "spec.outputs: Invalid value"},
		"server":        {"harness: claude\nmcpServers: {files: text}", "spec.mcpServers.files"},
	} {
		t.Run(name, func(t *testing.T) {
			err := p.create(agentResource(name, c.spec))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the API server says %v, want %s", err, c.says)
			}
		})
	}
}

const wholeAgent = `
harness: claude
command: [/opt/claude]
image: example/claude
model: big
env: [{name: A, value: b, mask: true}, {name: EMPTY}]
envFrom: [{secretRef: {name: keys}, optional: true, mask: false}, {secretRef: {name: keys, key: TOKEN}}]
promptFile: true
limits: {deadline: 1h30m, idle: "0", tool: 90s, maxTurns: 0, budgetUSD: 2.5, maxTokens: 2000000}
concurrency: {max: 2}
priority: -5
retry: {max: 2, backoff: 500ms, "on": [NoResult, OOMKilled], safe: true}
outputs: [{path: "out/**/*.json", required: false, schema: {type: object, properties: {a: {type: string}}}}]
workspace: {path: "git:https://example.com/repo.git#main", keep: true}
mcpServers: {files: {command: server, args: [--root, .], required: true, deep: {er: [1, 2.5, null]}}}
settings: {permission-mode: plan, list: [a, 1], flag: true, map: {a: b}}
runner: inject
workload: pod
podTemplate: {metadata: {labels: {a: b}}, spec: {nodeSelector: {a: b}, containers: [{name: agent, resources: {limits: {memory: 1Gi}}}]}}
`

// Everything that an agent file may say is taken, and nothing of it is lost.
func TestResourceKeepsEverything(t *testing.T) {
	p := newNamespace(t)
	p.crd()
	text := agentResource("whole", wholeAgent)
	if err := p.create(text); err != nil {
		t.Fatal(err)
	}
	want, got := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	p.must(yaml.Unmarshal([]byte(text), &want.Object))
	got.SetAPIVersion("tallyman.dev/v1alpha1")
	got.SetKind("Agent")
	p.must(kube.Get(t.Context(), client.ObjectKey{Namespace: p.namespace, Name: "whole"}, got))
	a, err := yaml.Marshal(want.Object["spec"])
	p.must(err)
	b, err := yaml.Marshal(got.Object["spec"])
	p.must(err)
	if string(a) != string(b) {
		t.Errorf("written\n%s\nkept\n%s", a, b)
	}
}
