package render_test

import (
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/render"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// say gives events to a renderer, a second apart, as one attempt's.
func say(r *render.Renderer, events ...tallyman.Event) []render.Line {
	var lines []render.Line
	for i, e := range events {
		if e.Time.IsZero() {
			e.Time = began.Add(time.Duration(i) * time.Second)
		}
		lines = append(lines, r.Event(tallyman.EventID{Attempt: 1, Cursor: uint64(i + 1)}, e)...)
	}
	return lines
}

func heads(lines []render.Line) []string {
	var out []string
	for _, l := range lines {
		out = append(out, string(l.Kind)+": "+l.Head)
	}
	return out
}

func TestEveryEventTypeHasALine(t *testing.T) {
	usage := &tallyman.Usage{InputTokens: 1204, OutputTokens: 46, CostUSD: 0.0009, CostSource: tallyman.CostHarness}
	got := heads(say(render.New(render.Options{}),
		tallyman.Event{Type: tallyman.EventRunnerStarted},
		tallyman.Event{Type: tallyman.EventSetupStarted, Name: "workspace"},
		tallyman.Event{Type: tallyman.EventSetupOutput, Name: "workspace", Text: "cloning"},
		tallyman.Event{Type: tallyman.EventSetupFinished, Name: "workspace", Failed: true},
		tallyman.Event{Type: tallyman.EventAgentStarted},
		tallyman.Event{Type: tallyman.EventThinking, Text: "let me\nsee"},
		tallyman.Event{Type: tallyman.EventToolStarted, ToolID: "t1", Name: "Bash", Data: json.RawMessage(`{"description":"greet","command":"echo hi"}`)},
		tallyman.Event{Type: tallyman.EventToolOutput, ToolID: "t1", Text: "hi"},
		tallyman.Event{Type: tallyman.EventToolFinished, ToolID: "t1", Text: "hi"},
		tallyman.Event{Type: tallyman.EventSubtask, Name: "task_started", Text: "explore"},
		tallyman.Event{Type: tallyman.EventRetry, Text: "overloaded, again in 2s"},
		tallyman.Event{Type: tallyman.EventHook, Name: "PreToolUse", Failed: true},
		tallyman.Event{Type: tallyman.EventPermission, Name: "Bash", Text: "allowed"},
		tallyman.Event{Type: tallyman.EventNotice, Name: "init", Text: "model x"},
		tallyman.Event{Type: tallyman.EventError, Text: "it broke"},
		tallyman.Event{Type: tallyman.EventArtifact, Name: "out/report.md", Data: json.RawMessage(`{"size":2100000}`)},
		tallyman.Event{Type: tallyman.EventUsage, Usage: usage},
		tallyman.Event{Type: tallyman.EventTurnCompleted, Turn: 2},
		tallyman.Event{Type: tallyman.EventResult, Text: "42"},
		tallyman.Event{Type: tallyman.EventAgentStderr, Text: "warning"},
		tallyman.Event{Type: tallyman.EventAgentExited, Text: "exit code 0"},
		tallyman.Event{Type: "from.tomorrow", Text: "news"},
		tallyman.Event{Type: tallyman.EventRunnerEnded, Data: json.RawMessage(`{"reason":"MaxTurns","message":"10 turns were not enough"}`)},
	))
	want := []string{
		"mark: runner started",
		"call: setup  workspace",
		"output: ",
		"done: setup  workspace  2.0s  failed",
		"mark: agent started",
		"thinking: let me see",
		"call: Bash  echo hi",
		"output: ",
		"done: Bash  echo hi  2.0s  ok",
		"subtask: sub-agent  task_started  explore",
		"notice: retry  overloaded, again in 2s",
		"notice: hook  PreToolUse  failed",
		"notice: permission  Bash  allowed",
		"notice: init  model x",
		"error: error  it broke",
		"artifact: artifact  out/report.md  2.1 MB",
		"mark: usage  1,204 in, 46 out, $0.0009",
		"mark: turn 2 completed",
		"result: result",
		"stderr: ",
		"mark: agent exited  exit code 0",
		"notice: from.tomorrow  news",
		"end: ended: max turns  10 turns were not enough",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSubAgentsAreNested(t *testing.T) {
	lines := say(render.New(render.Options{}),
		tallyman.Event{Type: tallyman.EventToolStarted, ToolID: "a", Name: "Agent"},
		tallyman.Event{Type: tallyman.EventToolStarted, ToolID: "b", Name: "Agent", Parent: "a"},
		tallyman.Event{Type: tallyman.EventText, Text: "deep", Parent: "b"},
		tallyman.Event{Type: tallyman.EventToolFinished, ToolID: "b", Parent: "a"},
		tallyman.Event{Type: tallyman.EventText, Text: "late", Parent: "b"},
		tallyman.Event{Type: tallyman.EventText, Text: "of a call never seen", Parent: "z"},
		tallyman.Event{Type: tallyman.EventText, Text: "main"},
	)
	var got []int
	for _, l := range lines {
		got = append(got, l.Depth)
	}
	if diff := cmp.Diff([]int{0, 1, 2, 1, 2, 1, 0}, got); diff != "" {
		t.Error(diff)
	}
}

func TestAResultThatRepeatsTheLastTextHasNoBody(t *testing.T) {
	lines := say(render.New(render.Options{}),
		tallyman.Event{Type: tallyman.EventText, Text: "42\n"},
		tallyman.Event{Type: tallyman.EventText, Text: "sub", Parent: "t"},
		tallyman.Event{Type: tallyman.EventResult, Text: "42"},
		tallyman.Event{Type: tallyman.EventResult, Text: "43"},
	)
	if lines[2].Body != "" || lines[3].Body != "43" {
		t.Errorf("bodies %q and %q, want none and 43", lines[2].Body, lines[3].Body)
	}
}

func TestANewAttemptIsAnnouncedAndForgetsTheOld(t *testing.T) {
	r := render.New(render.Options{})
	r.Event(tallyman.EventID{Attempt: 1, Cursor: 1}, tallyman.Event{Type: tallyman.EventToolStarted, ToolID: "t", Name: "Bash", Time: began})
	lines := r.Event(tallyman.EventID{Attempt: 2, Cursor: 1}, tallyman.Event{Type: tallyman.EventToolFinished, ToolID: "t", Time: began.Add(time.Hour)})
	if diff := cmp.Diff([]string{"attempt: attempt 2", "done: ok"}, heads(lines)); diff != "" {
		t.Error(diff)
	}
}

func TestAnAttemptSaysWhyItCame(t *testing.T) {
	started := func(data string) tallyman.Event {
		return tallyman.Event{Type: tallyman.EventRunnerStarted, Data: json.RawMessage(data)}
	}
	why := started(`{"last_failure":"attempt 1 ended with AgentError: exit code 3: a\n\u001b[31mb"}`)
	for name, c := range map[string]struct {
		seen int // the attempt before
		now  int
		e    tallyman.Event
		want []string
	}{
		"as its first event tells":    {1, 2, why, []string{"attempt: attempt 2, after attempt 1 ended with AgentError: exit code 3: a b", "mark: runner started"}},
		"where the reading begins":    {0, 2, why, []string{"attempt: attempt 2, after attempt 1 ended with AgentError: exit code 3: a b", "mark: runner started"}},
		"an older runner tells none":  {1, 2, started(`{"pid":7}`), []string{"attempt: attempt 2", "mark: runner started"}},
		"nothing that can be read":    {1, 2, started(`[]`), []string{"attempt: attempt 2", "mark: runner started"}},
		"the first needs no words":    {0, 1, started(`{}`), []string{"mark: runner started"}},
		"its middle is no beginning":  {0, 2, tallyman.Event{Type: tallyman.EventTurnStarted, Turn: 3}, []string{"mark: turn 3 started"}},
		"but is told as another's":    {1, 2, tallyman.Event{Type: tallyman.EventTurnStarted, Turn: 3}, []string{"attempt: attempt 2", "mark: turn 3 started"}},
		"of the same it is told once": {2, 2, why, []string{"mark: runner started"}},
	} {
		r := render.New(render.Options{})
		if c.seen > 0 {
			r.Event(tallyman.EventID{Attempt: c.seen, Cursor: 1}, tallyman.Event{Type: tallyman.EventSetupStarted})
		}
		if diff := cmp.Diff(c.want, heads(r.Event(tallyman.EventID{Attempt: c.now, Cursor: 1}, c.e))); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestTheTellingArgument(t *testing.T) {
	for name, c := range map[string]struct{ input, want string }{
		"a command":                    {`{"timeout":5,"description":"d","command":"ls -la\n| wc"}`, "Bash  ls -la | wc"},
		"a command of words":           {`{"command":["bash","-lc","ls"]}`, "Bash  bash -lc ls"},
		"a path":                       {`{"old_string":"a","file_path":"/x/y.go"}`, "Bash  /x/y.go"},
		"the first text of an unknown": {`{"n":1,"zebra":"z","ant":"a"}`, "Bash  z"},
		"a plain string":               {`"just this"`, "Bash  just this"},
		"nothing":                      {`{}`, "Bash"},
		"numbers only":                 {`{"n":1}`, "Bash"},
		"no JSON":                      {`{"n`, "Bash"},
		"escapes":                      {`{"command":"echo \u001b[31mred"}`, "Bash  echo red"},
	} {
		t.Run(name, func(t *testing.T) {
			lines := say(render.New(render.Options{}), tallyman.Event{Type: tallyman.EventToolStarted, ToolID: "1", Name: "Bash", Data: json.RawMessage(c.input)})
			if lines[0].Head != c.want {
				t.Errorf("head %q, want %q", lines[0].Head, c.want)
			}
		})
	}
}

func TestInputIsWrittenForPeople(t *testing.T) {
	got := render.Input(json.RawMessage(`{"file_path":"/a.go","new_string":"one\ntwo\n","n":[1, 2],"all":true}`))
	want := "file_path: /a.go\nnew_string:\n  one\n  two\nn: [1,2]\nall: true"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestExecLinesAreKeptExactly(t *testing.T) {
	lines := say(render.New(render.Options{Exec: true}),
		tallyman.Event{Type: tallyman.EventText, Text: "\x1b[31mred\r"},
		tallyman.Event{Type: tallyman.EventText, Text: "bad \ufffd", RawB64: []byte("bad \xff")},
		tallyman.Event{Type: tallyman.EventText},
		tallyman.Event{Type: tallyman.EventText, RawCut: &tallyman.RawCut{Bytes: 50 << 20, Head: []byte("head"), Tail: []byte("tail")}},
	)
	var got []string
	for _, l := range lines {
		got = append(got, string(l.Raw))
	}
	want := []string{"\x1b[31mred\r", "bad \xff", "", "head\n… 52.4 MB not kept …\ntail"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeRefusesWhatIsNoEvent(t *testing.T) {
	e := tallyman.Event{Time: began, Type: tallyman.EventText, Text: "hi"}
	got, err := render.Decode(e.AppendJSON(nil))
	if err != nil || got.Text != "hi" || !got.Time.Equal(began) {
		t.Errorf("Decode = %+v, %v", got, err)
	}
	if _, err := render.Decode([]byte("no")); err == nil {
		t.Error("no error for a line that is not JSON")
	}
}

func FuzzRenderer(f *testing.F) {
	f.Add("text", "t", "", "Bash", "hello\x1b[1m", `{"command":"ls"}`, int64(5), true)
	f.Add("tool.started", "t", "t", "Bash", "", `[1]`, int64(-5), false)
	f.Add("runner.ended", "", "", "", "", `{"reason":"X\u001b[1m","usage":{}}`, int64(0), false)
	f.Add("artifact", "", "p", "a\x1b", "", `{"size":-1}`, int64(1)<<62, false)
	f.Fuzz(func(t *testing.T, typ, tool, parent, name, text, data string, at int64, failed bool) {
		for _, exec := range []bool{false, true} {
			r := render.New(render.Options{Exec: exec})
			p := render.NewPrinter(io.Discard, render.Style{Colour: true, Width: int(at % 300), Terminal: failed})
			for i, kind := range []tallyman.EventType{tallyman.EventType(typ), tallyman.EventToolStarted, tallyman.EventToolFinished, tallyman.EventText, tallyman.EventType(typ)} {
				e := tallyman.Event{Time: time.Unix(0, at), Type: kind, ToolID: tool, Parent: parent, Name: name, Text: text, Data: json.RawMessage(data), Failed: failed}
				lines := r.Event(tallyman.EventID{Attempt: i/4 + 1, Cursor: uint64(i)}, e)
				for _, l := range lines {
					checkClean(t, "head", l.Head)
					checkClean(t, "body", l.Body)
					checkClean(t, "tool", l.Tool)
					checkClean(t, "arg", l.Arg)
				}
				if err := p.Delta(tallyman.Delta{Delta: text, Type: kind, Parent: parent}); err != nil {
					t.Fatal(err)
				}
				if err := p.Print(lines); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func TestWhatIsToldOfASubAgentIsUnderItsCall(t *testing.T) {
	lines := say(render.New(render.Options{}),
		tallyman.Event{Type: tallyman.EventToolStarted, ToolID: "a", Name: "Agent"},
		tallyman.Event{Type: tallyman.EventSubtask, ToolID: "a", Name: "started", Text: "look"},
		tallyman.Event{Type: tallyman.EventSubtask, ToolID: "b", Parent: "a", Name: "progress", Text: "deeper"},
		tallyman.Event{Type: tallyman.EventSubtask, Name: "notification", Text: "of nobody"},
	)
	var got []string
	for _, l := range lines[1:] {
		got = append(got, fmt.Sprintf("%d %s", l.Depth, l.Parent))
	}
	if diff := cmp.Diff([]string{"1 a", "1 a", "0 "}, got); diff != "" {
		t.Error(diff)
	}
}

func TestBookkeepingIsMarked(t *testing.T) {
	tests := map[string]struct {
		event tallyman.Event
		want  string
	}{
		"what nobody knows of a harness":  {tallyman.Event{Type: tallyman.EventNotice, Name: "system/status", Text: "requesting"}, "mark: system/status  requesting"},
		"but not when it failed":          {tallyman.Event{Type: tallyman.EventNotice, Name: "system/status", Failed: true}, "notice: system/status"},
		"a sub-agent that says nothing":   {tallyman.Event{Type: tallyman.EventSubtask, Name: "updated"}, "mark: sub-agent  updated"},
		"but not a failed one":            {tallyman.Event{Type: tallyman.EventSubtask, Name: "updated", Failed: true}, "subtask: sub-agent  updated"},
		"the program that was started":    {tallyman.Event{Type: tallyman.EventAgentStarted, Data: json.RawMessage(`{"program":"/bin/sh","pid":7}`)}, "mark: agent started  /bin/sh"},
		"the code that it ended with":     {tallyman.Event{Type: tallyman.EventAgentExited, Data: json.RawMessage(`{"exit_code":0,"signal":""}`)}, "mark: agent exited  with code 0"},
		"the signal that it was ended by": {tallyman.Event{Type: tallyman.EventAgentExited, Data: json.RawMessage(`{"exit_code":null,"signal":"killed"}`)}, "mark: agent exited  by killed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			lines := say(render.New(render.Options{}), tt.event)
			if got := heads(lines)[0]; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
