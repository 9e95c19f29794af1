package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/catalog"
)

// says is what is added to the schema of a field.
type says = map[string]any

// rule is what is said about one field of the spec; [] is an item of a list.
type rule struct {
	path string
	says says
}

// rules are those of package catalog, as far as a schema can hold them, so that
// the API server refuses what would not work, with the field's path.
var rules = []rule{
	{"", says{"x-kubernetes-validations": []any{
		cel("!has(self.runner) || self.runner != 'bare' || !has(self.outputs) || size(self.outputs) == 0", "outputs need a runner, and runner: bare has none", ".outputs"),
		cel("!has(self.runner) || self.runner != 'bare' || !has(self.mcpServers) || size(self.mcpServers) == 0", "MCP servers need a runner, and runner: bare has none", ".mcpServers"),
	}}},
	{"harness", says{"enum": words(catalog.Harnesses)}},
	{"runner", says{"enum": words(tallyman.RunnerModes)}},
	{"workload", says{"enum": words(tallyman.Workloads)}},
	{"command", says{"x-kubernetes-validations": []any{cel("size(self) == 0 || self[0] != ''", "the program's name is empty", "")}, "maxItems": 1000}},
	{"env", says{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"name"}, "maxItems": 1000}},
	{"env[]", says{"required": []any{"name"}}},
	{"env[].name", variable},
	{"envFrom", says{"maxItems": 100}},
	{"envFrom[]", says{"x-kubernetes-validations": []any{
		cel("has(self.secretRef)", "the server's environment and files are not for agents in a cluster; write secretRef", ""),
		cel("!has(self.host)", "the server's environment is not for agents in a cluster; write secretRef", ".host"),
		cel("!has(self.file)", "the server's files are not for agents in a cluster; write secretRef", ".file"),
	}}},
	{"envFrom[].host", says{"maxItems": 100}},
	{"envFrom[].secretRef.name", says{"minLength": 1, "maxLength": 253}},
	{"limits.deadline", duration},
	{"limits.idle", duration},
	{"limits.tool", duration},
	{"limits.maxTurns", says{"minimum": 0}},
	{"limits.budgetUSD", says{"minimum": 0, "maximum": 1e9, "exclusiveMaximum": true}},
	{"limits.maxTokens", says{"minimum": 0}},
	{"concurrency", says{"x-kubernetes-validations": []any{
		cel("!has(self.key)", "not in this version; leave it out", ".key"),
		cel("!has(self.policy)", "not in this version; leave it out", ".policy"),
	}}},
	{"concurrency.max", says{"minimum": 1}},
	{"priority", says{"minimum": -catalog.MaxPriority, "maximum": catalog.MaxPriority}},
	{"retry.max", says{"minimum": 0}},
	{"retry.backoff", duration},
	{"retry.on[]", says{"enum": words(catalog.Retried())}},
	{"outputs[].path", says{"minLength": 1}},
	{"outputs[].schema", anything},
	{"workspace.path", says{"pattern": `^(|fresh|/.*|git:.+)$`}},
	{"mcpServers", says{"type": "object", "additionalProperties": object}},
	{"settings", says{"type": "object", "additionalProperties": anything}},
	{"podTemplate", says{"type": "object", "properties": says{
		"metadata": object, "spec": object,
	}}},
}

var (
	anything = says{"x-kubernetes-preserve-unknown-fields": true}
	object   = says{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	// A duration as time.ParseDuration takes it, without a sign.
	duration = says{"pattern": `^(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+$`, "maxLength": 50}
	variable = says{"pattern": `^[-._a-zA-Z][-._a-zA-Z0-9]*$`, "maxLength": 1000, "x-kubernetes-validations": []any{
		cel("!self.startsWith('TALLYMAN_')", "names that begin with TALLYMAN_ are taken", ""),
	}}
)

func cel(rule, message, field string) says {
	s := says{"rule": rule, "message": message}
	if field != "" {
		s["fieldPath"] = field
	}
	return s
}

func words[S ~string](known []S) []any {
	out := make([]any, len(known))
	for i, k := range slices.Sorted(slices.Values(known)) {
		out[i] = string(k)
	}
	return out
}

// find is the schema of a field.
func find(s map[string]any, path string) (map[string]any, error) {
	for part := range strings.SplitSeq(path, ".") {
		name, item := strings.CutSuffix(part, "[]")
		if name != "" {
			props, _ := s["properties"].(map[string]any)
			next, ok := props[name].(map[string]any)
			if !ok {
				return nil, fmt.Errorf("a rule is about %s, which is no field of the spec", path)
			}
			s = next
		}
		if item {
			s = s["items"].(map[string]any)
		}
	}
	return s, nil
}
