package harness_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/harness"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The recordings are what the real program wrote; what each must be taken for
// is known from how it was made, not from what this parser says.
var recordings = map[string]struct {
	exit   tallyman.Exit
	agent  func(*tallyman.AgentSpec)
	reason tallyman.Reason
	says   string // part of the message
	result string
	usage  tallyman.Usage
}{
	"toolok":      {reason: tallyman.Completed, result: "Done. The answer is 42. ", usage: twoCalls},
	"overloaded2": {reason: tallyman.Completed, result: "Done. The answer is 42. ", usage: twoCalls},
	"mcpdead":     {reason: tallyman.Completed, result: "Done. The answer is 42. ", usage: twoCalls},
	"auth":        {exit: code(1), reason: tallyman.AuthExpired, says: "401", usage: nothing(1)},
	"maxturns":    {exit: code(1), reason: tallyman.MaxTurns, says: "(2)", usage: turns(twoCalls, 3)},
	"hang":        {exit: code(124), reason: tallyman.NoResult, says: "124", usage: estimated(begunCall)},
	"noskill":     {reason: tallyman.SetupFailed, says: "/nonexistent-skill", usage: nothing(0)},

	"claude_badbytes":        {reason: tallyman.Completed, result: "ok", usage: twoCalls},
	"claude_bg_bash":         {reason: tallyman.Completed, result: "Left it running.", usage: threeCalls},
	"claude_bg_bash_long":    {reason: tallyman.Completed, result: "Left it running.", usage: twoCalls},
	"claude_jsonschema":      {agent: schema, reason: tallyman.Completed, result: `{"answer":42}`, usage: turns(oneCall, 2)},
	"claude_jsonschema_none": {agent: schema, reason: tallyman.NoOutput, says: "schema", result: "still no", usage: twoCalls},
	"claude_longline":        {reason: tallyman.Completed, result: "wwww", usage: oneCall},
	"claude_mcp":             {agent: required("tiny"), reason: tallyman.Completed, result: "Sum is 42.", usage: twoCalls},
	"claude_p_429":           {exit: code(1), reason: tallyman.RateLimited, says: "429", usage: nothing(1)},
	"claude_plugin_missing":  {agent: plugin, reason: tallyman.SetupFailed, says: "/nonexistent/plug", usage: oneCall},
	"claude_plugin_slash":    {agent: plugin, reason: tallyman.Completed, result: "Hello from skill.", usage: oneCall},
	"claude_sigint_stream":   {exit: tallyman.Exit{Sent: "interrupt"}, reason: tallyman.AgentError, says: "error_during_execution", usage: nothing(2)},
	"claude_sigterm_stream":  {exit: tallyman.Exit{Code: 143, Sent: "terminated"}, reason: tallyman.NoResult, says: "stopped", usage: estimated(begunCall)},
	"claude_slashpath":       {reason: tallyman.Completed, result: "checked.", usage: oneCall},
	"claude_slashword":       {reason: tallyman.SetupFailed, says: "/fix", usage: nothing(0)},
	"claude_stophook_events": {reason: tallyman.Completed, result: "Done 1.", usage: oneCall},
	"claude_stophook_hang":   {exit: code(143), reason: tallyman.NoResult, says: "143", usage: estimated(begunCall)},
	"claude_subagent":        {reason: tallyman.Completed, result: "Main done: 7.", usage: fourCalls},
}

// Each scripted call of the model used the same.
var (
	begunCall  = tallyman.Usage{InputTokens: 12, OutputTokens: 1, CacheReadTokens: 100, CacheWriteTokens: 5, CostUSD: 0.00009975, CostSource: tallyman.CostHarness, Turns: 1}
	oneCall    = tallyman.Usage{InputTokens: 12, OutputTokens: 23, CacheReadTokens: 100, CacheWriteTokens: 5, CostUSD: 0.00042975, CostSource: tallyman.CostHarness, Turns: 1}
	twoCalls   = tallyman.Usage{InputTokens: 24, OutputTokens: 46, CacheReadTokens: 200, CacheWriteTokens: 10, CostUSD: 0.0008595, CostSource: tallyman.CostHarness, Turns: 2}
	threeCalls = tallyman.Usage{InputTokens: 36, OutputTokens: 69, CacheReadTokens: 300, CacheWriteTokens: 15, CostUSD: 0.00128925, CostSource: tallyman.CostHarness, Turns: 3}
	fourCalls  = tallyman.Usage{InputTokens: 48, OutputTokens: 92, CacheReadTokens: 400, CacheWriteTokens: 20, CostUSD: 0.001719, CostSource: tallyman.CostHarness, Turns: 2}
)

func nothing(n int) tallyman.Usage {
	return tallyman.Usage{CostSource: tallyman.CostHarness, Turns: n}
}

func turns(u tallyman.Usage, n int) tallyman.Usage {
	u.Turns = n
	return u
}

func estimated(u tallyman.Usage) tallyman.Usage {
	u.CostSource = tallyman.CostEstimated
	return u
}

func code(n int) tallyman.Exit { return tallyman.Exit{Code: n} }

func schema(a *tallyman.AgentSpec) {
	a.Settings = map[string]json.RawMessage{"jsonSchema": json.RawMessage(`{"type":"object"}`)}
}

func plugin(a *tallyman.AgentSpec) {
	a.Settings = map[string]json.RawMessage{"pluginDirs": json.RawMessage(`["/plugin"]`)}
}

func required(server string) func(*tallyman.AgentSpec) {
	return func(a *tallyman.AgentSpec) {
		a.MCPServers = map[string]json.RawMessage{server: json.RawMessage(`{"command":"x","required":true}`)}
	}
}

func TestRecordedStreams(t *testing.T) {
	files, err := filepath.Glob("testdata/streams/*.ndjson")
	if err != nil || len(files) != len(recordings) {
		t.Fatalf("%d recordings and %d expectations: %v", len(files), len(recordings), err)
	}
	for name, want := range recordings {
		t.Run(name, func(t *testing.T) {
			stream := streamFile(t, name)
			spec := tallyman.RunnerSpec{Agent: tallyman.AgentSpec{Harness: "claude"}}
			if want.agent != nil {
				want.agent(&spec.Agent)
			}
			p := parser(t, spec)
			events, deltas := feed(t, p, stream)
			got := p.Outcome(want.exit)
			if got.Reason != want.reason || !strings.Contains(got.Message, want.says) {
				t.Errorf("%s (%s), want %s and %q", got.Reason, got.Message, want.reason, want.says)
			}
			if !strings.HasPrefix(got.Result, want.result) || got.Result == "" != (want.result == "") {
				t.Errorf("result %q, want %q", got.Result, want.result)
			}
			if diff := cmp.Diff(want.usage, got.Usage, roughly); diff != "" {
				t.Errorf("usage (-want +got):\n%s", diff)
			}
			golden(t, name, describe(events, deltas))
		})
	}
}

func streamFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/streams/" + name + ".ndjson")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func parser(t testing.TB, spec tallyman.RunnerSpec) harness.Parser {
	t.Helper()
	a, err := harness.Lookup(spec.Agent.Harness)
	if err != nil {
		t.Fatal(err)
	}
	return a.NewParser(spec)
}

// roughly takes sums of floats for equal that differ in the last digits.
var roughly = cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })

// feed parses a whole stream as a runner does and returns copies of what came.
func feed(t testing.TB, p harness.Parser, stream []byte) (events []tallyman.Event, deltas []tallyman.Delta) {
	t.Helper()
	var batch harness.Batch
	take := func() {
		for i := range batch.Events {
			events = append(events, solid(t, &batch.Events[i]))
		}
		for _, d := range batch.Deltas {
			d.Delta, d.Parent = strings.Clone(d.Delta), strings.Clone(d.Parent)
			deltas = append(deltas, d)
		}
		batch.Reset()
	}
	for line := range bytes.Lines(stream) {
		p.Parse(bytes.TrimSuffix(line, []byte("\n")), &batch)
		take()
	}
	p.Close(&batch)
	take()
	return events, deltas
}

// solid returns the event as it comes back from its own JSON, which must be
// one valid line.
func solid(t testing.TB, e *tallyman.Event) tallyman.Event {
	t.Helper()
	line := e.AppendJSON(nil)
	if !json.Valid(line) || !utf8.Valid(line) || bytes.ContainsAny(line, "\r\n") {
		t.Fatalf("not one line of JSON: %.500q", line)
	}
	var back tallyman.Event
	if err := json.Unmarshal(line, &back); err != nil {
		t.Fatalf("%v in %.500q", err, line)
	}
	return back
}

// describe writes one line per event, short enough to be read.
func describe(events []tallyman.Event, deltas []tallyman.Delta) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%d %s", e.Turn, e.Type)
		for _, kv := range [][2]string{
			{"name", e.Name}, {"id", e.ToolID}, {"parent", e.Parent},
			{"text", short(e.Text)}, {"data", short(string(e.Data))},
		} {
			if kv[1] != "" {
				fmt.Fprintf(&b, " %s=%q", kv[0], kv[1])
			}
		}
		if e.Usage != nil {
			fmt.Fprintf(&b, " usage=%d/%d/%d/%d $%.8f %s", e.Usage.InputTokens, e.Usage.OutputTokens,
				e.Usage.CacheReadTokens, e.Usage.CacheWriteTokens, e.Usage.CostUSD, e.Usage.CostSource)
		}
		for _, flag := range []struct {
			name string
			set  bool
		}{
			{"failed", e.Failed}, {"partial", e.Partial}, {"+raw", e.Raw != nil}, {"+b64", e.RawB64 != nil}, {"+cut", e.RawCut != nil},
		} {
			if flag.set {
				b.WriteString(" " + flag.name)
			}
		}
		b.WriteByte('\n')
	}
	streams := map[string]string{}
	var order []string
	for _, d := range deltas {
		key := fmt.Sprintf("delta %s %s %s", d.Type, d.Parent, d.Block)
		if _, ok := streams[key]; !ok {
			order = append(order, key)
		}
		streams[key] += d.Delta
	}
	for _, key := range order {
		fmt.Fprintf(&b, "%s = %q\n", key, short(streams[key]))
	}
	return b.String()
}

func short(s string) string {
	if len(s) > 100 {
		return fmt.Sprintf("%s…(%d)", s[:100], len(s))
	}
	return s
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := "testdata/golden/" + name + ".txt"
	if *update {
		if err := os.MkdirAll("testdata/golden", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
