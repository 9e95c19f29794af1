package harness_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/harness"
)

func TestLookup(t *testing.T) {
	for name, want := range map[string]struct {
		code tallyman.Code
		says string
	}{
		"claude":   {"", ""},
		"exec":     {"", ""},
		"script":   {"", ""},
		"codex":    {tallyman.Unsupported, "not in this version"},
		"gemini":   {tallyman.Unsupported, "not in this version"},
		"opencode": {tallyman.Unsupported, "not in this version"},
		"cluade":   {tallyman.Invalid, "did you mean claude?"},
		"Exec":     {tallyman.Invalid, "did you mean exec?"},
		"xyzzyqwe": {tallyman.Invalid, "use one of claude, codex"},
		"":         {tallyman.Invalid, "use one of"},
	} {
		adapter, err := harness.Lookup(name)
		if tallyman.CodeOf(err) != want.code || (err == nil) != (adapter != nil) {
			t.Errorf("Lookup(%q) = %v, %v", name, adapter, err)
		}
		if err != nil && !strings.Contains(err.Error(), want.says) {
			t.Errorf("Lookup(%q) says %q", name, err)
		}
		if (want.code != tallyman.Invalid) != slices.Contains(harness.Names(), name) {
			t.Errorf("Names and Lookup disagree about %q", name)
		}
	}
}

func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		agent tallyman.AgentSpec
		says  string // "": nothing is wrong
	}{
		"exec":                 {tallyman.AgentSpec{Harness: "exec", Command: []string{"true"}}, ""},
		"exec, no command":     {tallyman.AgentSpec{Harness: "exec"}, "needs a command"},
		"exec with settings":   {tallyman.AgentSpec{Harness: "exec", Command: []string{"true"}, Settings: scriptSpec("[]").Agent.Settings}, "settings.steps"},
		"claude":               {tallyman.AgentSpec{Harness: "claude"}, ""},
		"claude with steps":    {tallyman.AgentSpec{Harness: "claude", Settings: scriptSpec("[]").Agent.Settings}, "settings.steps is unknown"},
		"script":               {scriptSpec(`[{"say":"x"}]`).Agent, ""},
		"script, bad steps":    {scriptSpec(`[{"sy":"x"}]`).Agent, "settings.steps[0]"},
		"a harness to come":    {tallyman.AgentSpec{Harness: "codex"}, "not in this version"},
		"a harness of no kind": {tallyman.AgentSpec{Harness: "cladue"}, "did you mean claude?"},
	} {
		t.Run(name, func(t *testing.T) {
			err := harness.Check(tc.agent)
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestPromptLimit(t *testing.T) {
	if n := harness.PromptLimit("claude"); n != 10_000_000 {
		t.Errorf("claude: %d", n)
	}
	if n := harness.PromptLimit("exec") + harness.PromptLimit("script"); n != 0 {
		t.Errorf("exec and script have limits: %d", n)
	}
}

func TestExecInvocation(t *testing.T) {
	adapter, err := harness.Lookup("exec")
	if err != nil {
		t.Fatal(err)
	}
	spec := tallyman.RunnerSpec{Agent: tallyman.AgentSpec{Harness: "exec", Command: []string{"sh", "-c", "cat"}}}
	inv, err := adapter.Invoke(spec, t.TempDir())
	if err != nil || !slices.Equal(inv.Argv, spec.Agent.Command) || inv.PromptOnStdin {
		t.Errorf("%+v, %v", inv, err)
	}
	spec.PromptSize = 5
	if inv, err = adapter.Invoke(spec, t.TempDir()); err != nil || !inv.PromptOnStdin {
		t.Errorf("the prompt is not on standard input: %v", err)
	}
}

func TestExecOutcome(t *testing.T) {
	for name, tc := range map[string]struct {
		exit   tallyman.Exit
		reason tallyman.Reason
		says   string
	}{
		"0":                 {code(0), tallyman.Completed, ""},
		"3":                 {code(3), tallyman.AgentError, "exit code 3: no such file"},
		"a crash":           {tallyman.Exit{Code: -1, Signal: "aborted"}, tallyman.AgentError, "did not send: aborted"},
		"ended by our TERM": {tallyman.Exit{Code: -1, Signal: "terminated", Sent: "terminated"}, tallyman.AgentError, "the runner sent"},
	} {
		t.Run(name, func(t *testing.T) {
			p := parser(t, specs["exec"])
			p.Stderr([]byte("no such file\r"), &harness.Batch{})
			got := p.Outcome(tc.exit)
			if got.Reason != tc.reason || !strings.Contains(got.Message, tc.says) || got.Result != "" || got.Usage != (tallyman.Usage{}) {
				t.Errorf("%+v", got)
			}
			if p.Progress() != (harness.Progress{}) {
				t.Errorf("progress is %+v", p.Progress())
			}
		})
	}
}

func TestStartError(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, tc := range map[string]struct {
		argv   []string
		dir    string
		reason tallyman.Reason
		says   string
	}{
		"not in PATH":         {[]string{"no-such-program-7"}, "", tallyman.SetupFailed, "no-such-program-7 was not found"},
		"no such file":        {[]string{filepath.Join(dir, "none")}, "", tallyman.SetupFailed, "was not found"},
		"not executable":      {[]string{write("plain", "x", 0o644)}, "", tallyman.InvalidSpec, "chmod +x"},
		"a folder":            {[]string{dir}, "", tallyman.InvalidSpec, "is a folder"},
		"not for this system": {[]string{write("text", "hello", 0o755)}, "", tallyman.InvalidSpec, "built for another machine"},
		"no folder":           {[]string{"/bin/sh"}, filepath.Join(dir, "gone"), tallyman.SetupFailed, "folder"},
		"too long":            {[]string{"/bin/sh", strings.Repeat("x", 4<<20)}, "", tallyman.InvalidSpec, "larger than the system allows"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(tc.argv[0], tc.argv[1:]...)
			cmd.Dir = tc.dir
			err := cmd.Start()
			if err == nil {
				_ = cmd.Wait()
				t.Fatal("it started")
			}
			got := harness.StartError(err, tc.argv)
			if got.Reason != tc.reason || !strings.Contains(got.Message, tc.says) || got.Started {
				t.Errorf("%v became %s: %s", err, got.Reason, got.Message)
			}
		})
	}
}

func TestScriptNeedsSteps(t *testing.T) {
	adapter, err := harness.Lookup("script")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := adapter.Invoke(scriptSpec(""), t.TempDir()); tallyman.CodeOf(err) != tallyman.Invalid || !strings.Contains(err.Error(), "settings.steps") {
		t.Errorf("got %v", err)
	}
	inv, err := adapter.Invoke(tallyman.RunnerSpec{Agent: specs["script"].Agent, PromptSize: 2}, t.TempDir())
	if err != nil || !slices.Equal(inv.Argv[1:], []string{"script", "-"}) {
		t.Errorf("steps by prompt: %v, %v", inv.Argv, err)
	}
}
