package harness_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/harness"
)

// The test binary is also the program that the script harness starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "script" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		code := harness.Script(ctx, os.Args[2:], os.Stdin, os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func scriptSpec(steps string) tallyman.RunnerSpec {
	spec := tallyman.RunnerSpec{Agent: tallyman.AgentSpec{Harness: "script"}}
	if steps != "" {
		spec.Agent.Settings = map[string]json.RawMessage{"steps": json.RawMessage(steps)}
	}
	return spec
}

// scriptCommand prepares the process that the adapter asks for.
func scriptCommand(t *testing.T, spec tallyman.RunnerSpec, prompt string) *exec.Cmd {
	t.Helper()
	adapter, err := harness.Lookup("script")
	if err != nil {
		t.Fatal(err)
	}
	inv, err := adapter.Invoke(spec, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range inv.Files {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(inv.Argv[0], inv.Argv[1:]...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "TALLYMAN_ATTEMPT_NO=3")
	cmd.Stdin = strings.NewReader(prompt)
	return cmd
}

// play runs a script to its end.
func play(t *testing.T, spec tallyman.RunnerSpec, prompt string) (events []tallyman.Event, deltas []tallyman.Delta, o tallyman.Outcome, dir string) {
	t.Helper()
	spec.PromptSize = int64(len(prompt))
	cmd := scriptCommand(t, spec, prompt)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	exit := tallyman.Exit{}
	var ended *exec.ExitError
	if err := cmd.Run(); errors.As(err, &ended) {
		exit.Code = ended.ExitCode()
		if status := ended.Sys().(syscall.WaitStatus); status.Signaled() {
			exit.Signal = status.Signal().String()
		}
	} else if err != nil {
		t.Fatal(err)
	}
	p := parser(t, spec)
	var batch harness.Batch
	for line := range bytes.Lines(stderr.Bytes()) {
		p.Stderr(bytes.TrimSuffix(line, []byte("\n")), &batch)
	}
	for i := range batch.Events {
		events = append(events, solid(t, &batch.Events[i]))
	}
	told, deltas := feed(t, p, stdout.Bytes())
	return append(events, told...), deltas, p.Outcome(exit), cmd.Dir
}

func TestScriptSteps(t *testing.T) {
	for name, tc := range map[string]struct {
		steps, prompt string
		events        []string
		reason        tallyman.Reason
		result        string
	}{
		"say, think, result": {
			steps:  `[{"think":"hm"},{"say":"a {{prompt}}"},{"say":{"text":"b"}},{"result":"r{{attempt}} {{promptBytes}}"}]`,
			prompt: "q", reason: tallyman.Completed, result: "r3 1",
			events: []string{"turn.started", "thinking hm", "text a q", "text b", "usage", "turn.completed", "result r3 1"},
		},
		"a tool and a sub-agent": {
			steps: `[{"tool":{"name":"Bash","input":{"c":"{{prompt}}","n":1},"output":"out","failed":true}},
				{"agent":{"name":"helper","output":"42","steps":[{"say":"inside"},{"tool":"Read"}]}},{"result":"ok"}]`,
			prompt: "\"q\"\n", reason: tallyman.Completed, result: "ok",
			events: []string{
				"turn.started", `tool.started Bash call-1 {"c":"\"q\"\n","n":1}`, "tool.finished Bash call-1 out failed",
				`tool.started Agent call-2 {"description":"helper"}`, "subtask started call-2 helper",
				"text <call-2 inside", "tool.started Read call-3 <call-2", "tool.finished Read call-3 <call-2",
				"subtask notification call-2 helper", "tool.finished Agent call-2 42", "usage", "turn.completed", "result ok",
			},
		},
		"usage adds up and is told as totals": {
			steps: `[{"usage":{"input_tokens":5,"cost_usd":0.5}},{"usage":{"output_tokens":7,"cost_usd":0.25}},{"result":""}]`, reason: tallyman.Completed,
			events: []string{"turn.started", "usage 5/0 0.5 harness", "usage 5/7 0.75 harness", "usage 5/7 0.75 harness", "turn.completed", "result"},
		},
		"stderr, and garbage that is kept": {
			steps: `[{"stderr":"oh {{attempt}}"},{"garbage":"AP8="},{"say":"after"},{"result":"ok"}]`, reason: tallyman.Completed, result: "ok",
			events: []string{"agent.stderr oh 3", "notice stdout \x00\uFFFD", "turn.started", "text after", "usage", "turn.completed", "result ok"},
		},
		"repeat":             {steps: `[{"repeat":{"times":2,"steps":[{"say":"x"}]}},{"result":"ok"}]`, reason: tallyman.Completed, result: "ok", events: []string{"turn.started", "text x", "text x", "usage", "turn.completed", "result ok"}},
		"no result":          {steps: `[{"say":"x"}]`, reason: tallyman.NoResult, events: []string{"turn.started", "text x"}},
		"an exit code":       {steps: `[{"say":"x"},{"exit":3},{"say":"never"}]`, reason: tallyman.AgentError, events: []string{"turn.started", "text x"}},
		"a failed result":    {steps: `[{"result":{"text":"no","failed":true}}]`, reason: tallyman.AgentError, events: []string{"turn.started", "usage", "turn.completed failed", "result no failed"}},
		"a reason":           {steps: `[{"result":{"reason":"Overloaded"}}]`, reason: tallyman.Overloaded, events: []string{"turn.started", "usage", "turn.completed", "result"}},
		"result, then exit":  {steps: `[{"result":"ok"},{"exit":1}]`, reason: tallyman.Completed, result: "ok", events: []string{"turn.started", "usage", "turn.completed", "result ok"}},
		"two results":        {steps: `[{"result":"one"},{"say":"more"},{"result":"two"}]`, reason: tallyman.Completed, result: "two", events: []string{"turn.started", "usage", "turn.completed", "result one", "turn.started", "text more", "usage", "turn.completed", "result two"}},
		"steps by prompt":    {prompt: `[{"say":"x"},{"result":"ok"}]`, reason: tallyman.Completed, result: "ok", events: []string{"turn.started", "text x", "usage", "turn.completed", "result ok"}},
		"no steps":           {prompt: " ", reason: tallyman.SetupFailed, events: []string{"agent.stderr script: there are no steps: put them in settings.steps, or in the prompt as a JSON list"}},
		"a prompt of no use": {prompt: "- say: hi", reason: tallyman.SetupFailed, events: []string{"agent.stderr script: steps: a JSON list of steps is wanted: invalid character ' ' in numeric literal"}},
		"a write":            {steps: `[{"write":{"path":"a/b.txt","content":"{{prompt}}"}},{"result":"ok"}]`, prompt: "q", reason: tallyman.Completed, result: "ok", events: []string{"turn.started", `tool.started Write call-1 {"path":"a/b.txt"}`, "tool.finished Write call-1 1 bytes", "usage", "turn.completed", "result ok"}},
	} {
		t.Run(name, func(t *testing.T) {
			events, _, got, dir := play(t, scriptSpec(tc.steps), tc.prompt)
			var lines []string
			for _, e := range events {
				lines = append(lines, terse(e))
			}
			if diff := cmp.Diff(tc.events, lines); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if got.Reason != tc.reason || got.Result != tc.result {
				t.Errorf("%s (%s), result %q", got.Reason, got.Message, got.Result)
			}
			if name == "a write" {
				if b, err := os.ReadFile(filepath.Join(dir, "a/b.txt")); err != nil || string(b) != "q" {
					t.Errorf("file has %q: %v", b, err)
				}
			}
		})
	}
}

func terse(e tallyman.Event) string {
	words := []string{string(e.Type)}
	add := func(s, prefix string) {
		if s != "" {
			words = append(words, prefix+s)
		}
	}
	add(e.Name, "")
	add(e.ToolID, "")
	add(e.Parent, "<")
	add(e.Text, "")
	add(string(e.Data), "")
	if u := e.Usage; u != nil && u.Tokens() > 0 {
		words = append(words, strconv.FormatInt(u.InputTokens, 10)+"/"+strconv.FormatInt(u.OutputTokens, 10),
			strconv.FormatFloat(u.CostUSD, 'g', -1, 64), string(u.CostSource))
	}
	if e.Failed {
		words = append(words, "failed")
	}
	return strings.Join(words, " ")
}

func TestDemoRepeatsThePromptAndIsQuick(t *testing.T) {
	spec := scriptSpec(string(harness.DemoSteps()))
	var pauses time.Duration
	for _, m := range regexp.MustCompile(`"(over|duration)": "([^"]+)"`).FindAllSubmatch(harness.DemoSteps(), -1) {
		d, err := time.ParseDuration(string(m[2]))
		if err != nil {
			t.Fatal(err)
		}
		pauses += d
	}
	if pauses == 0 || pauses > 1500*time.Millisecond {
		t.Errorf("it pauses for %s", pauses)
	}
	events, deltas, got, _ := play(t, spec, "say hello")
	if got.Reason != tallyman.Completed || got.Result != "say hello" || got.Usage.CostUSD == 0 || got.Usage.CostSource != tallyman.CostHarness || got.Usage.Turns < 2 {
		t.Errorf("%+v", got)
	}
	seen := map[tallyman.EventType]int{}
	repeated := false
	for _, e := range events {
		seen[e.Type]++
		repeated = repeated || e.Type == tallyman.EventText && e.Parent == "" && strings.Contains(e.Text, "say hello")
		if e.Partial {
			t.Errorf("%s is partial", e.Type)
		}
	}
	if !repeated || len(deltas) < 10 {
		t.Errorf("the answer does not repeat the prompt, or is not told in pieces: %d", len(deltas))
	}
	for _, kind := range []tallyman.EventType{tallyman.EventThinking, tallyman.EventToolStarted, tallyman.EventToolFinished, tallyman.EventSubtask, tallyman.EventUsage, tallyman.EventResult} {
		if seen[kind] == 0 {
			t.Errorf("the demo shows no %s", kind)
		}
	}
}

func TestScriptFlood(t *testing.T) {
	for name, tc := range map[string]struct {
		steps string
		lines int
		line  int
	}{
		"bytes":    {`[{"flood":{"bytes":1000000,"line":1000}},{"result":"ok"}]`, 1000, 1000},
		"lines":    {`[{"flood":{"lines":5000,"line":100}},{"result":"ok"}]`, 5000, 100},
		"one line": {`[{"flood":{"lines":1,"line":3000000}},{"result":"ok"}]`, 1, 3_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if c := harness.Script(t.Context(), []string{stepsFile(t, tc.steps)}, strings.NewReader(""), &out, io.Discard); c != 0 {
				t.Fatalf("exit code %d", c)
			}
			lines := bytes.Split(out.Bytes(), []byte("\n"))
			if got := len(lines) - 2; got != tc.lines { // the result, and what follows the last newline
				t.Errorf("%d lines, want %d", got, tc.lines)
			}
			if got := len(lines[0]) + 1; got < tc.line-2 || got > tc.line+2 {
				t.Errorf("a line of %d bytes, want %d", got, tc.line)
			}
		})
	}
}

func stepsFile(t *testing.T, steps string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "steps.json")
	if err := os.WriteFile(file, []byte(steps), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestScriptReadsThePromptOnlyWhenItIsWanted(t *testing.T) {
	var out, errs bytes.Buffer
	never := readerFunc(func([]byte) (int, error) { t.Error("standard input was read"); return 0, io.EOF })
	if c := harness.Script(t.Context(), []string{stepsFile(t, `[{"result":"ok"}]`)}, never, &out, &errs); c != 0 {
		t.Errorf("exit code %d: %s", c, &errs)
	}
	big := strings.Repeat("x", 20<<20)
	out.Reset()
	if c := harness.Script(t.Context(), []string{stepsFile(t, `[{"result":"{{promptBytes}} {{prompt}}"}]`)}, strings.NewReader(big), &out, &errs); c != 0 {
		t.Errorf("exit code %d: %s", c, &errs)
	}
	if !strings.Contains(out.String(), strconv.Itoa(20<<20)+" xxx") || out.Len() < 20<<20 {
		t.Errorf("the prompt did not arrive whole: %d bytes", out.Len())
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func TestBadStepsAreRefusedByName(t *testing.T) {
	for name, tc := range map[string]struct{ steps, says string }{
		"no list":                {`{"say":"x"}`, "steps: a JSON list"},
		"an unknown kind":        {`[{"say":"x"},{"thnk":"x"}]`, `steps[1]: "thnk" is no kind of step: did you mean think?`},
		"two kinds in one":       {`[{"say":"x","think":"y"}]`, "steps[0]: an object with one key"},
		"a number":               {`[1]`, "steps[0]"},
		"an unknown field":       {`[{"tool":{"nam":"x"}}]`, `steps[0]: tool: unknown field "nam"`},
		"no duration":            {`[{"sleep":2}]`, "steps[0]: sleep: a duration"},
		"a negative duration":    {`[{"sleep":"-2s"}]`, "sleep"},
		"inside a sub-agent":     {`[{"agent":{"steps":[{"sey":1}]}}]`, "steps[0]: agent: steps[0]: \"sey\""},
		"inside a repeat":        {`[{"repeat":{"times":2,"steps":[{"say":1}]}}]`, "steps[0]: repeat: steps[0]: say"},
		"no base64":              {`[{"garbage":"!"}]`, "garbage: base64"},
		"random of nothing":      {`[{"garbage":"random:x"}]`, "garbage: random:x"},
		"a flood of two kinds":   {`[{"flood":{"bytes":1,"lines":1}}]`, "flood"},
		"a flood of nothing":     {`[{"flood":{}}]`, "flood"},
		"a reason of no kind":    {`[{"result":{"reason":"Bored"}}]`, "Bored"},
		"negative usage":         {`[{"usage":{"input_tokens":-1}}]`, "negative"},
		"an exit that is a word": {`[{"exit":"x"}]`, "exit: an exit code"},
		"hang with arguments":    {`[{"hang":5}]`, "hang"},
	} {
		t.Run(name, func(t *testing.T) {
			err := harness.CheckSteps([]byte(tc.steps))
			if tallyman.CodeOf(err) != tallyman.Invalid || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v", err)
			}
			adapter, err := harness.Lookup("script")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := adapter.Invoke(scriptSpec(tc.steps), t.TempDir()); tallyman.CodeOf(err) != tallyman.Invalid {
				t.Errorf("Invoke: %v", err)
			}
		})
	}
}

// A script that hangs ends by a signal; one that ignores TERM only by KILL,
// and what it started in a session of its own lives on.
func TestScriptHangsIgnoresTermAndLeavesAChild(t *testing.T) {
	if _, err := exec.LookPath("sleep"); err != nil {
		t.Skip("there is no sleep")
	}
	for name, tc := range map[string]struct {
		steps   string
		survive bool // TERM
	}{
		"hang":       {`[{"child":{"sleep":"1m"}},{"say":"ready"},"hang"]`, false},
		"ignoreTerm": {`["ignoreTerm",{"child":{"sleep":"1m"}},{"say":"ready"},{"hang":true}]`, true},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := scriptCommand(t, scriptSpec(tc.steps), "")
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			child := readUntilReady(t, stdout)
			defer syscall.Kill(child, syscall.SIGKILL)
			gone := make(chan error, 1)
			go func() { gone <- cmd.Wait() }()

			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if tc.survive {
				select {
				case <-gone:
					t.Fatal("TERM ended it")
				case <-time.After(300 * time.Millisecond):
				}
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case <-gone:
			case <-time.After(10 * time.Second):
				t.Fatal("it lives on")
			}
			if !tc.survive && cmd.ProcessState.ExitCode() != 143 {
				t.Errorf("it ended with %s", cmd.ProcessState)
			}
			if sid, err := unix.Getsid(child); err != nil || sid != child {
				t.Errorf("the child's session is %d, not its own (%d): %v", sid, child, err)
			}
		})
	}
}

func readUntilReady(t *testing.T, stdout io.Reader) (child int) {
	t.Helper()
	var line struct {
		Type, Name, Text string
		Data             struct{ PID int }
	}
	d := json.NewDecoder(stdout)
	for {
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if line.Name == "child" {
			child = line.Data.PID
		}
		if line.Text == "ready" {
			return child
		}
	}
}

func TestScriptPartialTextWhenItIsCutOff(t *testing.T) {
	p := parser(t, specs["script"])
	events, _ := feed(t, p, []byte(`{"type":"delta","of":"text","block":1,"text":"half "}`+"\n"+`{"type":"delta","of":"text","block":1,"text":"way"}`+"\n"))
	if len(events) != 1 || events[0].Text != "half way" || !events[0].Partial {
		t.Errorf("%+v", events)
	}
}
