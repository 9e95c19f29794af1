//go:build linux

package contract_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
)

// effect is a command that leaves a mark each time it really runs.
var effect = []string{"--", "sh", "-c", "echo once >> effects; echo done"}

func (p *place) effects() int {
	b, err := os.ReadFile(filepath.Join(p.dir, "work", "effects"))
	if err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	return strings.Count(string(b), "once")
}

func TestTheSameKeyBringsTheFirstRun(t *testing.T) {
	p := newPlace(t)
	args := append([]string{"exec", "--key", "k1"}, effect...)
	first := p.ends(tallyman.Completed, args...)
	// Each call is a server of its own: the key is known after a restart.
	again := p.ends(tallyman.Completed, args...)
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("another run came:\n%s", diff)
	}
	if o := p.want(0, append([]string{"run"}, args...)...); o.out != "done\n" {
		t.Errorf("the first run's transcript is not shown: %s", o)
	}
	o := p.want(2, "run", "exec", "--key", "k1", "--", "echo", "another")
	p.contains(o.err, `"k1"`, first.ID)
	if n := p.effects(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	p.ok("rm", first.Name)
	p.want(5, "show", first.ID)
	last := p.ends(tallyman.Completed, args...)
	if diff := cmp.Diff(first, last); diff != "" {
		t.Errorf("after rm the key brings:\n%s", diff)
	}
	if o := p.want(0, append([]string{"run", "-d", "-o", "json"}, args...)...); p.decode(o).ID != first.ID {
		t.Errorf("after rm a detached one is %s", o)
	}
	if got := p.ok(append([]string{"run", "-d"}, args...)...); got != first.Name+" succeeded\n" {
		t.Errorf("after rm a detached one prints %q", got)
	}
	p.contains(p.want(0, append([]string{"run"}, args...)...).err, "Completed")
	p.want(2, "run", "exec", "--key", "k1", "--", "echo", "another")
	if n := p.effects(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	if got := p.ok("ls", "-o", "name"); got != "" {
		t.Errorf("runs are there: %s", got)
	}
}

func TestTheSameKeyWhileItRunsJoinsTheRun(t *testing.T) {
	p := newPlace(t)
	args := []string{"exec", "--key", "k", "--", "sh", "-c", "echo once >> effects; while ! [ -e go ]; do sleep 0.02; done; echo done"}
	first := p.start("", append([]string{"run"}, args...)...)
	p.eventually("it runs", func() bool { return p.effects() == 1 })
	second := p.start("", append([]string{"run"}, args...)...)
	third := p.start("", append([]string{"run", "-o", "json"}, args...)...)
	p.eventually("the second watches", func() bool { return strings.Contains(second.err.String(), "running") })
	p.write("go", "")
	for _, s := range []*started{first, second} {
		if o := s.wait(); o.code != 0 || o.out != "done\n" {
			t.Errorf("%s", o)
		}
	}
	p.holds(p.decode(third.wait()), tallyman.Completed)
	if n := p.effects(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

func TestKeysOfTheAPI(t *testing.T) {
	p := newPlace(t)
	p.agent("echo", "harness: exec\ncommand: [cat]")
	s := p.up()
	submit := func(body, key string) (int, tallyman.Run, string) {
		t.Helper()
		status, text := s.http("POST", "/api/v1/runs", body, map[string]string{"Idempotency-Key": key, "Content-Type": "application/json"})
		var run tallyman.Run
		if status < 300 {
			if err := json.Unmarshal([]byte(text), &run); err != nil {
				t.Fatal(err)
			}
		}
		return status, run, text
	}
	status, first, text := submit(`{"agent":"echo","prompt":"a"}`, "k")
	if status != 201 || first.Key != "k" || first.Source != tallyman.SourceAPI {
		t.Fatalf("%d %s", status, text)
	}
	if status, run, text := submit(`{"agent":"echo","prompt":"a"}`, "k"); status != 200 || run.ID != first.ID {
		t.Errorf("the same again: %d %s", status, text)
	}
	if status, _, text := submit(`{"agent":"echo","prompt":"b"}`, "k"); status != 409 || !strings.Contains(text, first.ID) {
		t.Errorf("another request: %d %s", status, text)
	}
	s.ended(first.ID)
	s.kill()
	s = p.up()
	if status, run, text := submit(`{"agent":"echo","prompt":"a"}`, "k"); status != 200 || run.ID != first.ID {
		t.Errorf("after a kill: %d %s", status, text)
	}
	if status, text := s.http("DELETE", "/api/v1/runs/"+first.ID, "", nil); status != 204 {
		t.Fatalf("delete: %d %s", status, text)
	}
	if status, run, text := submit(`{"agent":"echo","prompt":"a"}`, "k"); status != 200 || run.ID != first.ID || run.State != tallyman.Succeeded {
		t.Errorf("after rm: %d %s", status, text)
	}
	if status, _, text := submit(`{"agent":"echo","prompt":"b"}`, "k"); status != 409 {
		t.Errorf("another request after rm: %d %s", status, text)
	}
	// The command line and the dashboard are other doors of the same house.
	if run := p.ends(tallyman.Completed, "echo", "a", "--key", "k"); run.ID != first.ID {
		t.Errorf("by the command line the key brings %s, not %s", run.ID, first.ID)
	}
	p.contains(p.want(2, "run", "echo", "b", "--key", "k").err, first.ID)
	last := p.ends(tallyman.Completed, "echo", "c", "--key", "of the command line")
	if status, run, text := submit(`{"agent":"echo","prompt":"c"}`, "of the command line"); status != 200 || run.ID != last.ID {
		t.Errorf("a key of the command line: %d %s", status, text)
	}
}
