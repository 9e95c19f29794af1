package catalog_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/catalog"
)

var update = flag.Bool("update", false, "write the golden files anew")

const header = "apiVersion: tallyman.dev/v1alpha1\nkind: Agent\nmetadata: {name: a}\n"

func ptr[T any](v T) *T { return &v }

func TestParseReadsEveryField(t *testing.T) {
	in := `
apiVersion: tallyman.dev/v1alpha1
kind: Agent
metadata:
  name: coder
  namespace: team
  labels: {app: x}
  annotations: {description: writes code, other: y}
spec:
  harness: claude
  command: [wrapper, 5, true]
  image: example.com/coder:1
  model: opus
  env: [{name: PORT, value: 8080}, {name: DEBUG, value: true}, {name: KEY, value: s, mask: true}]
  envFrom: [{host: [API_KEY], optional: true}, {file: .env, mask: false}, {file: /etc/env}, {secretRef: {name: s, key: k}}]
  promptFile: true
  limits: {deadline: 90s, idle: 0, tool: 1h30m, maxTurns: 5, budgetUSD: 2, maxTokens: 1000}
  concurrency: {max: 2}
  priority: -7
  retry: {max: 1, backoff: 10s, on: [NoResult], safe: true}
  outputs: [{path: ./out/**/*.json, required: false, schema: {type: object}}]
  workspace: .
  mcpServers: {files: {command: x, required: true}}
  settings: {permissionMode: plan, n: 1.5}
  podTemplate: {spec: {nodeSelector: {a: b}}}
`
	got, err := catalog.Parse("/etc/agents/coder.yaml", []byte(in))
	if err != nil {
		t.Fatal(err)
	}
	want := []tallyman.Agent{{
		Name: "coder", Namespace: "team", Origin: "/etc/agents/coder.yaml", Description: "writes code",
		Spec: tallyman.AgentSpec{
			Harness: "claude", Command: []string{"wrapper", "5", "true"}, Image: "example.com/coder:1", Model: "opus",
			Env: []tallyman.EnvVar{{Name: "PORT", Value: "8080"}, {Name: "DEBUG", Value: "true"}, {Name: "KEY", Value: "s", Mask: ptr(true)}},
			EnvFrom: []tallyman.EnvSource{{Host: []string{"API_KEY"}, Optional: true}, {File: "/etc/agents/.env", Mask: ptr(false)},
				{File: "/etc/env"}, {SecretRef: &tallyman.SecretRef{Name: "s", Key: "k"}}},
			PromptFile: true,
			Limits: tallyman.Limits{Deadline: ptr(tallyman.Duration(90e9)), Idle: ptr(tallyman.Duration(0)), Tool: ptr(tallyman.Duration(5400e9)),
				MaxTurns: ptr(5), BudgetUSD: ptr(2.0), MaxTokens: ptr(int64(1000))},
			Concurrency: tallyman.Concurrency{Max: ptr(2)}, Priority: -7,
			Retry:       tallyman.Retry{Max: ptr(1), Backoff: tallyman.Duration(10e9), On: []tallyman.Reason{tallyman.NoResult}, Safe: true},
			Outputs:     []tallyman.Output{{Path: "./out/**/*.json", Required: ptr(false), Schema: json.RawMessage(`{"type":"object"}`)}},
			Workspace:   tallyman.Workspace{Path: "/etc/agents"},
			MCPServers:  map[string]json.RawMessage{"files": json.RawMessage(`{"command":"x","required":true}`)},
			Settings:    map[string]json.RawMessage{"permissionMode": json.RawMessage(`"plan"`), "n": json.RawMessage(`1.5`)},
			PodTemplate: json.RawMessage(`{"spec":{"nodeSelector":{"a":"b"}}}`),
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("agents (-want +got):\n%s", diff)
	}
}

func TestParseTakesWhatPeopleWrite(t *testing.T) {
	tests := map[string]struct {
		in    string
		names string
	}{
		"JSON":                          {`{"apiVersion": "tallyman.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "a"}, "spec": {"harness": "exec"}}`, "a"},
		"several documents":             {header + "spec: {harness: exec}\n---\n---\n" + strings.Replace(header, "name: a", "name: b", 1) + "spec: {harness: exec}\n", "a b"},
		"one name in two namespaces":    {header + "spec: {harness: exec}\n---\n" + strings.Replace(header, "name: a", "name: a, namespace: team", 1) + "spec: {harness: exec}\n", "a a"},
		"an anchor used again":          {header + "spec: {harness: exec, env: [{name: A, value: &v x}, {name: B, value: *v}]}", "a"},
		"a git workspace without a ref": {header + "spec: {harness: exec, workspace: \"git:https://example.com/r.git\"}", "a"},
		"a git workspace with a ref":    {header + "spec: {harness: exec, workspace: {path: \"git:https://example.com/r.git#main\", keep: true}}", "a"},
		"nulls where nothing is said":   {header + "spec:\n  harness: exec\n  env:\n  limits:\n  outputs: ~\n  workspace:\n  podTemplate:\n", "a"},
		"a schema of true":              {header + "spec: {harness: exec, outputs: [{path: a, schema: true}]}", "a"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			agents, err := catalog.Parse("f.yaml", []byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, a := range agents {
				names = append(names, a.Name)
			}
			if got := strings.Join(names, " "); got != tt.names {
				t.Errorf("agents %q, want %q", got, tt.names)
			}
		})
	}
}

func TestPathsStartAtTheFile(t *testing.T) {
	for given, want := range map[string]string{".": "/x/agents", "./w": "/x/agents/w", "../w": "/x/w", "w/v": "/x/agents/w/v", "/w": "/w", "fresh": "fresh"} {
		agents, err := catalog.Parse("/x/agents/f.yaml", []byte(header+"spec: {harness: exec, workspace: "+given+"}"))
		if err != nil {
			t.Error(err)
			continue
		}
		if got := agents[0].Spec.Workspace.Path; got != want {
			t.Errorf("workspace %s is %s, want %s", given, got, want)
		}
	}
}

// What is wrong in spec is at line 4, the first column of the braces 7.
func TestParseRefuses(t *testing.T) {
	spec := func(s string) string { return header + "spec: {harness: exec, " + s + "}\n" }
	tests := map[string]struct{ in, want string }{
		"nothing":              {"# soon\n", "f.yaml:1:1: there is no agent in this file; `tallyman init NAME` writes one"},
		"bad YAML":             {header + "spec: [\n", `f.yaml:4:7: bad YAML: sequence end token ']' not found`},
		"an unknown key":       {header + "spec:\n  harness: claude\n  modle: opus\n", `f.yaml:6:3: unknown key "modle" in spec; did you mean "model"?`},
		"a wrong type":         {spec("limits: {deadline: 5}"), `f.yaml:4:42: spec.limits.deadline: 5 is a number; write a duration like 90s`},
		"a number for a model": {spec("model: 4"), `f.yaml:4:30: spec.model: 4 is a number; write it in quotes: "4"`},
		"no head": {"metadata: {name: a}\nspec: {harness: exec}", `f.yaml:1:1: apiVersion: is missing; write apiVersion: tallyman.dev/v1alpha1
f.yaml:1:1: kind: is missing; write kind: Agent`},
		"another version":          {strings.Replace(spec("model: a"), "v1alpha1", "v2", 1), `f.yaml:1:13: apiVersion: "tallyman.dev/v2" is not known; write tallyman.dev/v1alpha1`},
		"a kind nearly right":      {strings.Replace(spec("model: a"), "kind: Agent", "kind: agent", 1), `f.yaml:2:7: kind: "agent" is not known; write Agent`},
		"another kind":             {"apiVersion: v1\nkind: ConfigMap\ndata: {a: b}", `f.yaml:2:7: kind: "ConfigMap" is no agent; move the document to a place that is not searched for agents`},
		"no name":                  {strings.Replace(spec("model: a"), "{name: a}", "{}", 1), `f.yaml:3:1: metadata.name: is missing; every agent has a name`},
		"no name, twice":           {strings.Repeat(strings.Replace(spec("model: a"), "{name: a}", "{}", 1)+"---\n", 2), "f.yaml:3:1: metadata.name: is missing; every agent has a name\nf.yaml:8:1: metadata.name: is missing; every agent has a name"},
		"a bad name":               {strings.Replace(spec("model: a"), "name: a", "name: My Agent", 1), `f.yaml:3:18: metadata.name: agent "My Agent": use lowercase letters, digits and dashes, at most 53, with a letter or digit at both ends`},
		"a bad namespace":          {strings.Replace(spec("model: a"), "name: a", "name: a, namespace: A", 1), `f.yaml:3:32: metadata.namespace: namespace "A": use lowercase letters, digits and dashes, at most 53, with a letter or digit at both ends`},
		"one name twice":           {spec("model: a") + "---\n" + spec("model: a"), `f.yaml:8:18: metadata.name: agent a is in this file twice`},
		"no spec":                  {header, `f.yaml:1:1: spec.harness: is missing; write one of claude, codex, exec, gemini, opencode, script`},
		"no harness":               {header + "spec:\n  model: a\n", `f.yaml:4:1: spec.harness: is missing; write one of claude, codex, exec, gemini, opencode, script`},
		"a harness nearly right":   {header + "spec:\n  harness: cluade\n", `f.yaml:5:12: spec.harness: unknown harness "cluade"; did you mean "claude"?`},
		"a harness of another":     {header + "spec:\n  harness: crush\n", `f.yaml:5:12: spec.harness: unknown harness "crush"; write one of claude, codex, exec, gemini, opencode, script`},
		"the harness's key wrong":  {header + "spec:\n  harnes: claude\n", `f.yaml:5:3: unknown key "harnes" in spec; did you mean "harness"?`},
		"no program":               {spec(`command: [""]`), `f.yaml:4:33: spec.command[0]: the program's name is empty`},
		"a NUL in a command":       {spec(`command: [a, "\0"]`), `f.yaml:4:36: spec.command[1]: a NUL byte cannot be passed to a program`},
		"no name of a variable":    {spec("env: [{value: x}]"), `f.yaml:4:29: spec.env[0].name: is missing; every variable has a name`},
		"a bad name of a variable": {spec("env: [{name: 1A, value: x}]"), `f.yaml:4:36: spec.env[0].name: "1A" is no name of a variable; use letters, digits and _, not a digit first`},
		"a variable of ours":       {spec("env: [{name: TALLYMAN_ATTEMPT, value: x}]"), `f.yaml:4:36: spec.env[0].name: TALLYMAN_ATTEMPT is set by tallyman; names that begin with TALLYMAN_ are taken`},
		"a NUL in a variable":      {spec(`env: [{name: A, value: "\0"}]`), `f.yaml:4:46: spec.env[0].value: a NUL byte cannot be in a variable`},
		"a variable set twice":     {spec("env: [{name: A, value: x}, {name: A, value: y}]"), `f.yaml:4:57: spec.env[1].name: A is set already by env[0]`},
		"env as a mapping":         {spec("env: {A: x}"), `f.yaml:4:28: spec.env: this is a mapping; write a list, each item after a dash`},
		"envFrom of nothing":       {spec("envFrom: [{optional: true}]"), `f.yaml:4:33: spec.envFrom[0]: give exactly one of host, file and secretRef; here are 0`},
		"envFrom of two":           {spec("envFrom: [{host: [A], file: b}]"), `f.yaml:4:33: spec.envFrom[0]: give exactly one of host, file and secretRef; here are 2`},
		"envFrom of no names":      {spec("envFrom: [{host: []}]"), `f.yaml:4:34: spec.envFrom[0].host: the list is empty; name the variables to take from the server's environment`},
		"envFrom of a bad name":    {spec(`envFrom: [{host: ["A B"]}]`), `f.yaml:4:41: spec.envFrom[0].host[0]: "A B" is no name of a variable; use letters, digits and _, not a digit first`},
		"a file in a home":         {spec("envFrom: [{file: ~/.env}]"), `f.yaml:4:40: spec.envFrom[0].file: "~/.env": ~ is not expanded here; write the whole path`},
		"a secret without a name":  {spec("envFrom: [{secretRef: {key: a}}]"), `f.yaml:4:34: spec.envFrom[0].secretRef.name: is missing; name the Secret`},
		"limits that make no sense": {spec("limits: {maxTurns: -1, budgetUSD: -2, maxTokens: -3}"), `f.yaml:4:42: spec.limits.maxTurns: -1 is negative; 0 means no limit
f.yaml:4:57: spec.limits.budgetUSD: -2 is not an amount of dollars; 0 means no limit
f.yaml:4:72: spec.limits.maxTokens: -3 is negative; 0 means no limit`},
		"a negative deadline": {spec("limits: {deadline: -5s}"), `f.yaml:4:42: spec.limits.deadline: duration -5s is negative`},
		"concurrency of later": {spec("concurrency: {key: a, policy: queue}"), `f.yaml:4:42: spec.concurrency.key: not in this version; leave it out
f.yaml:4:53: spec.concurrency.policy: not in this version; leave it out`},
		"a cap of nothing":             {spec("concurrency: {max: 0}"), `f.yaml:4:42: spec.concurrency.max: 0 would never run anything; write 1 or more, or leave it out for no cap`},
		"a priority too high":          {spec("priority: 1000001"), `f.yaml:4:33: spec.priority: 1000001 is outside -1000000 to 1000000`},
		"a priority too low":           {spec("priority: -1000001"), `f.yaml:4:33: spec.priority: -1000001 is outside -1000000 to 1000000`},
		"a negative number of retries": {spec("retry: {max: -1}"), `f.yaml:4:36: spec.retry.max: -1 is negative; 0 means no retry`},
		"a reason nearly right":        {spec("retry: {on: [noresult]}"), `f.yaml:4:36: spec.retry.on[0]: unknown reason "noresult"; did you mean "NoResult"?`},
		"a runner of no kind":          {spec("runner: injct"), `f.yaml:4:31: spec.runner: "injct" is none of inject, image, bare; did you mean "inject"?`},
		"a workload of no kind":        {spec("workload: deployment"), `f.yaml:4:33: spec.workload: "deployment" is none of job, pod`},
		"a reason of no kind":          {spec("retry: {on: [Bad]}"), `f.yaml:4:36: spec.retry.on[0]: unknown reason "Bad"; write one of AgentError, AuthExpired, BackendError, BudgetExceeded, ConfigMissing, DeadlineExceeded, Evicted, IdleTimeout, ImagePullFailed, InvalidSpec, JournalMismatch, MaxTurns, NoOutput, NoResult, NodeLost, OOMKilled, OutputInvalid, OutputTooLarge, Overloaded, PodDeleted, Preempted, ProviderError, RateLimited, RefusedByModel, RunnerLost, ServerUnreachable, SetupFailed, StartTimeout, TokenLimit, Unschedulable`},
		"a reason without failure":     {spec("retry: {on: [Completed, Stopped]}"), "f.yaml:4:36: spec.retry.on[0]: Completed is never retried\nf.yaml:4:47: spec.retry.on[1]: Stopped is never retried"},
		"an output without a path":     {spec("outputs: [{required: true}]"), `f.yaml:4:33: spec.outputs[0].path: is missing; write a pattern of files in the workspace, like report.md or out/**/*.json`},
		"an absolute output":           {spec("outputs: [{path: /etc/x}]"), `f.yaml:4:40: spec.outputs[0].path: "/etc/x" is absolute; outputs are named from the workspace`},
		"an output elsewhere":          {spec("outputs: [{path: a/../../b}]"), `f.yaml:4:40: spec.outputs[0].path: "a/../../b" leaves the workspace; outputs lie in it`},
		"the workspace as output":      {spec("outputs: [{path: ./}]"), `f.yaml:4:40: spec.outputs[0].path: "./" is the workspace itself; write ** for every file in it`},
		"a NUL in an output":           {spec(`outputs: [{path: "a\0"}]`), `f.yaml:4:40: spec.outputs[0].path: "a\u0000" has a NUL byte, which no file has`},
		"stars beside letters":         {spec("outputs: [{path: a/**b}]"), `f.yaml:4:40: spec.outputs[0].path: "a/**b": ** stands for whole folders; write it alone between slashes`},
		"a bad pattern":                {spec(`outputs: [{path: "a/[b"}]`), `f.yaml:4:40: spec.outputs[0].path: "a/[b" is no pattern: "[b" has a [ without its ], or ends in a backslash`},
		"a schema of a wrong type":     {spec("outputs: [{path: a, schema: {type: objekt}}]"), `f.yaml:4:43: spec.outputs[0].schema: this is no JSON Schema: '/type': value must be one of 'array', 'boolean', 'integer', 'null', 'number', 'object', 'string'`},
		"a schema that is a number":    {spec("outputs: [{path: a, schema: 5}]"), `f.yaml:4:51: spec.outputs[0].schema: this is no JSON Schema: got number, want boolean or object`},
		"a schema from elsewhere":      {spec("outputs: [{path: a, schema: {$ref: \"file:///etc/passwd\"}}]"), `f.yaml:4:43: spec.outputs[0].schema: this is no JSON Schema: failing loading "file:///etc/passwd": no URLLoader registered for "file:///etc/passwd"`},
		"a schema of itself":           {spec("outputs: [{path: a, schema: {$ref: \"#/no\"}}]"), `f.yaml:4:43: spec.outputs[0].schema: this is no JSON Schema: json-pointer in "#/no" not found`},
		"a workspace nearly right":     {spec("workspace: frsh"), `f.yaml:4:34: spec.workspace: "frsh" is neither fresh, an absolute path nor git:URL#ref; did you mean "fresh"?`},
		"a workspace in a home":        {spec("workspace: ~/w"), `f.yaml:4:34: spec.workspace: "~/w": ~ is not expanded here; write the whole path`},
		"a bad git workspace":          {spec(`workspace: "git:--upload-pack=x#main"`), `f.yaml:4:34: spec.workspace: "git:--upload-pack=x#main" is not git:URL#ref, like git:https://example.com/repo.git#main`},
		"a bad git ref":                {spec(`workspace: "git:u#-f"`), `f.yaml:4:34: spec.workspace: "git:u#-f" is not git:URL#ref, like git:https://example.com/repo.git#main`},
		"an MCP server without keys":   {spec("mcpServers: {a: cmd}"), `f.yaml:4:39: spec.mcpServers.a: this is no mapping; describe the server as its harness knows it: command and args, or url`},
		"an MCP server required maybe": {spec("mcpServers: {a: {required: maybe}}"), `f.yaml:4:36: spec.mcpServers.a.required: "maybe" is neither true nor false`},
		"a Pod template without keys":  {spec("podTemplate: [a]"), `f.yaml:4:23: spec.podTemplate: this is no mapping; write a Pod's metadata and spec`},
		"everything at once": {"apiVersion: v1\nkind: Agent\nmetadata: {nam: a}\nspec:\n  harness: cloude\n  limits: {deadline: soon, maxTurn: 5}\n  priority: 9999999\n",
			`f.yaml:1:13: apiVersion: "v1" is not known; write tallyman.dev/v1alpha1
f.yaml:3:12: unknown key "nam" in metadata; did you mean "name"?
f.yaml:5:12: spec.harness: unknown harness "cloude"; did you mean "claude"?
f.yaml:6:22: spec.limits.deadline: "soon" is not a duration: write it like 90s, 15m or 2h
f.yaml:6:28: unknown key "maxTurn" in spec.limits; did you mean "maxTurns"?
f.yaml:7:13: spec.priority: 9999999 is outside -1000000 to 1000000`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			agents, err := catalog.Parse("f.yaml", []byte(tt.in))
			if err == nil {
				t.Fatal("it was accepted")
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if tallyman.CodeOf(err) != tallyman.Invalid || agents != nil {
				t.Errorf("code %s with %d agents, want invalid with none", tallyman.CodeOf(err), len(agents))
			}
		})
	}
}

func TestScriptSteps(t *testing.T) {
	got, err := catalog.ScriptSteps([]byte("- say: <hello>\n- sleep: 1s\n- exit: 3\n- hang\n"))
	if err != nil {
		t.Fatal(err)
	}
	var steps []any
	if err := json.Unmarshal(got, &steps); err != nil {
		t.Fatal(err)
	}
	want := []any{map[string]any{"say": "<hello>"}, map[string]any{"sleep": "1s"}, map[string]any{"exit": 3.0}, "hang"}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	for in, want := range map[string]string{
		"":                        "steps: 0 documents; write one list of steps",
		"- a\n---\n- b":           "steps: 2 documents; write one list of steps",
		"say hello":               `steps:1:1: "say hello" is text; write a list, each item after a dash`,
		"say: hello":              "steps:1:1: this is a mapping; write a list, each item after a dash",
		"- say: a\n- say: [b":     "steps:2:8: bad YAML: sequence end token ']' not found",
		"- usage: {a: 1, a: 2}\n": `steps:1:17: key "a" is given twice in [0].usage; the first is on line 1`,
	} {
		if _, err := catalog.ScriptSteps([]byte(in)); err == nil || err.Error() != want || tallyman.CodeOf(err) != tallyman.Invalid {
			t.Errorf("steps %q: %v, want %s", in, err, want)
		}
	}
}

func TestTemplateIsAnAgentFile(t *testing.T) {
	for _, harness := range append(catalog.Harnesses, "") {
		out, err := catalog.Template("my-agent", harness)
		if err != nil {
			t.Fatal(err)
		}
		agents, err := catalog.Parse("my-agent.yaml", out)
		if err != nil {
			t.Errorf("template of %q: %v", harness, err)
			continue
		}
		want := harness
		if want == "" {
			want = "claude"
		}
		if len(agents) != 1 || agents[0].Name != "my-agent" || agents[0].Spec.Harness != want {
			t.Errorf("template of %q makes %+v", harness, agents)
		}
		// Each comment that shows a key must be right too.
		if _, err := catalog.Parse("my-agent.yaml", uncomment(out)); err != nil {
			t.Errorf("template of %q with its comments as keys: %v", harness, err)
		}
		if harness != "claude" && harness != "exec" && harness != "script" {
			continue
		}
		golden := filepath.Join("testdata", "template-"+harness+".yaml")
		if *update {
			if err := os.WriteFile(golden, out, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		kept, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(kept), string(out)); diff != "" {
			t.Errorf("template of %s (-golden +got):\n%s", harness, diff)
		}
	}
	if _, err := catalog.Template("My Agent", "exec"); tallyman.CodeOf(err) != tallyman.Invalid {
		t.Errorf("a bad name gives %v", err)
	}
	if _, err := catalog.Template("a", "clod"); tallyman.CodeOf(err) != tallyman.Invalid {
		t.Errorf("a bad harness gives %v", err)
	}
}

// uncomment makes keys of the comments that show them: those indented like
// keys, with a word and a colon, or a dash, or what is indented under such.
func uncomment(in []byte) []byte {
	var out []string
	shown := false
	for line := range strings.SplitSeq(string(in), "\n") {
		text, ok := strings.CutPrefix(strings.TrimLeft(line, " "), "# ")
		word, _, colon := strings.Cut(strings.TrimSpace(text), ":")
		key := colon && word != "" && !strings.ContainsAny(word, " {}[]") && line[0] == ' '
		item := strings.HasPrefix(strings.TrimSpace(text), "- ")
		if shown = ok && (key || item || shown && text[0] == ' '); shown {
			line = strings.Replace(line, "# ", "", 1)
		}
		out = append(out, line)
	}
	return []byte(strings.Join(out, "\n"))
}

func TestBuiltinAgentsAreValid(t *testing.T) {
	var names []string
	for _, a := range catalog.Builtin(json.RawMessage(`[{"say":"hi"}]`)) {
		names = append(names, a.Name)
		if err := catalog.Validate(a); err != nil {
			t.Errorf("%s: %v", a.Name, err)
		}
		if a.Origin != tallyman.BuiltIn {
			t.Errorf("%s comes from %q", a.Name, a.Origin)
		}
	}
	if diff := cmp.Diff([]string{"claude", "codex", "demo", "exec", "gemini", "opencode"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func TestValidateOfARequestKeepsItsOwnRules(t *testing.T) {
	a := tallyman.Agent{Name: "a", Spec: tallyman.AgentSpec{Harness: "exec", Env: []tallyman.EnvVar{{Name: "A", Value: "agent"}, {Name: "A", Value: "request"}}}}
	if err := catalog.Validate(a); err != nil {
		t.Errorf("a request cannot set what its agent sets: %v", err)
	}
	a.Spec.Workspace.Path, a.Spec.EnvFrom = "here", []tallyman.EnvSource{{File: ".env"}}
	want := `spec.envFrom[0].file: ".env" is relative to no agent file; write an absolute path
spec.workspace: "here" is neither fresh, an absolute path nor git:URL#ref`
	if err := catalog.Validate(a); err == nil || err.Error() != want {
		t.Errorf("relative paths give %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		header + "spec: {harness: exec}", header + "spec:\n  harness: claude\n  env: [{name: A, value: 1}]\n  settings: {a: [1, 2.5e3, null, \"<\"]}\n  retry: {backoff: 1s}\n",
		"{\"apiVersion\": \"tallyman.dev/v1alpha1\"}", header + "---\n" + header,
		header + "spec: {harness: exec, outputs: [{path: a, schema: {type: object}}], workspace: {path: ., keep: true}, mcpServers: {a: {}}, podTemplate: {}}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		agents, err := catalog.Parse("/x/f.yaml", data)
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Error("an error says nothing")
			}
			return
		}
		for _, a := range agents {
			if err := catalog.Validate(a); err != nil {
				t.Fatalf("accepted, but %v", err)
			}
			again, err := catalog.Parse("/x/f.yaml", asFile(t, a))
			if err != nil {
				t.Fatalf("written again it is refused: %v\n%s", err, asFile(t, a))
			}
			if diff := cmp.Diff(plain(t, a), plain(t, again[0])); diff != "" {
				t.Errorf("written again it differs:\n%s", diff)
			}
		}
	})
}

// plain is an agent as its JSON tells it, whatever the spaces in it.
func plain(t *testing.T, a tallyman.Agent) any {
	t.Helper()
	out, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func asFile(t *testing.T, a tallyman.Agent) []byte {
	t.Helper()
	out, err := json.Marshal(map[string]any{
		"apiVersion": tallyman.APIVersion, "kind": tallyman.KindAgent,
		"metadata": map[string]any{"name": a.Name, "namespace": a.Namespace, "annotations": map[string]string{"description": a.Description}},
		"spec":     a.Spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func BenchmarkParse(b *testing.B) {
	data, err := catalog.Template("a", "claude")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := catalog.Parse("a.yaml", data); err != nil {
			b.Fatal(err)
		}
	}
}
