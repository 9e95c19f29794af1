//go:build linux

package contract_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman"
)

func TestTheAgentsCap(t *testing.T) {
	p := newPlace(t)
	p.agent("one", "harness: exec\nconcurrency: {max: 1}\ncommand: [sh, -c, 'while ! [ -e "+p.dir+"/go ]; do sleep 0.02; done']")
	s := p.up()
	var runs []tallyman.Run
	for range 3 {
		run, err := s.api.Submit(t.Context(), tallyman.Request{Agent: "one"})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	s.running(runs[0].ID)
	for i, run := range runs[1:] {
		w := s.until(run.ID, "it waits", func(r tallyman.Run) bool { return r.Waiting != nil }).Waiting
		if w.Reason != tallyman.AgentCap || w.Position != i+1 || !strings.Contains(w.Detail, "1 of 1") {
			t.Errorf("run %d waits as %+v", i+1, w)
		}
	}
	p.contains(p.ok("ls"), "AgentCap")
	p.contains(p.ok("show", runs[2].ID), "waiting: AgentCap", "position 2")
	// Others go past it.
	p.ends(tallyman.Completed, "exec", "--", "true")
	// One that leaves the queue makes the others move up.
	if _, err := s.api.Stop(t.Context(), runs[1].ID); err != nil {
		t.Fatal(err)
	}
	p.holds(s.ended(runs[1].ID), tallyman.ReasonStopped)
	s.until(runs[2].ID, "it is next", func(r tallyman.Run) bool { return r.Waiting != nil && r.Waiting.Position == 1 })
	if err := os.WriteFile(p.dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.holds(s.ended(runs[0].ID), tallyman.Completed)
	p.holds(s.ended(runs[2].ID), tallyman.Completed)
}

func TestTheGlobalCapAndPriorities(t *testing.T) {
	p := newPlace(t)
	p.agent("logs", "harness: exec\nworkspace: "+filepath.Join(p.dir, "work")+"\ncommand: [sh, -c, 'echo $WHO >> order; while ! [ -e go ]; do sleep 0.02; done']")
	s := p.up("--max-running", "1")
	priority := func(n int) *int { return &n }
	submit := func(who string, n *int) tallyman.Run {
		t.Helper()
		run, err := s.api.Submit(t.Context(), tallyman.Request{Agent: "logs", Priority: n, Env: []tallyman.EnvVar{{Name: "WHO", Value: who}}})
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	s.running(submit("first", nil).ID)
	last := submit("low", priority(-1))
	submit("usual", nil)
	submit("high", priority(5))
	w := s.until(last.ID, "it waits", func(r tallyman.Run) bool { return r.Waiting != nil && r.Waiting.Position == 3 }).Waiting
	if w.Reason != tallyman.GlobalCap || !strings.Contains(w.Detail, "max-running") {
		t.Errorf("it waits as %+v", w)
	}
	p.write("go", "")
	s.ended(last.ID)
	order, err := os.ReadFile(filepath.Join(p.dir, "work", "order"))
	if err != nil || string(order) != "first\nhigh\nusual\nlow\n" {
		t.Errorf("they ran as %q: %v", order, err)
	}
}

// Each run writes when it begins and ends; the sum of what is between is never
// above the cap, over kills of the server too.
func TestCapsAreNeverOvershot(t *testing.T) {
	p := newPlace(t)
	work := filepath.Join(p.dir, "work")
	p.agent("two", "harness: exec\nconcurrency: {max: 2}\nworkspace: "+work+
		"\ncommand: [sh, -c, 'echo \"$(date +%s%N) 1\" >> log; sleep 0.15; echo \"$(date +%s%N) -1\" >> log']")
	s := p.up()
	const n = 10
	var ids []string
	for i := range n {
		run, err := s.api.Submit(t.Context(), tallyman.Request{Agent: "two", Labels: map[string]string{"n": fmt.Sprint(i)}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, run.ID)
		if i == 5 {
			s.kill()
			s = p.up()
		}
	}
	for _, id := range ids {
		p.holds(s.ended(id), tallyman.Completed)
	}
	b, err := os.ReadFile(filepath.Join(work, "log"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	sort.Strings(lines)
	at, most := 0, 0
	for _, line := range lines {
		if at++; strings.HasSuffix(line, "-1") {
			at -= 2
		}
		most = max(most, at)
	}
	if len(lines) != 2*n || most != 2 || at != 0 {
		t.Errorf("%d marks, at most %d at once, %d left", len(lines), most, at)
	}
}

// ls prints one page for people, and with -o json all that there is.
func TestALongList(t *testing.T) {
	p := newPlace(t)
	p.agent("one", "harness: exec\nconcurrency: {max: 1}\ncommand: [sleep, '300']")
	s := p.up()
	const n = 60
	for range n {
		if _, err := s.api.Submit(t.Context(), tallyman.Request{Agent: "one"}); err != nil {
			t.Fatal(err)
		}
	}
	o := p.want(0, "ls")
	if lines := strings.Count(o.out, "\n"); lines != 51 {
		t.Errorf("%d lines", lines)
	}
	p.contains(o.err, "more: the same with --cursor ")
	_, cursor, _ := strings.Cut(strings.TrimSpace(o.err), "--cursor ")
	if lines := strings.Count(p.ok("ls", "--cursor", cursor), "\n"); lines != n-50+1 {
		t.Errorf("the next page has %d lines", lines)
	}
	if all := strings.Count(p.ok("ls", "-o", "json"), `"state": "queued"`); all != n-1 {
		t.Errorf("%d queued runs are in the JSON", all)
	}
	items, _, err := s.api.Runs(t.Context(), listOptions(100, ""))
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range items { // the queued ones first: they are the newest
		if _, err := s.api.Stop(t.Context(), run.ID); err != nil {
			t.Fatal(err)
		}
	}
	s.ended(items[len(items)-1].ID)
}

func TestStopStartsNothing(t *testing.T) {
	p := newPlace(t)
	p.agent("one", "harness: exec\ncommand: [sleep, \"300\"]\nconcurrency: {max: 1}")
	s := p.up()
	first := p.detach("one")
	s.running(first.ID)
	second := p.detach("one")
	s.kill()
	p.ok("stop", first.ID)
	p.holds(p.show(first.ID), tallyman.ReasonStopped)
	if got := p.show(second.ID); got.State != tallyman.Queued {
		t.Errorf("the other one is %s", got.State)
	}
	p.ok("stop", second.ID)
}
