//go:build linux

package contract_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// fakeClaude takes the prompt, writes a recorded stream and does what the test
// wants then.
const fakeClaude = `#!/bin/sh
cat > stdin.txt
cat "$FAKE_STREAM"
eval "$FAKE_THEN"
`

// claude makes an agent whose program writes a stream of the recorded ones,
// or the given lines, and then does what a shell is told.
func (p *place) claude(name, stream, then, spec string) {
	p.t.Helper()
	if !strings.Contains(stream, "\n") {
		stream = recorded(p.t, stream)
	}
	program := p.write("claude.sh", fakeClaude)
	if err := os.Chmod(program, 0o755); err != nil {
		p.t.Fatal(err)
	}
	quoted, err := json.Marshal(then)
	if err != nil {
		p.t.Fatal(err)
	}
	p.agent(name, "harness: claude\ncommand: ["+program+"]\nretry: {max: 0}\nenv:\n- {name: IS_SANDBOX, value: 1}\n- {name: FAKE_STREAM, value: "+
		p.write(name+".ndjson", stream)+"}\n- {name: FAKE_THEN, value: "+string(quoted)+"}\n"+spec)
}

func recorded(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../internal/harness/testdata/streams", name+".ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// without drops the lines that hold words.
func without(stream, words string) string {
	var kept strings.Builder
	for line := range strings.Lines(stream) {
		if !strings.Contains(line, words) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func TestEndsOfAHarness(t *testing.T) {
	good := recorded(t, "toolok")
	for name, c := range map[string]struct {
		stream, then, spec string
		reason             tallyman.Reason
		says               string
	}{
		"a result and exit 0":                   {stream: "toolok", reason: tallyman.Completed},
		"exit 0 without a result":               {stream: without(good, `"type":"result"`), reason: tallyman.NoResult},
		"an unknown slash command":              {stream: "noskill", reason: tallyman.SetupFailed, says: "/nonexistent-skill"},
		"result, then no exit":                  {stream: "toolok", then: "exec sleep 300", reason: tallyman.Completed},
		"result, then no exit, and TERM is air": {stream: "toolok", then: "trap '' TERM INT; while :; do sleep 0.1; done", reason: tallyman.Completed},
		"never a word":                          {stream: "\n", then: "exec sleep 300", spec: "limits: {idle: 400ms}", reason: tallyman.IdleTimeout},
		"never the end":                         {stream: "hang", then: "exec sleep 300", spec: "limits: {deadline: 700ms}", reason: tallyman.DeadlineExceeded},
		"exit 1 without a word":                 {stream: "\n", then: "echo what is this >&2; exit 1", reason: tallyman.SetupFailed, says: "what is this"},
		"the login has expired":                 {stream: "auth", then: "exit 1", reason: tallyman.AuthExpired, says: "401"},
		"too many turns":                        {stream: "maxturns", then: "exit 1", reason: tallyman.MaxTurns},
		"killed by somebody":                    {stream: without(good, `"type":"result"`), then: "kill -9 $$", reason: tallyman.AgentError, says: "SIGKILL"},
		"text between the lines":                {stream: strings.ReplaceAll(good, "\n", "\nnpm WARN deprecated\n\x1b[2K\r10%\r20%\n"), reason: tallyman.Completed},
		"bytes that are no UTF-8, and NULs":     {stream: "claude_badbytes", reason: tallyman.Completed},
		"NULs between the lines":                {stream: strings.ReplaceAll(good, "\n", "\n\x00\x00\n"), reason: tallyman.Completed},
		"a line of 150 kB":                      {stream: "claude_longline", reason: tallyman.Completed},
		"floats where integers are usual": {stream: strings.NewReplacer(`"num_turns":2`, `"num_turns":2.0`, `"input_tokens":24`, `"input_tokens":24.0`,
			`"output_tokens":46`, `"output_tokens":4.6e1`, `"duration_ms":`, `"duration_ms":0.5e`).Replace(good), reason: tallyman.Completed},
		"a stream cut in the middle of a line": {stream: good[:len(good)-200] + "\n", reason: tallyman.NoResult},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.set("TALLYMAN_GRACE=500ms", "TALLYMAN_RESULT_GRACE=500ms")
			p.claude("fake", c.stream, c.then, c.spec)
			run := p.ends(c.reason, "fake", "go")
			p.contains(run.Message, c.says)
			p.events(run.ID)
			p.ok("logs", run.ID)
			if c.reason != tallyman.Completed || c.stream == "claude_badbytes" || c.stream == "claude_longline" {
				return
			}
			u := run.Usage
			if run.Result != "Done. The answer is 42. " || u.Turns != 2 || u.InputTokens != 24 || u.OutputTokens != 46 ||
				u.CacheReadTokens != 200 || u.CacheWriteTokens != 10 || math.Abs(u.CostUSD-0.0008595) > 1e-9 || u.CostSource != tallyman.CostHarness {
				t.Errorf("result %q, usage %+v", run.Result, u)
			}
		})
	}
}

func TestTwoResults(t *testing.T) {
	p := newPlace(t)
	p.claude("fake", "claude_bg_bash", "", "")
	run := p.ends(tallyman.Completed, "fake", "go")
	// The second result is that of a task notification: it counts, and does not speak.
	if run.Result != "Left it running." || run.Usage.Turns != 3 || run.Usage.InputTokens != 36 {
		t.Errorf("result %q, usage %+v", run.Result, run.Usage)
	}
	if n := len(texts(p.events(run.ID), tallyman.EventResult)); n != 2 {
		t.Errorf("%d result events", n)
	}
	// A bad last result is the outcome, though the first was good.
	good := recorded(t, "toolok")
	last := strings.TrimSpace(good[strings.LastIndex(strings.TrimSpace(good), "\n")+1:])
	bad := strings.NewReplacer(`"is_error":false`, `"is_error":true`, `"subtype":"success"`, `"subtype":"error_during_execution"`).Replace(last)
	p.claude("worse", good+bad+"\n", "", "")
	p.ends(tallyman.AgentError, "worse", "go")
}

func TestALateStopDoesNotTakeTheResultAway(t *testing.T) {
	p := newPlace(t)
	p.set("TALLYMAN_GRACE=1s", "TALLYMAN_RESULT_GRACE=20s")
	p.claude("fake", "toolok", "exec sleep 300", "")
	run := p.detach("fake", "go")
	p.eventually("the result", func() bool { return strings.Contains(p.ok("events", run.ID), `"type":"result"`) })
	began := time.Now()
	p.ok("stop", run.ID)
	p.holds(p.show(run.ID), tallyman.Completed)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("stopping took %s", took)
	}
}

func TestAPromptAboveWhatClaudeTakes(t *testing.T) {
	p := newPlace(t)
	p.claude("plain", "toolok", "", "")
	p.claude("filed", "toolok", "cat PROMPT.md > got.md", "promptFile: true\noutputs: [{path: got.md}, {path: stdin.txt}]")
	big := strings.Repeat("x", 10_000_001)
	file := p.write("prompt", big)
	p.contains(p.want(2, "run", "plain", "--file", file).err, "10000001", "10000000", "promptFile")
	if got := p.ok("ls", "-o", "name"); got != "" {
		t.Errorf("a run was created: %s", got)
	}
	run := p.ends(tallyman.Completed, "filed", "--file", file)
	if got := p.ok("artifacts", "get", run.ID, "got.md", "--to", "-"); got != big {
		t.Errorf("the file has %d bytes", len(got))
	}
	p.contains(p.ok("artifacts", "get", run.ID, "stdin.txt", "--to", "-"), "PROMPT.md")
	p.want(2, "run", "plain", "")
	s := p.up()
	body, err := json.Marshal(tallyman.Request{Agent: "plain", Prompt: big})
	if err != nil {
		t.Fatal(err)
	}
	status, text := s.http("POST", "/api/v1/runs", string(body), nil)
	if status != 400 {
		t.Errorf("the API answers %d", status)
	}
	p.contains(text, "InvalidSpec", "promptFile")
}
