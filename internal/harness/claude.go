package harness

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// claude is Claude Code in print mode with a stream of JSON lines.
type claude struct{ uid int }

func newClaude() claude { return claude{uid: os.Geteuid()} }

// StopOrder lets claude end its turn and its tools by itself first; on TERM
// it would leave them running and write no result.
func (claude) StopOrder() []StopStep {
	return []StopStep{
		{Signal: syscall.SIGINT, Wait: 5 * time.Second, Group: true},
		{Signal: syscall.SIGTERM, Group: true},
	}
}

// Invoke writes MCP servers and settings to files in dir and names them in
// the arguments. The prompt is never an argument.
func (c claude) Invoke(spec tallyman.RunnerSpec, dir string) (Invocation, error) {
	o, err := readClaudeOptions(spec.Agent)
	if err != nil {
		return Invocation{}, err
	}
	if spec.PromptSize == 0 && spec.Prompt == "" {
		return Invocation{}, invalidSpec("claude needs a prompt")
	}
	if o.skipsPermissions() && c.uid == 0 && !isSandbox(spec) {
		return Invocation{}, withReason(tallyman.SetupFailed, tallyman.Errorf(tallyman.Invalid,
			"claude refuses --dangerously-skip-permissions as root: run as another user, set IS_SANDBOX=1 in the agent's env if this machine is a sandbox, or set settings.permissionMode"))
	}
	inv := Invocation{PromptOnStdin: true, Files: map[string][]byte{}}
	inv.Argv = append(program(spec.Agent, "claude"),
		"-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages")
	if o.PermissionMode == "" {
		inv.Argv = append(inv.Argv, "--dangerously-skip-permissions")
	}
	if n := spec.Agent.Limits.MaxTurns; n != nil && *n > 0 {
		inv.Argv = append(inv.Argv, "--max-turns", strconv.Itoa(*n))
	}
	if len(o.mcp) > 0 {
		file := filepath.Join(dir, "mcp.json")
		inv.Files[file] = o.mcpFile()
		inv.Argv = append(inv.Argv, "--mcp-config", file, "--strict-mcp-config")
	}
	if len(o.Settings) > 0 {
		file := filepath.Join(dir, "claude-settings.json")
		inv.Files[file] = o.Settings
		inv.Argv = append(inv.Argv, "--settings", file)
	}
	inv.Argv = append(inv.Argv, o.flags(spec.Agent.Model)...)
	return inv, nil
}

// flags are the arguments that say what the options say, in a fixed order.
func (o claudeOptions) flags(model string) []string {
	var argv []string
	one := func(flag, value string) {
		if value != "" {
			argv = append(argv, flag, value)
		}
	}
	many := func(flag string, values []string) {
		if len(values) > 0 {
			argv = append(append(argv, flag), values...)
		}
	}
	one("--model", model)
	one("--permission-mode", o.PermissionMode)
	many("--allowedTools", o.AllowedTools)
	many("--disallowedTools", o.DisallowedTools)
	one("--system-prompt", o.SystemPrompt)
	one("--append-system-prompt", o.AppendSystemPrompt)
	one("--json-schema", string(o.JSONSchema))
	one("--effort", o.Effort)
	one("--fallback-model", o.FallbackModel)
	for _, dir := range o.PluginDirs {
		one("--plugin-dir", dir)
	}
	many("--add-dir", o.AddDirs)
	if o.IncludeHookEvents {
		argv = append(argv, "--include-hook-events")
	}
	return append(argv, o.Args...)
}

// program is what to start: the agent's own command, or the usual one.
func program(agent tallyman.AgentSpec, usual ...string) []string {
	if len(agent.Command) > 0 {
		return slices.Clone(agent.Command)
	}
	return usual
}

func isSandbox(spec tallyman.RunnerSpec) bool {
	is := func(v tallyman.EnvVar) bool {
		return v.Name == "IS_SANDBOX" && (v.Value == "1" || strings.EqualFold(v.Value, "true"))
	}
	return slices.ContainsFunc(spec.Env, is) || slices.ContainsFunc(spec.Agent.Env, is)
}
