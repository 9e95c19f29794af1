//go:build linux

package contract_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

func TestLimits(t *testing.T) {
	spend := `settings: {steps: [{usage: {input_tokens: 60, output_tokens: 50, cost_usd: 0.5}}, {say: one}, {say: two}, {say: three}, hang]}`
	for name, c := range map[string]struct {
		spec   string
		flags  []string
		reason tallyman.Reason
		says   string
	}{
		"deadline":                          {`settings: {steps: [{repeat: {times: 1000, steps: [{say: on}, {sleep: 10ms}]}}]}`, []string{"--deadline", "500ms"}, tallyman.DeadlineExceeded, "500ms"},
		"idle":                              {spend, []string{"--idle", "400ms"}, tallyman.IdleTimeout, "400ms"},
		"idle never heard a word":           {`settings: {steps: [hang]}`, []string{"--idle", "400ms"}, tallyman.IdleTimeout, "400ms"},
		"words on stderr are no life":       {`settings: {steps: [{repeat: {times: 1000, steps: [{stderr: on}, {sleep: 20ms}]}}]}`, []string{"--idle", "400ms"}, tallyman.IdleTimeout, "400ms"},
		"deltas are life":                   {`settings: {steps: [{say: {text: "a b c d e f g h i j k l m n", over: 1s}}, {result: ok}]}`, []string{"--idle", "500ms"}, tallyman.Completed, ""},
		"idle pauses while a tool is open":  {`settings: {steps: [{tool: {name: T, duration: 900ms}}, {result: ok}]}`, []string{"--idle", "400ms"}, tallyman.Completed, ""},
		"a tool that takes too long":        {"limits: {tool: 300ms}\n" + `settings: {steps: [{tool: {name: T, duration: 60s}}]}`, nil, tallyman.IdleTimeout, "limits.tool"},
		"turns":                             {spend, []string{"--max-turns", "2"}, tallyman.MaxTurns, "2"},
		"as many turns as are allowed":      {`settings: {steps: [{say: one}, {say: two}, {result: ok}]}`, []string{"--max-turns", "2"}, tallyman.Completed, ""},
		"budget":                            {spend, []string{"--budget-usd", "0.4"}, tallyman.BudgetExceeded, "0.4"},
		"tokens":                            {spend, []string{"--max-tokens", "109"}, tallyman.TokenLimit, "109"},
		"as many tokens as are allowed":     {`settings: {steps: [{usage: {input_tokens: 60}}, {result: ok}]}`, []string{"--max-tokens", "60", "--budget-usd", "1"}, tallyman.Completed, ""},
		"the agent's limit":                 {"limits: {maxTurns: 2}\n" + spend, nil, tallyman.MaxTurns, "2"},
		"the request's limit wins":          {"limits: {maxTurns: 2, idle: 300ms}\n" + spend, []string{"--max-turns", "0"}, tallyman.IdleTimeout, "300ms"},
		"zero is none":                      {"limits: {deadline: 100ms, idle: 100ms}\nsettings: {steps: [{sleep: 400ms}, {result: ok}]}", []string{"--deadline", "0", "--idle", "0s"}, tallyman.Completed, ""},
		"what ends after a result is as it": {`settings: {steps: [{result: ok}, hang]}`, []string{"--deadline", "600ms"}, tallyman.Completed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.set("TALLYMAN_GRACE=1s", "TALLYMAN_RESULT_GRACE=1s")
			p.agent("agent", "harness: script\n"+c.spec)
			run := p.ends(c.reason, append([]string{"agent", "x"}, c.flags...)...)
			p.contains(run.Message, c.says)
			if strings.Contains(c.spec, "input_tokens: 60, output_tokens: 50") && (run.Usage.Tokens() != 110 || run.Usage.CostUSD != 0.5) {
				t.Errorf("what was used is not counted: %+v", run.Usage)
			}
		})
	}
}

func TestABudgetThatCannotBeKeptIsRefused(t *testing.T) {
	p := newPlace(t)
	p.contains(p.want(2, "run", "exec", "--budget-usd", "1", "--", "true").err, "budgetUSD", "maxTokens")
	p.ends(tallyman.Completed, "exec", "--budget-usd", "1", "--max-tokens", "10", "--", "true")
	if n := strings.Count(p.ok("ls", "-o", "name"), "\n"); n != 1 {
		t.Errorf("%d runs are there, want 1", n)
	}
}

func TestTokensCountOverAllAttempts(t *testing.T) {
	p := newPlace(t)
	p.agent("agent", `harness: script
retry: {on: [AgentError], max: 5, backoff: 50ms}
limits: {maxTokens: 100}
settings: {steps: [{usage: {input_tokens: 40, cost_usd: 0.1}}, {sleep: 200ms}, {result: {text: no, failed: true}}]}`)
	run := p.ends(tallyman.TokenLimit, "agent", "x")
	if run.Attempt != 3 || run.Usage.InputTokens != 120 || run.Usage.CostUSD < 0.29 || run.Usage.CostUSD > 0.31 {
		t.Errorf("%d attempts used %+v", run.Attempt, run.Usage)
	}
}

func TestTurnsAreCountedToTheLast(t *testing.T) {
	p := newPlace(t)
	for range 10 {
		p.ends(tallyman.MaxTurns, "demo", "x", "--max-turns", "1")
	}
}

func TestStopWaitsForOneGraceOnly(t *testing.T) {
	p := newPlace(t)
	p.set("TALLYMAN_GRACE=5s")
	run := p.detach("exec", "--", "sh", "-c", `trap "" TERM; while :; do sleep 0.1; done`)
	p.eventually("it runs", func() bool { return p.show(run.ID).State == tallyman.Running })
	began := time.Now()
	p.ok("stop", run.ID)
	if took := time.Since(began); took > 9*time.Second {
		t.Errorf("it took %s with a grace of 5s", took)
	}
}
