package render_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/render"
)

var story = []tallyman.Event{
	{Type: tallyman.EventRunnerStarted},
	{Type: tallyman.EventSetupStarted},
	{Type: tallyman.EventSetupFinished},
	{Type: tallyman.EventNotice, Name: "note", Text: "uses your own login"},
	{Type: tallyman.EventThinking, Text: "I should look.\nThen act."},
	{Type: tallyman.EventText, Text: "I'll look around."},
	{Type: tallyman.EventToolStarted, ToolID: "1", Name: "Bash", Data: json.RawMessage(`{"command":"ls -la"}`)},
	{Type: tallyman.EventToolFinished, ToolID: "1", Text: "a\nb\n\x1b[31mc"},
	{Type: tallyman.EventToolStarted, ToolID: "2", Name: "Agent", Data: json.RawMessage(`{"description":"explore"}`)},
	{Type: tallyman.EventText, Text: "Inside.\nStill.", Parent: "2"},
	{Type: tallyman.EventToolStarted, ToolID: "3", Name: "Read", Parent: "2", Data: json.RawMessage(`{"file_path":"go.mod"}`)},
	{Type: tallyman.EventToolFinished, ToolID: "3", Parent: "2", Failed: true, Text: "no such file"},
	{Type: tallyman.EventToolFinished, ToolID: "2"},
	{Type: tallyman.EventError, Text: "rate limited"},
	{Type: tallyman.EventText, Text: "Done: 42."},
	{Type: tallyman.EventResult, Text: "Done: 42."},
	{Type: tallyman.EventRunnerEnded, Data: json.RawMessage(`{"reason":"Completed"}`)},
}

func printed(t *testing.T, style render.Style, events ...tallyman.Event) string {
	t.Helper()
	var b strings.Builder
	p := render.NewPrinter(&b, style)
	if err := p.Print(say(render.New(render.Options{Exec: style.Exec}), events...)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestATranscriptInATerminal(t *testing.T) {
	want := `· uses your own login
∴ I should look.
  Then act.

I'll look around.

▸ Bash  ls -la  1.0s ok
  │ a
  │ b
  │ c
▸ Agent  explore

  Inside.
  Still.

  ▸ Read  go.mod  1.0s failed
    │ no such file
▸ Agent  explore  4.0s ok
✕ error  rate limited

Done: 42.
`
	if diff := cmp.Diff(want, printed(t, render.Style{Terminal: true, Width: 80}, story...)); diff != "" {
		t.Error(diff)
	}
}

func TestATranscriptInALogTellsACallWhenItBegins(t *testing.T) {
	want := "> Bash  ls -la\n  ` 1.0s ok\n  | a\n  | b\n  | c\n"
	if diff := cmp.Diff(want, printed(t, render.Style{ASCII: true}, story[6:8]...)); diff != "" {
		t.Error(diff)
	}
}

func TestColourIsOnlyOursAndEnds(t *testing.T) {
	got := printed(t, render.Style{Colour: true}, story...)
	if strings.Count(got, "\x1b[0m")*2 != strings.Count(got, "\x1b[") {
		t.Errorf("a colour does not end: %q", got)
	}
	if strings.Contains(printed(t, render.Style{}, story...), "\x1b") {
		t.Error("an escape without colour")
	}
}

func TestLongOutputIsCut(t *testing.T) {
	var b strings.Builder
	for i := range 34 {
		fmt.Fprintf(&b, "line %d %s\n", i, strings.Repeat("x", 200))
	}
	got := printed(t, render.Style{Width: 40}, tallyman.Event{Type: tallyman.EventToolFinished, Name: "Bash", Text: b.String()})
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if len(lines) != 12 || lines[11] != "  … 24 more lines" {
		t.Errorf("got %d lines, the last %q", len(lines), lines[len(lines)-1])
	}
	for _, l := range lines {
		if n := len([]rune(l)); n > 40 {
			t.Errorf("%d columns in %q", n, l)
		}
	}
}

func TestExecIsPrintedAsWritten(t *testing.T) {
	events := []tallyman.Event{
		{Type: tallyman.EventAgentStarted},
		{Type: tallyman.EventText, Text: "\x1b[31mred\x1b[0m"},
		{Type: tallyman.EventText, RawB64: []byte("bad \xff")},
		{Type: tallyman.EventText},
		{Type: tallyman.EventAgentStderr, Text: "oops"},
		{Type: tallyman.EventText, Text: "1%\r2%"},
		{Type: tallyman.EventResult},
		{Type: tallyman.EventRunnerEnded, Data: json.RawMessage(`{"reason":"AgentError"}`)},
	}
	for name, c := range map[string]struct {
		terminal bool
		want     string
	}{
		"into a pipe, byte for byte":         {false, "\x1b[31mred\x1b[0m\nbad \xff\n\n1%\r2%\n"},
		"on a terminal, without its escapes": {true, "red\nbad \ufffd\n\n2%\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var errs strings.Builder
			got := printed(t, render.Style{Exec: true, Terminal: c.terminal, Err: &errs}, events...)
			if got != c.want || errs.String() != "oops\n" {
				t.Errorf("out %q, want %q; err %q", got, c.want, errs.String())
			}
		})
	}
}

func TestAnotherAttemptOfExecIsToldBesideItsOutput(t *testing.T) {
	out := tallyman.Event{Type: tallyman.EventText, Text: "data"}
	again := tallyman.Event{Type: tallyman.EventRunnerStarted, Data: json.RawMessage(`{"last_failure":"attempt 1 ended with AgentError: exit code 3"}`)}
	const told = "tallyman: attempt 2, after attempt 1 ended with AgentError: exit code 3"
	for name, c := range map[string]struct {
		style      render.Style
		want, errs string
	}{
		"on standard error":      {render.Style{}, "data\ndata\n", told + "\n"},
		"muted on a terminal":    {render.Style{Terminal: true, Colour: true}, "data\ndata\n", "\x1b[2m" + told + "\x1b[0m\n"},
		"where both are one, in": {render.Style{Width: -1}, "data\n" + told + "\ndata\n", ""},
	} {
		var got, errs strings.Builder
		c.style.Exec = true
		if c.style.Width == 0 {
			c.style.Err = &errs
		}
		r, p := render.New(render.Options{Exec: true}), render.NewPrinter(&got, c.style)
		for i, e := range []tallyman.Event{out, again, out} {
			if err := p.Print(r.Event(tallyman.EventID{Attempt: min(i+1, 2), Cursor: 1}, e)); err != nil {
				t.Fatal(err)
			}
		}
		if got.String() != c.want || errs.String() != c.errs {
			t.Errorf("%s: out %q, want %q; err %q, want %q", name, got.String(), c.want, errs.String(), c.errs)
		}
	}
}

func TestLiveTextIsPrintedOnce(t *testing.T) {
	delta := func(s string) tallyman.Delta {
		return tallyman.Delta{Delta: s, Type: tallyman.EventText, Block: "0"}
	}
	text := tallyman.Event{Type: tallyman.EventText, Text: "Hello brave world"}
	tool := tallyman.Event{Type: tallyman.EventToolStarted, ToolID: "1", Name: "Bash"}
	for name, c := range map[string]struct {
		steps []any
		want  string
	}{
		"the event adds what is missing":     {[]any{delta("Hello "), delta("bra"), text}, "Hello brave world\n"},
		"the event adds nothing":             {[]any{delta("Hello brave world"), text}, "Hello brave world\n"},
		"a line between breaks it":           {[]any{delta("Hello "), tool, delta("brave"), text}, "Hello \n\n▸ Bash\n\nbrave world\n"},
		"another text is printed whole":      {[]any{delta("Help"), text}, "Help\n\nHello brave world\n"},
		"a sub-agent's waits for its event":  {[]any{tallyman.Delta{Delta: "x", Type: tallyman.EventText, Parent: "p"}}, ""},
		"thinking waits for its event":       {[]any{tallyman.Delta{Delta: "x", Type: tallyman.EventThinking}}, ""},
		"escapes go, even over two pieces":   {[]any{delta("Hel\x1b[3"), delta("1mlo"), text}, "Hello brave world\n"},
		"a second block waits for its event": {[]any{delta("Hello"), tallyman.Delta{Delta: "sec", Type: tallyman.EventText, Block: "1"}, text, tallyman.Delta{Delta: "ond", Type: tallyman.EventText, Block: "1"}, tallyman.Event{Type: tallyman.EventText, Text: "second"}}, "Hello brave world\n\nsecond\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			p, r := render.NewPrinter(&b, render.Style{Terminal: true}), render.New(render.Options{})
			for i, step := range c.steps {
				var err error
				switch s := step.(type) {
				case tallyman.Delta:
					err = p.Delta(s)
				case tallyman.Event:
					err = p.Print(r.Event(tallyman.EventID{Attempt: 1, Cursor: uint64(i + 1)}, s))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if got := b.String(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

type broken struct{}

var errBroken = errors.New("broken pipe")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestAnErrorOfTheWriterIsTold(t *testing.T) {
	p := render.NewPrinter(broken{}, render.Style{})
	err := p.Print(say(render.New(render.Options{}), tallyman.Event{Type: tallyman.EventText, Text: "x"}))
	if !errors.Is(err, errBroken) {
		t.Errorf("err = %v", err)
	}
}

func TestSummary(t *testing.T) {
	start, end, code := began, began.Add(83*time.Second), 3
	run := tallyman.Run{
		State: tallyman.Failed, Reason: tallyman.MaxTurns, Message: "10 turns were not enough", Attempt: 2, ExitCode: &code,
		Usage:     tallyman.Usage{InputTokens: 12345, OutputTokens: 46, CacheReadTokens: 200, CostUSD: 0.0341, CostSource: tallyman.CostEstimated, Turns: 10},
		StartedAt: &start, EndedAt: &end,
	}
	want := []string{
		"outcome   failed (MaxTurns)",
		"message   10 turns were not enough",
		"exit code 3",
		"attempts  2",
		"turns     10",
		"tokens    12,345 in, 46 out, 200 cache read",
		"cost      $0.034, estimated from list prices",
		"duration  1m 23s",
	}
	if diff := cmp.Diff(want, render.Summary(run)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"outcome   queued", "turns     0", "tokens    0 in, 0 out", "cost      none", "duration  0s"}, render.Summary(tallyman.Run{State: tallyman.Queued})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"outcome   queued", "duration  0s"}, render.Summary(tallyman.Run{State: tallyman.Queued, Harness: "exec"})); diff != "" {
		t.Errorf("a command has no model:\n%s", diff)
	}
}

func TestFormats(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{render.Took(-1), "0s"}, {render.Took(12 * time.Millisecond), "12ms"}, {render.Took(340 * time.Millisecond), "0.3s"},
		{render.Took(9960 * time.Millisecond), "10s"}, {render.Took(245 * time.Second), "4m 05s"}, {render.Took(123 * time.Minute), "2h 03m"}, {render.Took(76 * time.Hour), "3d 4h"},
		{render.Took(59600 * time.Millisecond), "1m 00s"},
		{render.Count(-1234567), "-1,234,567"}, {render.Count(999), "999"},
		{render.Bytes(999), "999 B"}, {render.Bytes(2_100_000), "2.1 MB"}, {render.Bytes(999_600), "1.0 MB"},
		{render.Cost(0), "$0"}, {render.Cost(0.00001), "<$0.0001"}, {render.Cost(0.0008595), "$0.0009"}, {render.Cost(12.4), "$12.40"},
		{render.Words(tallyman.DeadlineExceeded), "deadline exceeded"}, {render.Words(tallyman.OOMKilled), "OOM killed"}, {render.Words(tallyman.ReasonStopped), "stopped"}, {render.Words(tallyman.Reason("")), ""},
		{render.OneLine("a\n b\tc", 10), "a b c"}, {render.OneLine("世界世界", 5), "世界…"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
