//go:build linux

package contract_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman"
)

func TestAgentFilesThatAreWrong(t *testing.T) {
	head := "apiVersion: tallyman.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: bad\nspec:\n"
	for name, c := range map[string]struct {
		text string
		says []string
	}{
		"bad YAML":           {head + "  harness: exec\n command: [x\n", []string{"agents/bad.yaml:7"}},
		"a tab":              {head + "\tharness: exec\n", []string{"agents/bad.yaml:6"}},
		"an unknown key":     {head + "  harness: exec\n  comand: [echo]\n", []string{"agents/bad.yaml:7:3", `"command"`}},
		"a key deep inside":  {head + "  harness: exec\n  command: [echo]\n  limits: {deadlin: 1s}\n", []string{"agents/bad.yaml:8", `"deadline"`}},
		"a wrong type":       {head + "  harness: exec\n  command: [echo]\n  limits: {maxTurns: many}\n", []string{"agents/bad.yaml:8", "maxTurns"}},
		"a wrong duration":   {head + "  harness: exec\n  command: [echo]\n  limits:\n    idle: soon\n", []string{"agents/bad.yaml:9", "idle"}},
		"an unknown harness": {head + "  harness: clade\n", []string{"agents/bad.yaml:6", `"claude"`}},
		"an unknown reason":  {head + "  harness: exec\n  command: [echo]\n  retry: {on: [AgentEror]}\n", []string{"agents/bad.yaml:8", `"AgentError"`}},
		"two faults":         {head + "  harness: exec\n  comand: [echo]\n  priority: high\n", []string{"agents/bad.yaml:7", "agents/bad.yaml:8"}},
		"a wrong schema":     {head + "  harness: exec\n  command: [echo]\n  outputs: [{path: x, schema: {type: objct}}]\n", []string{"agents/bad.yaml:8", "'/type'"}},
		"a wrong kind":       {strings.Replace(head, "kind: Agent", "kind: Agnet", 1) + "  harness: exec\n", []string{"agents/bad.yaml:2", "Agent"}},
		"an empty file":      {"", []string{"agents/bad.yaml:1"}},
		"a key given twice":  {head + "  harness: exec\n  harness: exec\n", []string{"agents/bad.yaml:7"}},
		"a later feature":    {head + "  harness: exec\n  command: [echo]\n  concurrency: {key: x}\n", []string{"agents/bad.yaml:8", "not in this version"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.write("agents/bad.yaml", c.text)
			p.contains(p.want(2, "run", "bad", "x").err, c.says...)
			p.contains(p.want(2, "agents").err, c.says...)
			if got := p.ok("ls", "-o", "name"); got != "" {
				t.Errorf("a run was created: %s", got)
			}
			p.ends(tallyman.Completed, "exec", "--", "true") // the others work
		})
	}
}

func TestBadRequestsOfTheAPI(t *testing.T) {
	p := newPlace(t)
	p.agent("echo", "harness: exec\ncommand: [cat]")
	p.write("agents/bad.yaml", "apiVersion: tallyman.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: bad\nspec:\n  harness: exec\n  comand: [x]\n")
	s := p.up()
	for name, c := range map[string]struct {
		body string
		says []string
	}{
		"no JSON":             {`{"agent":`, nil},
		"an unknown key":      {"{\n\"agent\": \"echo\",\n\"promt\": \"x\"}", []string{"promt", `prompt`, "line 3"}},
		"a wrong type":        {`{"agent":"echo","priority":"high"}`, []string{"priority"}},
		"a wrong duration":    {`{"agent":"echo","limits":{"deadline":"soon"}}`, []string{"column 38", "soon"}},
		"an unknown agent":    {`{"agent":"ecko"}`, []string{"echo"}},
		"an agent with fault": {`{"agent":"bad"}`, []string{"agents/bad.yaml:7", "command"}},
		"no agent":            {`{"prompt":"x"}`, []string{"agent"}},
		"more after it":       {`{"agent":"echo"}{}`, nil},
		"nothing":             {``, nil},
		"a negative limit":    {`{"agent":"echo","limits":{"maxTurns":-1}}`, []string{"maxTurns"}},
		"an inline agent":     {`{"agent":"x","inline":{"name":"x","spec":{"harness":"exec","command":["id"]}}}`, []string{"socket"}},
		"a label without key": {`{"agent":"echo","labels":{"":"x"}}`, []string{"label"}},
	} {
		status, text := s.http("POST", "/api/v1/runs", c.body, nil)
		var problem struct {
			Status int    `json:"status"`
			Detail string `json:"detail"`
		}
		if err := json.Unmarshal([]byte(text), &problem); err != nil || status != 400 || problem.Status != 400 || problem.Detail == "" {
			t.Errorf("%s: %d %s", name, status, text)
		}
		p.contains(text, c.says...)
	}
	if _, text := s.get("/api/v1/runs"); !strings.Contains(text, `"items":[]`) {
		t.Errorf("a run was created: %s", text)
	}
	for path, want := range map[string]int{
		"/api/v1/runs/nosuch": 404, "/api/v1/runs/nosuch/events": 404, "/api/v1/runs?limit=x": 400, "/api/v1/runs?limit=0": 400,
		"/api/v1/runs?state=done": 400, "/api/v1/runs?cursor=%3F": 400, "/api/v1/nosuch": 404,
	} {
		if status, text := s.get(path); status != want {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

func TestAPromptOf20MBArrivesWhole(t *testing.T) {
	p := newPlace(t)
	line := strings.Repeat("0123456789abcdef", 63) + " ü€\"\\\n"
	prompt := strings.Repeat(line, 20_000_000/len(line)+1)
	sum := sha256.Sum256([]byte(prompt))
	want := hex.EncodeToString(sum[:])
	file := p.write("prompt", prompt)
	run := p.ends(tallyman.Completed, "exec", "--file", file, "--", "sha256sum")
	p.contains(p.ok("logs", run.ID), want)
	p.agent("copy", `harness: script
outputs: [{path: copy}]
settings: {steps: [{write: {path: copy, content: "{{prompt}}"}}, {result: "{{promptBytes}}"}]}`)
	run = p.ends(tallyman.Completed, "copy", "--file", file)
	if run.Result != strconv.Itoa(len(prompt)) {
		t.Errorf("the script counted %q bytes of %d", run.Result, len(prompt))
	}
	p.contains(p.ok("artifacts", "ls", run.ID), want)
	// A harness that never reads it, or closes early, is no error.
	p.ends(tallyman.Completed, "exec", "--file", file, "--", "true")
	p.ends(tallyman.Completed, "exec", "--file", file, "--", "sh", "-c", "exec <&-; sleep 0.2; echo done")
	p.ends(tallyman.Completed, "exec", "--file", file, "--", "sh", "-c", "sleep 0.2; echo done")
	if again := p.decode(p.want(0, "rerun", run.ID, "-o", "json")); again.Result != run.Result {
		t.Errorf("the rerun counted %q", again.Result)
	}
}

// peak is the most memory that a process has ever held, in MB.
func peak(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	var kb int
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		t.Fatal(err)
	}
	return kb >> 10
}

func TestALineOf50MB(t *testing.T) {
	const size = 50_000_000
	p := newPlace(t)
	s := p.up()
	script := p.write("long.sh", `echo before
head -c 50000000 /dev/zero | tr '\0' x
echo
echo after
`)
	run := s.submit(tallyman.Request{Inline: &tallyman.Agent{Name: "long", Spec: tallyman.AgentSpec{Harness: "exec", Command: []string{"sh", script}}}})
	p.holds(s.ended(run.ID), tallyman.Completed)
	events := p.events(run.ID)
	var seen []string
	for _, e := range events {
		switch {
		case e.RawCut != nil:
			sum := sha256.Sum256([]byte(strings.Repeat("x", size)))
			if c := e.RawCut; c.Bytes != size || strings.TrimPrefix(c.SHA256, "sha256:") != hex.EncodeToString(sum[:]) ||
				strings.Trim(string(c.Head)+string(c.Tail), "x") != "" || len(c.Head) != 64<<10 || len(c.Tail) != 64<<10 {
				t.Errorf("the cut line: %d bytes, %s, %d and %d kept", c.Bytes, c.SHA256, len(c.Head), len(c.Tail))
			}
			seen = append(seen, "cut")
		case e.Type == tallyman.EventText:
			seen = append(seen, e.Text)
		}
	}
	if got := strings.Join(seen, ","); got != "before,cut,after" {
		t.Errorf("the events tell %s", got)
	}
	logs := p.ok("logs", run.ID)
	p.contains(logs, "before\n", "\nafter\n")
	if mb := peak(t, s.cmd.Process.Pid); mb > 150 {
		t.Errorf("the server has held %d MB", mb)
	}

	// The same within the protocol of claude, and lines just below the limit.
	good := recorded(t, "toolok")
	first, rest, _ := strings.Cut(good, "\n")
	p.claude("claude-long", first+"\n"+`{"type":"user","message":{"content":"`+strings.Repeat("y", size)+"\"}}\n"+
		`{"type":"user","message":{"content":"`+strings.Repeat("z", 8_000_000)+"\"}}\n"+rest, "", "")
	run = p.ends(tallyman.Completed, "claude-long", "go")
	if run.Result != "Done. The answer is 42. " {
		t.Errorf("the result is %q", run.Result)
	}
	p.events(run.ID)
	p.ok("logs", run.ID)
	p.holds(p.ends(tallyman.Completed, "exec", "--", "sh", "-c", "head -c 8000000 /dev/zero | tr '\\0' w; echo; echo after"), tallyman.Completed)
	if mb := peak(t, s.cmd.Process.Pid); mb > 150 {
		t.Errorf("the server has held %d MB", mb)
	}
}

// Lines that are kept whole, and grow when JSON is made of them, with somebody
// who watches: what the server holds of them is bounded all the same.
func TestManyLinesJustBelowTheLimit(t *testing.T) {
	p := newPlace(t)
	s := p.up()
	script := p.write("many.sh", `for n in 1 2 3 4 5 6 7 8; do
head -c 8300000 /dev/zero; echo
head -c 8300000 /dev/zero | tr '\0' '\377'; echo
head -c 8300000 /dev/zero | tr '\0' x; echo
done
`)
	run := p.detach("exec", "--", "sh", script)
	logs := p.ok("logs", "-f", run.ID)
	want := sha256.New()
	for range 8 {
		for _, sign := range []string{"\x00", "\xff", "x"} {
			want.Write([]byte(strings.Repeat(sign, 8_300_000) + "\n"))
		}
	}
	if got := sha256.Sum256([]byte(logs)); !bytes.Equal(got[:], want.Sum(nil)) {
		t.Errorf("logs give %d other bytes", len(logs))
	}
	p.holds(s.ended(run.ID), tallyman.Completed)
	mb := peak(t, s.cmd.Process.Pid)
	t.Logf("the server has held %d MB", mb)
	if mb > 150 {
		t.Errorf("the server has held %d MB", mb)
	}
}

func TestStrangeBytesAreKeptAndSurvived(t *testing.T) {
	p := newPlace(t)
	lines := []string{"plain", "nul \x00 nul", "\x1b[31mred\x1b[0m\x1b]0;title\x07", "10%\r50%\r100%", "bad \xff\xfe\xc3 utf-8", "\xed\xa0\x80 surrogate",
		strings.Repeat("\x00", 5000), "{\"type\":\"result\"", "last"}
	file := p.write("lines", strings.Join(lines, "\n")+"\n")
	run := p.ends(tallyman.Completed, "exec", "--", "cat", file)
	if got := p.ok("logs", run.ID); got != strings.Join(lines, "\n")+"\n" {
		t.Errorf("logs give other bytes: %q", got)
	}
	var got []string
	for _, e := range p.events(run.ID) {
		if e.Type != tallyman.EventText {
			continue
		}
		line := e.Text
		if len(e.RawB64) > 0 {
			line = string(e.RawB64)
		}
		got = append(got, line)
	}
	if strings.Join(got, "\n") != strings.Join(lines, "\n") {
		t.Errorf("the events hold other bytes: %q", got)
	}
	p.agent("garbage", `harness: script
settings:
  steps:
  - {garbage: "`+base64.StdEncoding.EncodeToString([]byte("\x00\xff{\x1b[2J"))+`"}
  - {garbage: "random:100000"}
  - {say: after}
  - {result: fine}`)
	if run := p.ends(tallyman.Completed, "garbage", "x"); run.Result != "fine" {
		t.Errorf("the result is %q", run.Result)
	}
	// Words that people give survive too.
	odd := "\x1b[31m'\";--\\ ü😀 \u2028"
	run = p.ends(tallyman.Completed, "demo", odd, "--label", "odd="+odd, "--key", odd)
	if run.Result != odd || run.Labels["odd"] != odd || run.Key != odd {
		t.Errorf("got back %q %q %q", run.Result, run.Labels, run.Key)
	}
	if list := p.ok("ls"); strings.Contains(list, "\x1b") {
		t.Errorf("ls prints escapes: %q", list)
	}
}
