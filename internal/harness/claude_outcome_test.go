package harness_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/harness"
)

const (
	initLine  = `{"type":"system","subtype":"init","model":"claude-sonnet-4-5","mcp_servers":[]}`
	callLine  = `{"type":"assistant","message":{"id":"m1","model":"claude-sonnet-4-5","content":[{"type":"text","text":"x"}],"usage":{"input_tokens":1000000,"output_tokens":0}}}`
	goodLine  = `{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"fine","total_cost_usd":0.5,"usage":{"input_tokens":10,"output_tokens":5}}`
	taskLine  = `{"type":"result","subtype":"success","is_error":false,"num_turns":2,"result":"the task","total_cost_usd":0.7,"usage":{"input_tokens":1,"output_tokens":2},"origin":{"kind":"task-notification"}}`
	limitLine = `{"type":"assistant","message":{"id":"s","model":"<synthetic>","content":[{"type":"text","text":"no"}]},"error":"rate_limit"}`
)

func failedResult(fields string) string {
	return `{"type":"result","subtype":"success","is_error":true,"num_turns":1,"result":"words",` + fields + `}`
}

func TestClaudeOutcome(t *testing.T) {
	server := func(status string) string {
		return strings.Replace(initLine, "[]", `[{"name":"jira","status":"`+status+`"}]`, 1)
	}
	for name, tc := range map[string]struct {
		lines  []string
		stderr string
		exit   tallyman.Exit
		agent  func(*tallyman.AgentSpec)
		reason tallyman.Reason
		says   string
	}{
		"a good result":                            {lines: []string{initLine, goodLine}, reason: tallyman.Completed},
		"a good result, then a bad exit":           {lines: []string{initLine, goodLine}, exit: code(1), reason: tallyman.Completed, says: "exit code 1"},
		"a good result, then no exit: we end it":   {lines: []string{initLine, goodLine}, exit: tallyman.Exit{Code: -1, Signal: "killed", Sent: "killed"}, reason: tallyman.Completed},
		"a refusal":                                {lines: []string{initLine, failedResult(`"stop_reason":"refusal","api_error_status":400`)}, reason: tallyman.RefusedByModel},
		"the limit of turns":                       {lines: []string{initLine, `{"type":"result","subtype":"error_max_turns","is_error":true,"num_turns":3,"errors":["Reached maximum"]}`}, reason: tallyman.MaxTurns, says: "Reached"},
		"the budget":                               {lines: []string{initLine, `{"type":"result","subtype":"error_max_budget_usd","is_error":true,"num_turns":3}`}, reason: tallyman.BudgetExceeded},
		"a prompt too long, which is a 400":        {lines: []string{initLine, failedResult(`"api_error_status":400,"terminal_reason":"prompt_too_long"`)}, reason: tallyman.TokenLimit},
		"401":                                      {lines: []string{initLine, failedResult(`"api_error_status":401`)}, reason: tallyman.AuthExpired, says: "401"},
		"403 as a float":                           {lines: []string{initLine, failedResult(`"api_error_status":403.0`)}, reason: tallyman.AuthExpired, says: "403"},
		"429":                                      {lines: []string{initLine, failedResult(`"api_error_status":429`)}, reason: tallyman.RateLimited},
		"429 known by its word":                    {lines: []string{initLine, limitLine, failedResult(`"api_error_status":null`)}, reason: tallyman.RateLimited},
		"529":                                      {lines: []string{initLine, failedResult(`"api_error_status":529`)}, reason: tallyman.Overloaded},
		"500":                                      {lines: []string{initLine, failedResult(`"api_error_status":500`)}, reason: tallyman.ProviderError},
		"another 4xx":                              {lines: []string{initLine, failedResult(`"api_error_status":404`)}, reason: tallyman.ProviderError},
		"a cut connection":                         {lines: []string{initLine, failedResult(`"terminal_reason":"api_error"`)}, reason: tallyman.ProviderError},
		"an error in the work":                     {lines: []string{initLine, callLine, `{"type":"result","subtype":"error_during_execution","is_error":true,"num_turns":2,"errors":["boom"]}`}, reason: tallyman.AgentError, says: "boom"},
		"an unknown kind of end":                   {lines: []string{initLine, `{"type":"result","subtype":"error_new","is_error":true,"num_turns":2}`}, reason: tallyman.AgentError, says: "error_new"},
		"a result without anything":                {lines: []string{initLine, `{"type":"result"}`}, reason: tallyman.AgentError},
		"nothing to resume":                        {lines: []string{`{"type":"result","subtype":"error_during_execution","is_error":true,"num_turns":0,"errors":["No conversation found"]}`}, exit: code(1), reason: tallyman.SetupFailed, says: "No conversation"},
		"a failure to start":                       {lines: []string{`{"type":"result","subtype":"error_during_execution","is_error":true,"num_turns":0,"startup_failure_reason":"bypass_root"}`}, reason: tallyman.SetupFailed, says: "bypass_root"},
		"an unknown command":                       {lines: []string{initLine, strings.Replace(goodLine, `"num_turns":1`, `"num_turns":0`, 1)}, reason: tallyman.SetupFailed, says: "fine"},
		"a schema nobody answered":                 {lines: []string{initLine, goodLine}, agent: schema, reason: tallyman.NoOutput},
		"retries for a schema used up":             {lines: []string{initLine, `{"type":"result","subtype":"error_max_structured_output_retries","is_error":true,"num_turns":3}`}, reason: tallyman.NoOutput},
		"a required server that is not there":      {lines: []string{initLine, goodLine}, agent: required("jira"), reason: tallyman.SetupFailed, says: "jira"},
		"a required server that failed":            {lines: []string{server("failed"), goodLine}, agent: required("jira"), reason: tallyman.SetupFailed, says: "failed"},
		"a required server in a later init":        {lines: []string{server("pending"), goodLine, server("connected"), goodLine}, agent: required("jira"), reason: tallyman.Completed},
		"nothing on stdout":                        {stderr: "Error: Input must be provided", exit: code(1), reason: tallyman.SetupFailed, says: "Input must be provided"},
		"nothing at all":                           {reason: tallyman.NoResult},
		"exit 0 in mid turn":                       {lines: []string{initLine, callLine}, reason: tallyman.NoResult},
		"exit 1 in mid turn":                       {lines: []string{initLine, callLine}, stderr: "oops", exit: code(1), reason: tallyman.NoResult, says: "oops"},
		"a signal of somebody's in mid turn":       {lines: []string{initLine, callLine}, exit: tallyman.Exit{Code: -1, Signal: "segmentation fault"}, reason: tallyman.AgentError, says: "segmentation fault"},
		"our signal in mid turn":                   {lines: []string{initLine, callLine}, exit: tallyman.Exit{Code: -1, Signal: "killed", Sent: "killed"}, reason: tallyman.NoResult},
		"a failed call, then no result":            {lines: []string{initLine, limitLine}, exit: code(1), reason: tallyman.RateLimited},
		"a second turn that has no end":            {lines: []string{initLine, goodLine, initLine, callLine}, reason: tallyman.NoResult},
		"a second turn that failed":                {lines: []string{initLine, goodLine, initLine, failedResult(`"api_error_status":429`)}, reason: tallyman.RateLimited},
		"words between the lines change nothing":   {lines: []string{"hello", initLine, "\x1b[2K\r", goodLine, "bye"}, reason: tallyman.Completed},
		"an error of an earlier turn is forgotten": {lines: []string{initLine, limitLine, failedResult(`"api_error_status":429`), initLine, failedResult(`"terminal_reason":"api_error"`)}, reason: tallyman.ProviderError},
	} {
		t.Run(name, func(t *testing.T) {
			spec := tallyman.RunnerSpec{Agent: tallyman.AgentSpec{Harness: "claude"}}
			if tc.agent != nil {
				tc.agent(&spec.Agent)
			}
			p := parser(t, spec)
			var batch harness.Batch
			if tc.stderr != "" {
				p.Stderr([]byte(tc.stderr), &batch)
				p.Stderr([]byte("  "), &batch)
			}
			feed(t, p, []byte(strings.Join(tc.lines, "\n")+"\n"))
			got := p.Outcome(tc.exit)
			if got.Reason != tc.reason || !strings.Contains(got.Message, tc.says) || strings.Contains(got.Message, "\n") {
				t.Errorf("%s (%s), want %s and %q", got.Reason, got.Message, tc.reason, tc.says)
			}
			if !got.Started || (got.ExitCode == nil) != (tc.exit.Signal != "") || got.Signal != tc.exit.Signal {
				t.Errorf("the exit is not told: %+v", got)
			}
		})
	}
}

func TestClaudeTwoResults(t *testing.T) {
	p := parser(t, specs["claude"])
	events, _ := feed(t, p, []byte(initLine+"\n"+callLine+"\n"+goodLine+"\n"+initLine+"\n"+callLine+"\n"+taskLine+"\n"))
	got := p.Outcome(code(0))
	want := tallyman.Usage{InputTokens: 11, OutputTokens: 7, CostUSD: 0.7, CostSource: tallyman.CostHarness, Turns: 3}
	if got.Reason != tallyman.Completed || got.Result != "fine" || got.Usage != want {
		t.Errorf("%s %q %+v", got.Reason, got.Result, got.Usage)
	}
	var names []string
	for _, e := range events {
		if e.Type == tallyman.EventResult {
			names = append(names, e.Name)
		}
	}
	if diff := cmp.Diff([]string{"", "task-notification"}, names); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

func TestClaudeStructuredOutput(t *testing.T) {
	spec := tallyman.RunnerSpec{Agent: tallyman.AgentSpec{Harness: "claude"}}
	schema(&spec.Agent)
	p := parser(t, spec)
	events, _ := feed(t, p, streamFile(t, "claude_jsonschema"))
	if got := p.Outcome(code(0)); string(got.Structured) != `{"answer":42}` {
		t.Errorf("structured output is %s", got.Structured)
	}
	if last := events[len(events)-1]; string(last.Data) != `{"answer":42}` {
		t.Errorf("the event has %s", last.Data)
	}
}

func TestClaudeUsageBeforeAResult(t *testing.T) {
	for name, tc := range map[string]struct {
		lines []string
		want  tallyman.Usage
	}{
		"a message told twice counts once": {
			[]string{callLine, callLine},
			tallyman.Usage{InputTokens: 1e6, CostUSD: 3, CostSource: tallyman.CostEstimated, Turns: 1},
		},
		"its last figures count": {
			[]string{
				`{"type":"stream_event","event":{"type":"message_start","message":{"id":"m1","model":"claude-sonnet-4-5","usage":{"input_tokens":1000000,"output_tokens":1}}}}`,
				`{"type":"stream_event","event":{"type":"message_delta","usage":{"output_tokens":1000000}}}`, callLine,
			},
			tallyman.Usage{InputTokens: 1e6, OutputTokens: 1e6, CostUSD: 18, CostSource: tallyman.CostEstimated, Turns: 1},
		},
		"what claude made up itself is no turn": {
			[]string{callLine, limitLine},
			tallyman.Usage{InputTokens: 1e6, CostUSD: 3, CostSource: tallyman.CostEstimated, Turns: 1},
		},
		"a sub-agent's message is no turn": {
			[]string{strings.Replace(callLine, `{"type":"assistant",`, `{"type":"assistant","parent_tool_use_id":"t",`, 1)},
			tallyman.Usage{InputTokens: 1e6, CostUSD: 3, CostSource: tallyman.CostEstimated},
		},
		"a model without a price": {
			[]string{callLine, strings.Replace(strings.Replace(callLine, "m1", "m2", 1), "claude-sonnet-4-5", "house", 1)},
			tallyman.Usage{InputTokens: 2e6, CostUSD: 3, CostSource: tallyman.CostUnknown, Turns: 2},
		},
		"a new turn is added to the last result": {
			[]string{initLine, goodLine, initLine, callLine},
			tallyman.Usage{InputTokens: 1e6 + 10, OutputTokens: 5, CostUSD: 3.5, CostSource: tallyman.CostEstimated, Turns: 2},
		},
		"a late line about a counted message adds nothing": {
			[]string{initLine, callLine, goodLine, strings.Replace(callLine, `"output_tokens":0`, `"output_tokens":9`, 1)},
			tallyman.Usage{InputTokens: 10, OutputTokens: 5, CostUSD: 0.5, CostSource: tallyman.CostHarness, Turns: 1},
		},
		"a result without a cost is estimated": {
			[]string{initLine, `{"type":"result","subtype":"success","num_turns":1,"usage":{"input_tokens":1000000}}`},
			tallyman.Usage{InputTokens: 1e6, CostUSD: 3, CostSource: tallyman.CostEstimated, Turns: 1},
		},
		"a result by model without a cost is estimated by model": {
			[]string{initLine, `{"type":"result","subtype":"success","num_turns":1,"modelUsage":{"claude-haiku-4-5":{"inputTokens":1000000},"claude-sonnet-4-5":{"outputTokens":1000000}}}`},
			tallyman.Usage{InputTokens: 1e6, OutputTokens: 1e6, CostUSD: 16, CostSource: tallyman.CostEstimated, Turns: 1},
		},
		"figures beyond reason do no harm": {
			[]string{initLine, `{"type":"result","subtype":"success","num_turns":-3,"total_cost_usd":1e999,"usage":{"input_tokens":-5,"output_tokens":"7"}}`},
			tallyman.Usage{OutputTokens: 7, CostUSD: 7 * 15e-6, CostSource: tallyman.CostEstimated},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := parser(t, specs["claude"])
			feed(t, p, []byte(strings.Join(tc.lines, "\n")+"\n"))
			if diff := cmp.Diff(tc.want, p.Progress().Usage, roughly); diff != "" {
				t.Errorf("usage (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClaudeProgress(t *testing.T) {
	p := parser(t, specs["claude"])
	var batch harness.Batch
	step := func(line string, want harness.Progress) {
		t.Helper()
		p.Parse([]byte(line), &batch)
		got := p.Progress()
		got.Usage, got.Turns = tallyman.Usage{}, 0
		if got != want {
			t.Errorf("after %.80s: %+v, want %+v", line, got, want)
		}
	}
	tool := `{"type":"assistant","message":{"id":"m1","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{}}]}}`
	done := `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1","content":"x"}]}}`
	step(initLine, harness.Progress{})
	step(tool, harness.Progress{OpenTools: 1})
	step(`{"type":"system","subtype":"task_started","task_id":"b1","tool_use_id":"t1"}`, harness.Progress{OpenTools: 1})
	step(done, harness.Progress{})
	step(goodLine, harness.Progress{Result: true, More: true})
	step(`{"type":"system","subtype":"task_updated","task_id":"b1","patch":{"status":"running"}}`, harness.Progress{Result: true, More: true})
	step(`{"type":"system","subtype":"task_updated","task_id":"b1","patch":{"status":"completed"}}`, harness.Progress{Result: true})
	step(initLine, harness.Progress{More: true})
	step(taskLine, harness.Progress{Result: true})
	step(strings.Replace(goodLine, `"num_turns"`, `"queued_turn_count":1,"num_turns"`, 1), harness.Progress{Result: true, More: true})
	step(initLine, harness.Progress{More: true})
	step(tool, harness.Progress{OpenTools: 1, More: true})
	step(goodLine, harness.Progress{Result: true})
	step(`{"type":"system","subtype":"background_tasks_changed","tasks":[{"task_id":"b2"}]}`, harness.Progress{Result: true, More: true})
	step(`{"type":"system","subtype":"session_state_changed","state":"idle"}`, harness.Progress{Result: true})
}

// What was begun and never ended is told when the stream ends.
func TestClaudeClose(t *testing.T) {
	p := parser(t, specs["claude"])
	events, deltas := feed(t, p, []byte(strings.Join([]string{
		initLine,
		`{"type":"stream_event","event":{"type":"message_start","message":{"id":"m1","usage":{"input_tokens":5}}}}`,
		`{"type":"stream_event","event":{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}}`,
		`{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm\u2026"}}}`,
		`{"type":"assistant","message":{"id":"m1","content":[{"type":"thinking","thinking":"hm…","signature":"s"}]}}`,
		`{"type":"stream_event","event":{"type":"content_block_stop","index":0}}`,
		`{"type":"assistant","message":{"id":"m1","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{}}]}}`,
		`{"type":"stream_event","event":{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}}`,
		`{"type":"stream_event","event":{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"half "}}}`,
		`{"type":"stream_event","event":{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"a word"}}}`,
	}, "\n")+"\n"))
	tail := events[len(events)-2:]
	want := []tallyman.Event{
		{Type: tallyman.EventText, Turn: 1, Text: "half a word", Partial: true},
		{Type: tallyman.EventToolFinished, Turn: 1, ToolID: "t1", Name: "Bash", Failed: true, Partial: true},
	}
	if diff := cmp.Diff(want, tail); diff != "" {
		t.Errorf("the end (-want +got):\n%s", diff)
	}
	if len(deltas) != 3 || deltas[0].Type != tallyman.EventThinking || deltas[0].Block == deltas[1].Block || deltas[1].Block != deltas[2].Block {
		t.Errorf("deltas: %+v", deltas)
	}
	for _, e := range events[:len(events)-2] {
		if e.Partial {
			t.Errorf("%s %q was whole", e.Type, e.Text)
		}
	}
}

// A fault that no work can mend is told while there is time to stop.
func TestClaudeTellsEarlyThatItCannotEndWell(t *testing.T) {
	spec := tallyman.RunnerSpec{Agent: tallyman.AgentSpec{Harness: "claude", MCPServers: map[string]json.RawMessage{"jira": json.RawMessage(`{"required":true}`)}}}
	p := parser(t, spec)
	if p.Progress().Fatal != "" {
		t.Error("nothing is known yet")
	}
	feed(t, p, []byte(initLine+"\n"))
	if !strings.Contains(p.Progress().Fatal, "jira") {
		t.Errorf("fatal is %q", p.Progress().Fatal)
	}
}
