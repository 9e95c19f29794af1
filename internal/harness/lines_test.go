package harness_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/harness"
)

var specs = map[string]tallyman.RunnerSpec{
	"claude": {Agent: tallyman.AgentSpec{Harness: "claude", Model: "claude-sonnet-4-5"}},
	"exec":   {Agent: tallyman.AgentSpec{Harness: "exec", Command: []string{"true"}}},
	"script": {Agent: tallyman.AgentSpec{Harness: "script"}},
}

const assistantLine = `{"type":"assistant","message":{"id":"m1","model":"claude-sonnet-4-5","content":[{"type":"text","text":"%s"}],"usage":{"input_tokens":1,"output_tokens":1}},"parent_tool_use_id":null}`

// Whatever a line holds, it is kept, and what follows is read.
func TestBadLinesAreKeptAndTheRunGoesOn(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 3_000_000)
	for name, tc := range map[string]struct {
		line string
		want string // type, name, and how the line is kept
		text string
	}{
		"plain text":                   {"npm WARN deprecated", "notice stdout b64", "npm WARN deprecated"},
		"ANSI colours":                 {"\x1b[31mred\x1b[0m", "notice stdout b64", "\x1b[31mred\x1b[0m"},
		"a bar drawn with returns":     {"10%\r20%\r100%", "notice stdout b64", "10%\r20%\r100%"},
		"NUL bytes":                    {"a\x00b", "notice stdout b64", "a\x00b"},
		"invalid UTF-8":                {"a\xff\xfeb", "notice stdout b64", "a\uFFFD\uFFFDb"},
		"half a JSON line":             {`{"type":"assistant","mess`, "notice stdout b64", `{"type":"assistant","mess`},
		"a number":                     {"42", "notice stdout raw", "42"},
		"a list":                       {"[1,2]", "notice stdout raw", "[1,2]"},
		"an object without a type":     {`{"a":1}`, "notice stdout raw", `{"a":1}`},
		"a type that is no string":     {`{"type":7}`, "notice stdout raw", `{"type":7}`},
		"an unknown type":              {`{"type":"brand_new","subtype":"x"}`, "notice brand_new/x raw", ""},
		"an unknown system line":       {`{"type":"system","subtype":"brand_new","content":"hi"}`, "notice system/brand_new raw", "hi"},
		"a message that is missing":    {`{"type":"user"}`, "notice user raw", ""},
		"a message that is a string":   {`{"type":"user","message":"hi"}`, "notice user raw", "hi"},
		"a message that is a number":   {`{"type":"user","message":1}`, "notice user raw", ""},
		"content that is a string":     {`{"type":"user","message":{"content":"hi"}}`, "notice user raw", "hi"},
		"content of strings":           {`{"type":"user","message":{"content":["hi"]}}`, "notice user raw", "hi"},
		"content of numbers":           {`{"type":"user","message":{"content":[1]}}`, "notice block/ raw", ""},
		"a result of a tool as a list": {`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"a"},{"type":"image"},"b"]}]}}`, "tool.finished  raw", "a\n[image]\nb"},
		"a result of a tool, none":     {`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t"}]}}`, "tool.finished  raw", ""},
		"JSON with bad bytes in it":    {"{\"type\":\"user\",\"message\":{\"content\":\"a\xffb\"}}", "notice user b64", "a\uFFFDb"},
		"bad bytes in a tool's input":  {"{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"tool_use\",\"input\":{\"a\":\"\xff\"}}]}}", "turn.started  b64", ""},
		"text that ends in CR":         {"hello\r", "notice stdout b64", "hello"},
		"a blank line":                 {"\r", "turn.started  raw", ""},
		"JSON that ends in CR":         {"{\"type\":\"user\",\"message\":{\"content\":\"hi\"}}\r", "notice user raw", "hi"},
		"JSON with CR between tokens":  {"{\"type\":\r\"user\",\"message\":{\"content\":\"hi\"}}", "notice user raw", "hi"},
		"half a surrogate pair, NUL":   {`{"type":"user","message":{"content":"\ud800\u0000"}}`, "notice user raw", "\uFFFD\x00"},
		"floats where ints are usual":  {`{"type":"system","subtype":"api_retry","attempt":1.0,"max_retries":3e0,"retry_delay_ms":575.8,"error_status":529.0,"error":"overloaded"}`, "retry overloaded raw", "retry 1 of 3 in 575 ms: overloaded (529)"},
		"an endless nest":              {deep, "notice stdout cut", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := parser(t, specs["claude"])
			events, _ := feed(t, p, []byte(tc.line+"\n"+fmt.Sprintf(assistantLine, "after")+"\n"))
			if len(events) < 2 {
				t.Fatalf("%d events", len(events))
			}
			e := events[0]
			if got := fmt.Sprintf("%s %s %s", e.Type, e.Name, kept(&e)); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if tc.text != "" && e.Text != tc.text {
				t.Errorf("text %q, want %q", e.Text, tc.text)
			}
			if last := events[len(events)-1]; last.Type != tallyman.EventText || last.Text != "after" {
				t.Errorf("what follows became %s %q", last.Type, last.Text)
			}
		})
	}
}

func kept(e *tallyman.Event) string {
	switch {
	case e.RawCut != nil:
		return "cut"
	case e.RawB64 != nil:
		return "b64"
	case e.Raw != nil:
		return "raw"
	}
	return ""
}

func TestLongLines(t *testing.T) {
	for name, tc := range map[string]struct {
		harness string
		size    int
		kept    string
		text    int // at most so long
		whole   bool
	}{
		"claude, 75 kB":  {"claude", 75 << 10, "raw", 75 << 10, true},
		"claude, 2 MiB":  {"claude", 2 << 20, "raw", 140 << 10, false},
		"claude, 9 MiB":  {"claude", 9 << 20, "cut", 140 << 10, false},
		"claude, 50 MiB": {"claude", 50 << 20, "cut", 140 << 10, false},
		"exec, 7 MiB":    {"exec", 7 << 20, "", 7 << 20, true},
		"exec, 9 MiB":    {"exec", 9 << 20, "cut", 140 << 10, false},
		"exec, 50 MiB":   {"exec", 50 << 20, "cut", 140 << 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			line := bytes.Repeat([]byte("é-"), tc.size/3)
			if tc.harness == "claude" {
				line = fmt.Appendf(nil, assistantLine, line)
			}
			var batch harness.Batch
			p := parser(t, specs[tc.harness])
			p.Parse(line, &batch)
			last := len(batch.Events) - 1
			first, words := batch.Events[0], batch.Events[last]
			if kept(&first) != tc.kept || words.Type != tallyman.EventText {
				t.Errorf("kept as %q, %s", kept(&first), words.Type)
			}
			if strings.Contains(words.Text, "bytes cut") == tc.whole || len(words.Text) > tc.text || !utf8.ValidString(words.Text) {
				t.Errorf("text of %d bytes", len(words.Text))
			}
			if cut := first.RawCut; cut != nil {
				sum := sha256.Sum256(line)
				if cut.Bytes != int64(len(line)) || cut.SHA256 != hex.EncodeToString(sum[:]) ||
					!bytes.HasPrefix(line, cut.Head) || !bytes.HasSuffix(line, cut.Tail) || len(cut.Head) != 64<<10 || len(cut.Tail) != 64<<10 {
					t.Errorf("cut to %d bytes with head %d and tail %d", cut.Bytes, len(cut.Head), len(cut.Tail))
				}
			}
			if size := len(words.AppendJSON(nil)); tc.size > tallyman.MaxRaw && size > 1<<20 {
				t.Errorf("an event of %d bytes", size)
			}
		})
	}
}

// The text of a plain command is its line, and is kept once.
func TestExecKeepsLinesAsTheyAre(t *testing.T) {
	for name, tc := range map[string]struct{ line, kept, text string }{
		"words":         {"hello  world ", "", "hello  world "},
		"nothing":       {"", "", ""},
		"JSON":          {`{"type":"text"}`, "", `{"type":"text"}`},
		"returns":       {"10%\r20%\r", "", "10%\r20%\r"},
		"colours, NUL":  {"\x1b[1mx\x00", "", "\x1b[1mx\x00"},
		"invalid UTF-8": {"a\xffb", "b64", "a\uFFFDb"},
	} {
		t.Run(name, func(t *testing.T) {
			var batch harness.Batch
			p := parser(t, specs["exec"])
			p.Parse([]byte(tc.line), &batch)
			p.Stderr([]byte(tc.line), &batch)
			for i, kind := range []tallyman.EventType{tallyman.EventText, tallyman.EventAgentStderr} {
				e := solid(t, &batch.Events[i])
				if e.Type != kind || e.Text != tc.text || kept(&e) != tc.kept {
					t.Errorf("%s %q kept as %q", e.Type, e.Text, kept(&e))
				}
				if tc.kept == "b64" && string(e.RawB64) != tc.line {
					t.Errorf("bytes are %q", e.RawB64)
				}
			}
		})
	}
}

// FuzzParse feeds lines to a parser: it does not fail, every event is one
// valid line of JSON, and every line that says something leaves something.
func FuzzParse(f *testing.F) {
	for name := range recordings {
		if stream := streamFile(f, name); len(stream) < 5000 {
			f.Add("claude", stream)
		}
	}
	f.Add("exec", []byte("a\nb\xff\n\x00\r\n"))
	f.Add("script", []byte(`{"type":"text","text":"hi"}`+"\n"+`{"type":"delta","block":1,"text":"x"}`+"\n"+
		`{"type":"usage","usage":{"input_tokens":1,"cost_usd":1e999}}`+"\n"+`{"type":"result","text":"x","reason":"Completed"}`))
	f.Add("claude", []byte(`{"type":"result","subtype":"success","num_turns":-1.5,"total_cost_usd":1e999,"usage":{"input_tokens":1e300},"modelUsage":{"m":{"inputTokens":"12"}}}`))
	f.Fuzz(func(t *testing.T, name string, stream []byte) {
		spec, ok := specs[name]
		if !ok {
			return
		}
		p := parser(t, spec)
		var batch harness.Batch
		for line := range bytes.SplitSeq(stream, []byte("\n")) {
			batch.Reset()
			p.Parse(line, &batch)
			for i := range batch.Events {
				solid(t, &batch.Events[i])
				if i > 0 && kept(&batch.Events[i]) != "" {
					t.Errorf("event %d of a line holds it too", i)
				}
			}
			if len(batch.Events)+len(batch.Deltas) == 0 && !silent(name, line) {
				t.Errorf("nothing is left of %q", line)
			}
			if len(batch.Events) > 0 && name != "exec" && kept(&batch.Events[0]) == "" {
				t.Errorf("the line is not kept: %q", line)
			}
			batch.Reset()
			p.Stderr(line, &batch)
			solid(t, &batch.Events[0])
		}
		batch.Reset()
		p.Close(&batch)
		for i := range batch.Events {
			solid(t, &batch.Events[i])
		}
		for _, exit := range []tallyman.Exit{{}, code(1), {Code: -1, Signal: "killed"}, {Code: -1, Signal: "killed", Sent: "killed"}} {
			o := p.Outcome(exit)
			if _, err := json.Marshal(o); err != nil || !o.Reason.Valid() {
				t.Errorf("outcome %q: %v", o.Reason, err)
			}
		}
		if u := p.Progress().Usage; u.InputTokens < 0 || u.OutputTokens < 0 || u.Turns < 0 || u.CostUSD < 0 {
			t.Errorf("negative usage: %+v", u)
		}
	})
}

// silent is a line that is to leave nothing: blank, a sign of life, or an
// event of the model's stream, whose whole follows.
func silent(name string, line []byte) bool {
	var v struct{ Type string }
	if len(bytes.Trim(line, "\r\n")) == 0 {
		return true
	}
	return name == "claude" && json.Unmarshal(bytes.ToValidUTF8(line, []byte("?")), &v) == nil &&
		(strings.EqualFold(v.Type, "stream_event") || strings.EqualFold(v.Type, "keep_alive"))
}
