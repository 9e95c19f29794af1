//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tallyman-dev/tallyman"
)

// calls is the usage of so many model calls, and what the CLI says they cost.
func calls(n, turns int) tallyman.Usage {
	c := int64(n)
	return tallyman.Usage{
		InputTokens: 12 * c, OutputTokens: 23 * c, CacheReadTokens: 100 * c, CacheWriteTokens: 5 * c,
		CostUSD: 0.00042975 * float64(n), CostSource: tallyman.CostHarness, Turns: turns,
	}
}

// nearly compares dollars as they were added up by others.
var nearly = cmpopts.EquateApprox(0, 1e-9)

// check compares how a run ended.
func check(t *testing.T, got tallyman.Run, code int, state tallyman.State, reason tallyman.Reason, result string, usage tallyman.Usage) {
	t.Helper()
	if got.State != state || got.Reason != reason {
		t.Errorf("the run ended %s, %s (%s); want %s, %s", got.State, got.Reason, got.Message, state, reason)
	}
	want := map[tallyman.State]int{tallyman.Succeeded: 0, tallyman.Failed: 1}[state]
	if reason == tallyman.DeadlineExceeded || reason == tallyman.IdleTimeout {
		want = 124
	}
	if code != want {
		t.Errorf("tallyman ended with %d, want %d", code, want)
	}
	if got.Result != result {
		t.Errorf("result %q, want %q", got.Result, result)
	}
	if diff := cmp.Diff(usage, got.Usage, nearly); diff != "" {
		t.Errorf("usage differs (-want +got):\n%s", diff)
	}
}

// all returns the events of a type.
func all(events []event, typ tallyman.EventType) (list []event) {
	for _, e := range events {
		if e.Type == typ {
			list = append(list, e)
		}
	}
	return list
}

func find(t *testing.T, events []event, typ tallyman.EventType, name string) event {
	t.Helper()
	for _, e := range all(events, typ) {
		if e.Name == name {
			return e
		}
	}
	t.Errorf("there is no event %s named %q among %d", typ, name, len(events))
	return event{}
}

func texts(events []event) (list []string) {
	for _, e := range all(events, tallyman.EventText) {
		list = append(list, e.Text)
	}
	return list
}

func TestPlainAnswer(t *testing.T) {
	s := newStage(t)
	run, code := s.run("tester", "say hello")
	check(t, run, code, tallyman.Succeeded, tallyman.Completed, "The scripted model has read: say hello", calls(1, 1))
	if run.Agent != "tester" || run.Harness != "claude" || run.Model != "claude-sonnet-4-5" || run.Attempt != 1 || run.ExitCode == nil || *run.ExitCode != 0 {
		t.Errorf("the run: %+v", run)
	}
	if diff := cmp.Diff([]string{"The scripted model has read: say hello"}, texts(s.events(run))); diff != "" {
		t.Errorf("texts differ (-want +got):\n%s", diff)
	}
	if logs := s.ok("logs", run.ID); !strings.Contains(logs, "The scripted model has read: say hello") {
		t.Errorf("the transcript lacks the answer:\n%s", logs)
	}
}

func TestToolCall(t *testing.T) {
	s := newStage(t)
	run, code := s.run("tester", `%%think Hm.%% %%say Let me look.%% %%tool Bash {"command":"echo from the tool"}%% %%result%%`)
	check(t, run, code, tallyman.Succeeded, tallyman.Completed, "from the tool", calls(2, 2))
	events := s.events(run)
	var told []string
	for _, e := range events {
		switch e.Type {
		case tallyman.EventThinking, tallyman.EventText, tallyman.EventToolStarted, tallyman.EventToolFinished, tallyman.EventResult:
			told = append(told, fmt.Sprintf("%s %s%s", e.Type, e.Name, e.Text))
		}
	}
	want := []string{"thinking Hm.", "text Let me look.", "tool.started Bash", "tool.finished Bashfrom the tool", "text from the tool", "result from the tool"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("the events differ (-want +got):\n%s", diff)
	}
	started, finished := find(t, events, tallyman.EventToolStarted, "Bash"), find(t, events, tallyman.EventToolFinished, "Bash")
	if started.ToolID == "" || started.ToolID != finished.ToolID || finished.Failed || started.Parent != "" {
		t.Errorf("the call does not pair up: %v and %v", started, finished)
	}
	var input struct{ Command string }
	if err := json.Unmarshal(started.Data, &input); err != nil || input.Command != "echo from the tool" {
		t.Errorf("the call's input is %s (%v)", started.Data, err)
	}
}

func TestFailedToolCall(t *testing.T) {
	s := newStage(t)
	run, code := s.run("tester", `%%tool Bash {"command":"echo no >&2; exit 3"}%% %%say seen%%`)
	check(t, run, code, tallyman.Succeeded, tallyman.Completed, "seen", calls(2, 2))
	if e := find(t, s.events(run), tallyman.EventToolFinished, "Bash"); !e.Failed || !strings.Contains(e.Text, "no") {
		t.Errorf("the call that failed: %v", e)
	}
}

// The sub-agent's model calls are paid for, its turns are its own, and what it
// does is nested below the call that started it.
func TestSubAgent(t *testing.T) {
	s := newStage(t)
	run, code := s.run("tester", `%%agent Look around%% %%tool Bash {"command":"echo inner"}%% %%say inner done%% %%end%% %%say outer done%%`)
	check(t, run, code, tallyman.Succeeded, tallyman.Completed, "outer done", calls(4, 2))
	events := s.events(run)
	outer := find(t, events, tallyman.EventToolStarted, "Agent")
	inner := find(t, events, tallyman.EventToolStarted, "Bash")
	if outer.Parent != "" || outer.ToolID == "" || inner.Parent != outer.ToolID {
		t.Errorf("the inner call has parent %q, the outer is %q", inner.Parent, outer.ToolID)
	}
	if done := find(t, events, tallyman.EventToolFinished, "Bash"); done.Parent != outer.ToolID || done.Text != "inner" {
		t.Errorf("the inner call finished: %v", done)
	}
	if done := find(t, events, tallyman.EventToolFinished, "Agent"); done.Parent != "" || !strings.Contains(done.Text, "inner done") {
		t.Errorf("the sub-agent finished: %v", done)
	}
	for _, name := range []string{"started", "notification"} {
		if e := find(t, events, tallyman.EventSubtask, name); e.ToolID != outer.ToolID {
			t.Errorf("subtask %s belongs to %q, want %q", name, e.ToolID, outer.ToolID)
		}
	}
}

// A background agent makes the CLI write a second result: tokens and turns are
// those of both, the result is the one that answers the prompt.
func TestBackgroundSubAgent(t *testing.T) {
	s := newStage(t)
	run, code := s.run("tester", `%%tool Agent {"description":"bg","prompt":"%%say bg done%%","subagent_type":"general-purpose","run_in_background":true}%% %%say started%%`)
	check(t, run, code, tallyman.Succeeded, tallyman.Completed, "started", calls(4, 3))
	if results := all(s.events(run), tallyman.EventResult); len(results) != 2 || results[1].Name != "task-notification" {
		t.Errorf("results: %v", results)
	}
}

func TestStructuredOutput(t *testing.T) {
	s := newStage(t)
	s.agent("structured", map[string]any{"settings": map[string]any{"jsonSchema": map[string]any{
		"type": "object", "required": []string{"answer"}, "properties": map[string]any{"answer": map[string]any{"type": "number"}},
	}}})
	run, code := s.run("structured", `%%tool StructuredOutput {"answer":42}%%`)
	check(t, run, code, tallyman.Succeeded, tallyman.Completed, `{"answer":42}`, calls(1, run.Usage.Turns))
	run, code = s.run("structured", "%%say forgotten%%")
	check(t, run, code, tallyman.Failed, tallyman.NoOutput, run.Result, calls(2, run.Usage.Turns))
}

func TestOutputsAreKept(t *testing.T) {
	s := newStage(t)
	s.agent("writer", map[string]any{"outputs": []any{map[string]any{"path": "out/*.txt"}}})
	run, code := s.run("writer", `%%tool Write {"file_path":"out/a.txt","content":"the report"}%% %%say written%%`)
	check(t, run, code, tallyman.Succeeded, tallyman.Completed, "written", calls(2, 2))
	if got := s.ok("artifacts", "get", run.ID, "out/a.txt", "--to", "-"); got != "the report" {
		t.Errorf("the artifact holds %q", got)
	}
	run, code = s.run("writer", "%%say nothing written%%")
	check(t, run, code, tallyman.Failed, tallyman.NoOutput, "nothing written", calls(1, 1))
}

func hooks(t *testing.T, byEvent map[string]string) map[string]any {
	t.Helper()
	list := map[string]any{}
	for name, command := range byEvent {
		list[name] = []any{map[string]any{"hooks": []any{map[string]any{"type": "command", "command": command, "timeout": 10}}}}
	}
	return map[string]any{"includeHookEvents": true, "settings": map[string]any{"hooks": list}}
}

func TestHooks(t *testing.T) {
	s := newStage(t)
	s.agent("hooked", map[string]any{"settings": hooks(t, map[string]string{
		"PreToolUse": "echo before", "PostToolUse": "echo after", "Stop": "echo at the end",
	})})
	run, code := s.run("hooked", `%%tool Bash {"command":"echo hi"}%% %%say done%%`)
	check(t, run, code, tallyman.Succeeded, tallyman.Completed, "done", calls(2, 2))
	var got []string
	for _, e := range all(s.events(run), tallyman.EventHook) {
		if e.Text != "" {
			got = append(got, e.Name+": "+strings.TrimSpace(e.Text))
		}
	}
	if diff := cmp.Diff([]string{"PreToolUse:Bash: before", "PostToolUse:Bash: after", "Stop: at the end"}, got); diff != "" {
		t.Errorf("hooks differ (-want +got):\n%s", diff)
	}
}

func TestAHookRefusesATool(t *testing.T) {
	s := newStage(t)
	s.agent("guarded", map[string]any{"settings": hooks(t, map[string]string{"PreToolUse": "echo not here >&2; exit 2"})})
	run, code := s.run("guarded", `%%tool Bash {"command":"touch made"}%% %%result%%`)
	if code != 0 || !strings.Contains(run.Result, "not here") {
		t.Errorf("exit code %d, result %q; want the hook's words", code, run.Result)
	}
	events := s.events(run)
	if e := find(t, events, tallyman.EventToolFinished, "Bash"); !e.Failed {
		t.Errorf("the refused call: %v", e)
	}
	if !slices.ContainsFunc(all(events, tallyman.EventHook), func(e event) bool { return e.Failed && e.Name == "PreToolUse:Bash" }) {
		t.Error("no hook is told as failed")
	}
}

func TestMCPServers(t *testing.T) {
	server := func(required bool, args ...string) map[string]any {
		m := map[string]any{"command": programs.mcpserver, "args": args}
		if required {
			m["required"] = true
		}
		return m
	}
	prompt := `%%tool mcp__sums__add {"a":2,"b":40}%% %%result%%`
	t.Run("a tool of a server answers", func(t *testing.T) {
		s := newStage(t)
		s.agent("mathematician", map[string]any{"mcpServers": map[string]any{"sums": server(true), "dead": server(false, "-refuse")}})
		run, code := s.run("mathematician", prompt)
		check(t, run, code, tallyman.Succeeded, tallyman.Completed, "2 + 40 = 42", calls(2, 2))
		events := s.events(run)
		var init struct {
			Servers []struct{ Name, Status string } `json:"mcp_servers"`
		}
		if e := find(t, events, tallyman.EventNotice, "init"); json.Unmarshal(e.Data, &init) != nil || len(init.Servers) != 2 {
			t.Errorf("init: %s", e.Data)
		}
		for _, server := range init.Servers {
			if want := map[string]string{"sums": "connected", "dead": "failed"}[server.Name]; server.Status != want {
				t.Errorf("server %s is %s, want %s", server.Name, server.Status, want)
			}
		}
		if e := find(t, events, tallyman.EventToolFinished, "mcp__sums__add"); e.Failed || e.Text != "2 + 40 = 42" {
			t.Errorf("the call: %v", e)
		}
	})
	t.Run("a required one that fails fails the run", func(t *testing.T) {
		s := newStage(t)
		s.agent("mathematician", map[string]any{"mcpServers": map[string]any{"sums": server(true, "-refuse")}})
		run, code := s.run("mathematician", "%%say hello%%")
		if run.State != tallyman.Failed || run.Reason != tallyman.SetupFailed || code != 1 || !strings.Contains(run.Message, "sums") {
			t.Errorf("the run ended %s, %s (%s), exit code %d; want SetupFailed that names the server", run.State, run.Reason, run.Message, code)
		}
	})
}

func TestPlugins(t *testing.T) {
	s := newStage(t)
	s.write("plugin/.claude-plugin/plugin.json", `{"name":"team","version":"1.0.0","description":"Greetings."}`)
	s.write("plugin/skills/greet/SKILL.md", "---\nname: greet\ndescription: Greets somebody.\n---\nGreet $ARGUMENTS. %%say Hello, $ARGUMENTS!%%\n")
	s.agent("greeter", map[string]any{"settings": map[string]any{"pluginDirs": []string{s.dir + "/plugin"}}})
	s.agent("lost", map[string]any{"settings": map[string]any{"pluginDirs": []string{s.dir + "/nowhere"}}})
	for _, prompt := range []string{"/greet Ada", "/team:greet Ada"} {
		run, code := s.run("greeter", prompt)
		check(t, run, code, tallyman.Succeeded, tallyman.Completed, "Hello, Ada!", calls(1, 1))
	}
	run, code := s.run("greeter", "/greeet Ada")
	check(t, run, code, tallyman.Failed, tallyman.SetupFailed, run.Result, tallyman.Usage{CostSource: run.Usage.CostSource})
	run, code = s.run("lost", "%%say hello%%")
	if run.Reason != tallyman.SetupFailed || code != 1 {
		t.Errorf("with a plugin that is not there: %s (%s), exit code %d", run.Reason, run.Message, code)
	}
}

func TestErrorsOfTheModel(t *testing.T) {
	s := newStage(t)
	tests := map[string]struct {
		prompt string
		reason tallyman.Reason
		says   string
	}{
		"401":             {"%%error 401%%", tallyman.AuthExpired, "401"},
		"403":             {"%%error 403%%", tallyman.AuthExpired, "403"},
		"429":             {"%%error 429%%", tallyman.RateLimited, "429"},
		"529":             {"%%error 529%%", tallyman.Overloaded, "529"},
		"500":             {"%%error 500%%", tallyman.ProviderError, "500"},
		"400":             {"%%error 400 odd request%%", tallyman.ProviderError, "odd request"},
		"too long":        {"%%error 400 prompt is too long: 300000 tokens > 200000 maximum%%", tallyman.TokenLimit, "too long"},
		"a refusal":       {"%%refuse I will not.%%", tallyman.RefusedByModel, ""},
		"a broken stream": {"%%say begun%% %%error 529 broken in mid stream%%", tallyman.ProviderError, "broken in mid stream"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stage := *s
			stage.t = t
			run, code := stage.run("tester", tc.prompt)
			if run.State != tallyman.Failed || run.Reason != tc.reason || code != 1 || run.Attempt != 1 {
				t.Errorf("the run ended %s, %s (%s) in attempt %d, exit code %d; want %s", run.State, run.Reason, run.Message, run.Attempt, code, tc.reason)
			}
			if !strings.Contains(run.Message, tc.says) {
				t.Errorf("message %q, want %q in it", run.Message, tc.says)
			}
		})
	}
}

func TestWhatTheCLIRetriesIsTold(t *testing.T) {
	s := newStage(t)
	run, code := s.run("tester", "%%error 529 times=1%% %%say well%%")
	check(t, run, code, tallyman.Succeeded, tallyman.Completed, "well", calls(1, 1))
	if retries := all(s.events(run), tallyman.EventRetry); len(retries) != 1 || !strings.Contains(retries[0].Text, "529") {
		t.Errorf("retries: %v", retries)
	}
}

func TestABrokenConnectionIsMended(t *testing.T) {
	s := newStage(t)
	run, code := s.run("tester", "%%cut after=1 times=1%% %%chunk 3%% %%say whole%%")
	check(t, run, code, tallyman.Succeeded, tallyman.Completed, "whole", calls(1, 1))
	if st := s.model.Stats(); st.Cut != 1 || st.Calls != 2 {
		t.Errorf("the model: %+v", st)
	}
}

func TestAFailedAttemptIsFollowedByAnother(t *testing.T) {
	s := newStage(t)
	s.agent("patient", map[string]any{"retry": map[string]any{"max": 2, "backoff": "100ms"}})
	run, code := s.run("patient", "%%error 529 times=2%% %%say at last%%")
	check(t, run, code, tallyman.Succeeded, tallyman.Completed, "at last", calls(1, run.Usage.Turns))
	if run.Attempt != 2 {
		t.Errorf("attempt %d, want 2: the CLI itself tries twice", run.Attempt)
	}
	if ends := all(s.events(run), tallyman.EventRunnerEnded); len(ends) != 2 {
		t.Errorf("%d journals ended, want 2", len(ends))
	}
}

func TestLimits(t *testing.T) {
	s := newStage(t)
	const endless = `%%tool Bash {"command":"true"}%% %%loop%%`
	tests := map[string]struct {
		prompt string
		flags  []string
		reason tallyman.Reason
		most   float64 // model calls that are paid for; NaN where it does not matter
	}{
		"turns":    {endless, []string{"--max-turns", "3"}, tallyman.MaxTurns, 4},
		"budget":   {endless, []string{"--budget-usd", "0.001"}, tallyman.BudgetExceeded, 6},
		"tokens":   {endless, []string{"--max-tokens", "500"}, tallyman.TokenLimit, 8},
		"deadline": {"%%say begun%% %%stall%%", []string{"--deadline", "4s"}, tallyman.DeadlineExceeded, math.NaN()},
		"silence":  {"%%say begun%% %%stall%%", []string{"--idle", "2s"}, tallyman.IdleTimeout, math.NaN()},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stage := *s
			stage.t = t
			run, code := stage.run("tester", tc.prompt, tc.flags...)
			check(t, run, code, tallyman.Failed, tc.reason, run.Result, run.Usage)
			if paid := float64(run.Usage.InputTokens) / 12; paid > tc.most || paid == 0 && !math.IsNaN(tc.most) {
				t.Errorf("%v model calls are counted, want 1 to %v", paid, tc.most)
			}
			stage.eventually("no call is open", func() bool { return stage.model.Stats().Open == 0 })
		})
	}
}
