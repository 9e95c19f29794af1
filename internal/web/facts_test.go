package web_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

func TestUsageIsShownWhereThereIsSome(t *testing.T) {
	used := tallyman.Usage{InputTokens: 1200, Turns: 2, CostUSD: 0.5, CostSource: tallyman.CostHarness}
	tests := map[string]struct {
		run       tallyman.Run
		want, not string
	}{
		"what was used is told":                      {tallyman.Run{Harness: "claude", State: tallyman.Running, Attempt: 1, Usage: used}, "1,200", "reported so far"},
		"exec uses nothing that is counted":          {tallyman.Run{Harness: "exec", State: tallyman.Succeeded, Attempt: 1}, "", "Usage"},
		"nothing is claimed before it began":         {tallyman.Run{Harness: "claude", State: tallyman.Queued}, "", "Usage"},
		"a running agent may not have told yet":      {tallyman.Run{Harness: "claude", State: tallyman.Running, Attempt: 1}, "None reported so far", "<th scope=\"row\">input"},
		"an ended one that told nothing has no zero": {tallyman.Run{Harness: "claude", State: tallyman.Failed, Reason: tallyman.RunnerLost, Attempt: 1}, "None was reported", "<th scope=\"row\">cost"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			tt.run.ID, tt.run.Name, tt.run.CreatedAt = runID(1), "r", began
			f.put(tt.run)
			body := page(t, open(f), "/runs/"+runID(1))
			if !strings.Contains(body, tt.want) || strings.Contains(body, tt.not) {
				t.Errorf("want %q and not %q in\n%s", tt.want, tt.not, body)
			}
		})
	}
}

func TestWaitingIsToldInOneLine(t *testing.T) {
	until := "2026-03-01T12:00:05Z"
	tests := map[string]struct {
		run  tallyman.Run
		want string
	}{
		"the gate, without a detail": {tallyman.Run{Waiting: &tallyman.Waiting{Reason: tallyman.GlobalCap}}, "Waits: the server has as many runs as it may"},
		"the place and the detail":   {tallyman.Run{Waiting: &tallyman.Waiting{Reason: tallyman.AgentCap, Detail: "1 of 1 slots are taken", Position: 3}}, "Waits, number 3 in line: 1 of 1 slots are taken"},
		"what went wrong before":     {tallyman.Run{Message: "the runner is gone", Attempt: 1, Waiting: &tallyman.Waiting{Reason: tallyman.Backoff, Detail: "next attempt at " + until}}, "Waits before it tries again: the runner is gone"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			tt.run.ID, tt.run.Name, tt.run.State, tt.run.CreatedAt = runID(1), "r", tallyman.Queued, began
			f.put(tt.run)
			if body := page(t, open(f), "/runs"); !strings.Contains(body, ">"+tt.want+"</td>") {
				t.Errorf("want %q in\n%s", tt.want, body)
			}
		})
	}
}

func TestTimesInSentencesAreTheViewers(t *testing.T) {
	f := newFake()
	r := tallyman.Run{ID: runID(1), Name: "r", State: tallyman.Queued, CreatedAt: began, Waiting: &tallyman.Waiting{Reason: tallyman.Backoff, Detail: "<b> at 2026-03-01T12:00:05Z"}}
	f.put(r)
	f.timeline[r.ID] = []tallyman.TimelineEntry{{At: began, Kind: "waiting", Message: "until 2026-03-01T12:00:05.25Z & on"}}
	body := page(t, open(f), "/runs/"+r.ID)
	for _, want := range []string{
		`&lt;b&gt; at <time datetime="2026-03-01T12:00:05Z" data-clock>2026-03-01T12:00:05Z</time>.`,
		`until <time datetime="2026-03-01T12:00:05.25Z" data-clock>2026-03-01T12:00:05.25Z</time> &amp; on`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("want %q in\n%s", want, body)
		}
	}
}

func TestAnExecRunShowsItsCommand(t *testing.T) {
	f := newFake()
	started := began.Add(1500 * time.Millisecond)
	f.put(tallyman.Run{ID: runID(1), Name: "r", Harness: "exec", State: tallyman.Running, Attempt: 1, CreatedAt: began, StartedAt: &started})
	f.commands[runID(1)] = []string{"sh", "-c", "echo <it's>\x1b[31m"}
	body := page(t, open(f), "/runs/"+runID(1))
	if want := `<pre class="mono">sh -c &#39;echo &lt;it&#39;\&#39;&#39;s&gt;&#39;</pre>`; !strings.Contains(body, want) {
		t.Errorf("want %q in\n%s", want, body)
	}
	if want := `<th scope="row">waited</th><td class="n">1.5s</td>`; !strings.Contains(body, want) {
		t.Errorf("want %q in\n%s", want, body)
	}
}

func TestWhatAClusterSaidIsShown(t *testing.T) {
	f := newFake()
	run := ended(1, tallyman.OOMKilled, "container agent was killed for memory")
	f.put(run)
	f.attempts[run.ID] = []tallyman.Attempt{{RunID: run.ID, Number: 1, Evidence: &tallyman.Evidence{
		Pod: "demo-1-x2x4z", Node: "node-7",
		Containers: []tallyman.ContainerState{
			{Name: "fetch", Kind: tallyman.InitContainer, State: "terminated", ExitCode: new(0), Output: "<b>42 files</b>"},
			{Name: "agent", Kind: tallyman.AgentContainer, State: "terminated", Reason: "OOMKilled", ExitCode: new(137)},
		},
		Events: []tallyman.ClusterEvent{{At: began, Reason: "BackOff", Message: "Back-off pulling image", Count: 4}},
	}}}
	body := page(t, open(f), "/runs/"+run.ID)
	for _, want := range []string{"demo-1-x2x4z", "node-7", "&lt;b&gt;42 files&lt;/b&gt;", "OOMKilled", "exit code 137", "BackOff", "×4"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not say %q:\n%s", want, body)
		}
	}
}

func TestWhatNeedsACommandIsNotInTheForm(t *testing.T) {
	f := newFake()
	f.agents = append(f.agents, tallyman.Agent{Name: "none", Spec: tallyman.AgentSpec{Harness: "exec"}}, tallyman.Agent{Name: "bare", Spec: tallyman.AgentSpec{Harness: "exec", Runner: tallyman.RunnerBare}}, tallyman.Agent{Name: "lint", Spec: tallyman.AgentSpec{Harness: "exec", Command: []string{"make", "lint"}}})
	body := page(t, open(f), "/new")
	if strings.Contains(body, `value="none"`) || !strings.Contains(body, `value="bare"`) || !strings.Contains(body, `value="lint"`) {
		t.Errorf("the agents to choose from:\n%s", body)
	}
}
