package web_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tallyman-dev/tallyman"
)

var update = flag.Bool("update", false, "write the golden files anew")

// everyKind has an event of each type, a second apart.
func everyKind() []tallyman.Event {
	long := strings.Repeat(strings.Repeat("x", 4000)+"\n", 500)
	events := []tallyman.Event{
		{Type: tallyman.EventRunnerStarted},
		{Type: tallyman.EventSetupStarted},
		{Type: tallyman.EventSetupOutput, Name: "git", Text: "cloned"},
		{Type: tallyman.EventSetupFinished},
		{Type: tallyman.EventAgentStarted},
		{Type: tallyman.EventTurnStarted, Turn: 1},
		{Type: tallyman.EventThinking, Text: "I wonder\nwhether"},
		{Type: tallyman.EventText, Text: "# Plan\n\n- **one**\n- [two](https://example.com/a?b=c)\n\n```\ncode\n```"},
		{Type: tallyman.EventToolStarted, ToolID: "t1", Name: "Bash", Data: json.RawMessage(`{"command":"ls -la"}`)},
		{Type: tallyman.EventToolOutput, ToolID: "t1", Text: "a\n"},
		{Type: tallyman.EventToolFinished, ToolID: "t1", Text: "a\nb"},
		{Type: tallyman.EventToolStarted, ToolID: "t2", Name: "Agent", Data: json.RawMessage(`{"description":"look"}`)},
		{Type: tallyman.EventSubtask, Name: "task_started", Parent: "t2", Text: "look"},
		{Type: tallyman.EventToolStarted, ToolID: "t3", Name: "Read", Parent: "t2", Data: json.RawMessage(`{"file_path":"x"}`)},
		{Type: tallyman.EventToolFinished, ToolID: "t3", Parent: "t2", Failed: true, Text: "no such file"},
		{Type: tallyman.EventToolFinished, ToolID: "t2", Text: long},
		{Type: tallyman.EventUsage, Usage: &tallyman.Usage{InputTokens: 5}},
		{Type: tallyman.EventRetry, Text: "overloaded"},
		{Type: tallyman.EventHook, Name: "Stop", Failed: true, Text: "first\nsecond"},
		{Type: tallyman.EventPermission, Name: "Bash", Text: "allowed"},
		{Type: tallyman.EventNotice, Name: "note", Text: "a note"},
		{Type: tallyman.EventError, Text: "it broke\nbadly"},
		{Type: tallyman.EventArtifact, Name: "out.md", Data: json.RawMessage(`{"size":12}`)},
		{Type: tallyman.EventCommandAdmitted, Name: "input"},
		{Type: tallyman.EventCommandRefused, Name: "input", Text: "too late"},
		{Type: tallyman.EventAgentStderr, Text: "warning"},
		{Type: tallyman.EventText, Text: "cut", Partial: true},
		{Type: tallyman.EventResult, Text: "the result"},
		{Type: tallyman.EventToolStarted, ToolID: "t4", Name: "Bash"},
		{Type: tallyman.EventRunnerEnded, Data: json.RawMessage(`{"reason":"MaxTurns","message":"enough"}`)},
		{Type: "of.tomorrow", Text: "news"},
	}
	for i := range events {
		events[i].Time = began.Add(time.Duration(i) * time.Second)
	}
	return events
}

var transcriptPart = regexp.MustCompile(`(?s)<div id="log"[^>]*>(.*?)</div>\n\s*<p id="end">`)

func TestEachEventAsHTML(t *testing.T) {
	f := newFake()
	r := ended(1, tallyman.MaxTurns, "enough")
	f.put(r)
	f.say(r.ID, everyKind()...)
	body := page(t, open(f), "/runs/"+r.ID)
	m := transcriptPart.FindStringSubmatch(body)
	if m == nil {
		t.Fatalf("no transcript in %s", body)
	}
	got := strings.ReplaceAll(m[1], "><", ">\n<")
	if *update {
		if err := os.WriteFile("testdata/events.html", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/events.html")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
	for i := range everyKind() {
		if n := strings.Count(body, fmt.Sprintf(`id="e1.%d"`, i+1)); n != 1 {
			t.Errorf("event 1.%d has %d anchors", i+1, n)
		}
	}
}

var earlierLink = regexp.MustCompile(`id="older" href="([^"]+)"`)

// TestATranscriptIsReadWithoutJavaScript follows the links to earlier parts:
// every event must be in exactly one of them.
func TestATranscriptIsReadWithoutJavaScript(t *testing.T) {
	for name, attempts := range map[string][]int{"one attempt": {1234}, "three attempts": {300, 0, 901}, "short": {7}} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			r := ended(1, tallyman.Completed, "")
			f.put(r)
			total := 0
			for i, n := range attempts {
				f.attempts[r.ID] = append(f.attempts[r.ID], tallyman.Attempt{RunID: r.ID, Number: i + 1})
				f.say(r.ID, texts(n)...)
				total += n
			}
			seen := map[string]int{}
			h := open(f)
			for path := "/runs/" + r.ID; path != ""; {
				body := page(t, h, path)
				for _, m := range articleID.FindAllStringSubmatch(body, -1) {
					seen[m[1]]++
				}
				path = ""
				if m := earlierLink.FindStringSubmatch(body); m != nil {
					path = m[1]
				}
			}
			if len(seen) != total {
				t.Errorf("%d events were to be read, want %d", len(seen), total)
			}
			for id, n := range seen {
				if n != 1 {
					t.Errorf("event %s is there %d times", id, n)
				}
			}
		})
	}
}

func TestAnEarlierPartKnowsHowItsCallsEnded(t *testing.T) {
	f := newFake()
	f.put(running(1))
	f.say(runID(1), tallyman.Event{Time: began, Type: tallyman.EventToolStarted, ToolID: "a", Name: "Bash"})
	f.say(runID(1), texts(30)...)
	f.say(runID(1), tallyman.Event{Time: began, Type: tallyman.EventToolFinished, ToolID: "a", Text: "at last"})
	body := page(t, open(f), "/runs/"+runID(1)+"/events?before=1.10")
	if !strings.Contains(body, "at last") || strings.Contains(body, "running") || strings.Contains(body, "text number 9<") {
		t.Errorf("part before 1.10: %s", body)
	}
}

func TestALaterPartKnowsWhoseSubAgentSpeaks(t *testing.T) {
	f := newFake()
	f.put(running(1))
	f.say(runID(1), tallyman.Event{Time: began, Type: tallyman.EventToolStarted, ToolID: "a", Name: "Agent"})
	f.say(runID(1), texts(600)...)
	f.say(runID(1), tallyman.Event{Time: began, Type: tallyman.EventText, Parent: "a", Text: "inside"})
	if body := page(t, open(f), "/runs/"+runID(1)); !strings.Contains(body, `data-d="1" data-in="e1.1"`) {
		t.Error("the sub-agent's text is not marked as such")
	}
}

func TestLinesOfExecAreShownAsTheyAre(t *testing.T) {
	f := newFake()
	r := ended(1, tallyman.Completed, "")
	r.Harness = "exec"
	f.put(r)
	f.say(r.ID, tallyman.Event{Time: began, Type: tallyman.EventText, Text: "**not bold** \x1b[31mred\x1b[0m <b>"})
	if body := page(t, open(f), "/runs/"+r.ID); !strings.Contains(body, "<pre>**not bold** red &lt;b&gt;</pre>") {
		t.Errorf("body %s", body)
	}
}
