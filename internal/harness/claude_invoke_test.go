package harness

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
)

func claudeSpec(change func(*tallyman.RunnerSpec)) tallyman.RunnerSpec {
	spec := tallyman.RunnerSpec{
		Agent: tallyman.AgentSpec{Harness: "claude"}, Prompt: "hi", PromptSize: 2, WorkDir: "/work",
	}
	if change != nil {
		change(&spec)
	}
	return spec
}

func settings(kv ...string) map[string]json.RawMessage {
	m := map[string]json.RawMessage{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = json.RawMessage(kv[i+1])
	}
	return m
}

func TestClaudeArguments(t *testing.T) {
	base := []string{"claude", "-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"}
	skipping := append(base[:len(base):len(base)], "--dangerously-skip-permissions")
	five := 5
	for name, tc := range map[string]struct {
		change func(*tallyman.RunnerSpec)
		want   []string
		files  map[string]string
	}{
		"nothing set": {nil, skipping, nil},
		"a wrapper stands before our flags": {
			func(s *tallyman.RunnerSpec) { s.Agent.Command = []string{"nice", "claude2"} },
			append([]string{"nice", "claude2"}, skipping[1:]...), nil,
		},
		"model and turns": {
			func(s *tallyman.RunnerSpec) { s.Agent.Model = "claude-haiku-4-5"; s.Agent.Limits.MaxTurns = &five },
			append(skipping[:len(skipping):len(skipping)], "--max-turns", "5", "--model", "claude-haiku-4-5"), nil,
		},
		"zero turns is no limit": {
			func(s *tallyman.RunnerSpec) { s.Agent.Limits.MaxTurns = new(int) }, skipping, nil,
		},
		"a permission mode replaces skipping": {
			func(s *tallyman.RunnerSpec) { s.Agent.Settings = settings("permissionMode", `"acceptEdits"`) },
			append(base[:len(base):len(base)], "--permission-mode", "acceptEdits"), nil,
		},
		"MCP servers go to a file, without what is ours": {
			func(s *tallyman.RunnerSpec) {
				s.Agent.MCPServers = settings("b", `{"command":"x","required":true}`, "a", `{"type":"sse","url":"http://a/?x=1&y=2"}`)
			},
			append(skipping[:len(skipping):len(skipping)], "--mcp-config", "/state/mcp.json", "--strict-mcp-config"),
			map[string]string{"/state/mcp.json": `{"mcpServers":{"a":{"type":"sse","url":"http://a/?x=1&y=2"},"b":{"command":"x"}}}`},
		},
		"everything else": {
			func(s *tallyman.RunnerSpec) {
				s.Agent.Settings = settings("allowedTools", `["Read","Bash(git log:*)"]`, "disallowedTools", `["Write"]`,
					"systemPrompt", `"be kind"`, "appendSystemPrompt", `"be brief"`, "jsonSchema", `{"type":"object"}`,
					"effort", `"low"`, "fallbackModel", `"m2"`, "pluginDirs", `["/p1","/p2"]`, "addDirs", `["/d1","/d2"]`,
					"includeHookEvents", `true`, "settings", `{"env":{}}`, "args", `["--debug"]`)
			},
			append(skipping[:len(skipping):len(skipping)], "--settings", "/state/claude-settings.json",
				"--allowedTools", "Read", "Bash(git log:*)", "--disallowedTools", "Write",
				"--system-prompt", "be kind", "--append-system-prompt", "be brief", "--json-schema", `{"type":"object"}`,
				"--effort", "low", "--fallback-model", "m2", "--plugin-dir", "/p1", "--plugin-dir", "/p2",
				"--add-dir", "/d1", "/d2", "--include-hook-events", "--debug"),
			map[string]string{"/state/claude-settings.json": `{"env":{}}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inv, err := claude{uid: 1000}.Invoke(claudeSpec(tc.change), "/state")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, inv.Argv); diff != "" {
				t.Errorf("argv (-want +got):\n%s", diff)
			}
			files := map[string]string{}
			for name, content := range inv.Files {
				files[name] = string(content)
			}
			if tc.files == nil {
				tc.files = map[string]string{}
			}
			if diff := cmp.Diff(tc.files, files); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if !inv.PromptOnStdin || strings.Contains(strings.Join(inv.Argv, " "), "hi ") {
				t.Error("the prompt is not on standard input alone")
			}
		})
	}
}

func TestClaudeRefusesWhatCannotWork(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*tallyman.RunnerSpec)
		reason tallyman.Reason
		says   string
	}{
		"an unknown setting": {
			func(s *tallyman.RunnerSpec) { s.Agent.Settings = settings("allowedTool", `[]`) }, tallyman.InvalidSpec, "did you mean allowedTools?",
		},
		"a wrong type": {
			func(s *tallyman.RunnerSpec) { s.Agent.Settings = settings("addDirs", `"/x"`) }, tallyman.InvalidSpec, "settings.addDirs: a list of strings",
		},
		"a schema that is no object": {
			func(s *tallyman.RunnerSpec) { s.Agent.Settings = settings("jsonSchema", `"x"`) }, tallyman.InvalidSpec, "an object",
		},
		"two faults are told at once": {
			func(s *tallyman.RunnerSpec) {
				s.Agent.Settings = settings("effort", `1`)
				s.Agent.MCPServers = settings("x", `[]`)
			}, tallyman.InvalidSpec, "settings.effort: a string is wanted; mcpServers.x: an object",
		},
		"required that is no boolean": {
			func(s *tallyman.RunnerSpec) { s.Agent.MCPServers = settings("x", `{"required":"yes"}`) }, tallyman.InvalidSpec, "mcpServers.x.required",
		},
		"a model that is a flag": {
			func(s *tallyman.RunnerSpec) { s.Agent.Model = "--help" }, tallyman.InvalidSpec, "dash",
		},
		"a system prompt longer than an argument": {
			func(s *tallyman.RunnerSpec) {
				s.Agent.Settings = settings("systemPrompt", `"`+strings.Repeat("x", 200<<10)+`"`)
			}, tallyman.InvalidSpec, "systemPrompt",
		},
		"no prompt": {
			func(s *tallyman.RunnerSpec) { s.Prompt, s.PromptSize = "", 0 }, tallyman.InvalidSpec, "prompt",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := claude{uid: 1000}.Invoke(claudeSpec(tc.change), "/state")
			checkRefusal(t, err, tc.reason, tc.says)
		})
	}
}

func checkRefusal(t *testing.T, err error, reason tallyman.Reason, says string) {
	t.Helper()
	e, ok := err.(*tallyman.Error)
	if !ok || e.Code != tallyman.Invalid || e.Reason != reason || !strings.Contains(e.Message, says) {
		t.Errorf("got %#v, want %s and %q", err, reason, says)
	}
}

func TestClaudeAsRoot(t *testing.T) {
	root := claude{uid: 0}
	_, err := root.Invoke(claudeSpec(nil), "/state")
	checkRefusal(t, err, tallyman.SetupFailed, "IS_SANDBOX=1")
	_, err = root.Invoke(claudeSpec(func(s *tallyman.RunnerSpec) {
		s.Agent.Settings = settings("permissionMode", `"bypassPermissions"`)
	}), "/state")
	checkRefusal(t, err, tallyman.SetupFailed, "IS_SANDBOX=1")

	for name, change := range map[string]func(*tallyman.RunnerSpec){
		"in a sandbox":           func(s *tallyman.RunnerSpec) { s.Env = []tallyman.EnvVar{{Name: "IS_SANDBOX", Value: "1"}} },
		"with a permission mode": func(s *tallyman.RunnerSpec) { s.Agent.Settings = settings("permissionMode", `"plan"`) },
	} {
		if _, err := root.Invoke(claudeSpec(change), "/state"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClaudeIsInterruptedBeforeItIsTerminated(t *testing.T) {
	order := newClaude().StopOrder()
	if len(order) != 2 || order[0].Signal != syscall.SIGINT || order[0].Wait <= 0 || order[1].Signal != syscall.SIGTERM {
		t.Errorf("stop order is %+v", order)
	}
}
