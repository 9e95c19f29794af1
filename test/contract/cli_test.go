//go:build linux

package contract_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
)

func TestOutputIsOneObjectAndTheSameAsYAML(t *testing.T) {
	p := newPlace(t)
	run := p.ends(tallyman.Completed, "demo", "line\nü \x1b[31m: # \r end", "--label", "true=no")
	kept := p.ends(tallyman.Completed, "exec", "--output", "f", "--", "touch", "f")
	for _, args := range [][]string{
		{"show", run.ID}, {"ls"}, {"agents"}, {"agents", "demo"}, {"artifacts", "ls", kept.ID}, {"config"}, {"version"},
		{"prune", "--dry-run"}, {"stop", run.ID}, {"stop", run.ID, run.Name},
	} {
		var asJSON, asYAML map[string]any
		p.object(p.want(0, append(args, "-o", "json")...), &asJSON)
		text := p.ok(append(args, "--output-format", "yaml")...)
		if err := yaml.Unmarshal([]byte(text), &asYAML); err != nil {
			t.Errorf("%v: %v in\n%s", args, err, text)
			continue
		}
		// Both through JSON, where all numbers are of one kind.
		b, err := json.Marshal(asYAML)
		if err != nil {
			t.Fatal(err)
		}
		asYAML = nil
		if err := json.Unmarshal(b, &asYAML); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(asJSON, asYAML); diff != "" {
			t.Errorf("%v: YAML says something else:\n%s", args, diff)
		}
		if strings.ContainsAny(text, "\x1b\r") {
			t.Errorf("%v prints control characters: %q", args, text)
		}
	}
	o := p.want(0, "run", "demo", "x", "-o", "yaml")
	if !strings.HasPrefix(o.out, "id: ") || o.err != "" {
		t.Errorf("run prints more than an object: %s", o)
	}
	p.contains(p.want(2, "events", run.ID, "-o", "yaml").err, "-o yaml: known are json")
	p.contains(p.want(2, "show", run.ID, "-o", "wide").err, "known are json, yaml, name")
	for _, args := range [][]string{{"ls"}, {"agents"}, {"artifacts", "ls", kept.ID}} {
		narrow, _, _ := strings.Cut(p.ok(args...), "\n")
		wide, _, _ := strings.Cut(p.ok(append(args, "-o", "wide")...), "\n")
		if len(strings.Fields(wide)) <= len(strings.Fields(narrow)) {
			t.Errorf("%v: wide is %q, narrow %q", args, wide, narrow)
		}
	}
	for _, name := range []string{"demo", "exec"} {
		if got := p.ok("agents", name, "-o", "name"); got != name+"\n" {
			t.Errorf("agents %s -o name prints %q", name, got)
		}
	}
	p.contains(p.want(2, "agents", "dmo", "-o", "name").err, `"demo"`)
}

func TestWrongValuesOfFlags(t *testing.T) {
	p := newPlace(t)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"ls", "--data", ""}, "--data is empty; write it like --data /"},
		{[]string{"logs", "--tail", "-1", "x"}, "--tail -1 is negative; write it like --tail 20"},
		{[]string{"logs", "--since", "-5m", "x"}, "--since -5m0s is negative; write it like --since 10m"},
		{[]string{"run", "demo", "x", "--key", ""}, "--key is empty"},
		{[]string{"run", "demo", "x", "--label", "team"}, `--label "team" has no key and value; write it like --label team=web`},
		{[]string{"run", "demo", "x", "--budget-usd", "1e12"}, "--budget-usd"},
		{[]string{"ls", "--label", "=x"}, "write it like --label team=web"},
		{[]string{"ls", "--state", "done"}, "suspended"},
		{[]string{"events", "--after", "x", "y"}, "--after: \"x\" is not the id of an event: it is written ATTEMPT.CURSOR, like 1.42"},
		{[]string{"fakemodel", "--listen", "here"}, "--listen"},
		{[]string{"show", ""}, "an empty word is none"},
		{[]string{"rm", ""}, "an empty word is none"},
	} {
		p.contains(p.want(2, c.args...).err, c.says)
	}
	if got := p.ok("ls", "-o", "name"); got != "" {
		t.Errorf("a run was created: %s", got)
	}
}

func TestListeningElsewhereIsRefused(t *testing.T) {
	p := newPlace(t)
	for listen, says := range map[string]string{
		"0.0.0.0:7333": "not on loopback", ":7333": "not on loopback", "192.0.2.7:80": "not on loopback", "[2001:db8::1]:80": "not on loopback",
		"no-such-host.invalid:80": "the host is not found",
	} {
		p.contains(p.want(2, "up", "--listen", listen).err, listen, says, "127.0.0.1:")
	}
	// Who does not listen looks nothing up.
	p.set("TALLYMAN_LISTEN=no-such-host.invalid:80")
	p.contains(p.ok("config"), "no-such-host.invalid:80")
	p.ends(tallyman.Completed, "exec", "--", "true")
}

func TestAFolderIsNoProgram(t *testing.T) {
	p := newPlace(t)
	p.contains(p.want(2, "run", "exec", "--", "/tmp").err, "/tmp is a folder")
	if got := p.ok("ls", "-o", "name"); got != "" {
		t.Errorf("a run was created: %s", got)
	}
}

// nowhere is a call of tallyman from a folder that was removed.
func (p *place) nowhere(code int, args ...string) outcome {
	p.t.Helper()
	dir := filepath.Join(p.dir, "removed")
	if err := os.Mkdir(dir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command("sh", append([]string{"-c", `rmdir "$0" && exec "$@"`, dir, filepath.Join(programs, "tallyman")}, args...)...)
	var out, errOut safeBuffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, p.env, &out, &errOut
	_ = cmd.Run() // the code tells
	o := outcome{args, out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
	if o.code != code {
		p.t.Errorf("from nowhere, exit code %d is wanted: %s", code, o)
	}
	return o
}

func TestFromAFolderThatWasRemoved(t *testing.T) {
	p := newPlace(t)
	run := p.ends(tallyman.Completed, "exec", "--output", "f", "--", "sh", "-c", "echo x | tee f")
	for _, args := range [][]string{
		{"ls"}, {"show", run.ID}, {"logs", run.ID}, {"events", run.ID}, {"artifacts", "ls", run.ID}, {"agents"}, {"config"}, {"doctor"},
		{"stop", run.ID}, {"prune"}, {"artifacts", "get", run.ID, "f", "--to", "-"}, {"rerun", run.ID},
		{"run", "exec", "--workspace", "fresh", "--", "true"}, {"run", "-d", "exec", "--workspace", "fresh", "-o", "name", "--", "true"},
	} {
		p.nowhere(0, args...)
	}
	p.contains(p.nowhere(2, "run", "exec", "--", "true").err, "agent exec works in the current folder, which is gone")
	for _, args := range [][]string{
		{"--data", "here", "ls"}, {"init", "x"}, {"artifacts", "get", run.ID, "f"}, {"run", "exec", "--workspace", "sub", "--", "true"},
	} {
		p.contains(p.nowhere(2, args...).err, "the current folder is gone")
	}
	p.nowhere(0, "rm", run.ID)
}

func TestInitSaysWhichBuiltInAgentItHides(t *testing.T) {
	p := newPlace(t)
	p.contains(p.want(0, "init", "exec", "--harness", "exec").err, "agents/exec.yaml now takes the place of the built-in agent exec")
	if o := p.want(0, "init", "mine"); o.err != "" {
		t.Errorf("of another name it says %q", o.err)
	}
}

func TestTheSameKeyWhenTheAgentIsGone(t *testing.T) {
	p := newPlace(t)
	file := p.agent("cat", "harness: exec\ncommand: [sh, -c, 'cat; echo once >> "+filepath.Join(p.dir, "work", "effects")+"']")
	talk := p.agent("talk", "harness: script\nsettings: {steps: [{result: '{{prompt}}'}]}")
	first := p.ends(tallyman.Completed, "cat", "hello", "--key", "k")
	said := p.ends(tallyman.Completed, "talk", "--key", "said", "--", "--dash")
	for _, f := range []string{file, talk} {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(first, p.ends(tallyman.Completed, "cat", "hello", "--key", "k")); diff != "" {
		t.Errorf("another run came:\n%s", diff)
	}
	if got := p.detach("cat", "hello", "--key", "k"); got.ID != first.ID {
		t.Errorf("detached came %s, want %s", got.ID, first.ID)
	}
	if again := p.ends(tallyman.Completed, "talk", "--key", "said", "--", "--dash"); again.ID != said.ID {
		t.Errorf("by words after -- came %s, want %s", again.ID, said.ID)
	}
	p.contains(p.want(2, "run", "cat", "other", "--key", "k").err, `unknown agent "cat"`, `"k"`, first.ID)
	for _, args := range [][]string{{"hello", "--key", "new"}, {"hello"}} {
		o := p.want(2, append([]string{"run", "cat"}, args...)...)
		p.contains(o.err, `unknown agent "cat"`)
		p.lacks(o.err, "harness")
	}
	if n := strings.Count(p.ok("ls", "-o", "name"), "\n"); n != 2 || p.effects() != 1 {
		t.Errorf("%d runs are there, and it ran %d times", n, p.effects())
	}
}

func TestBuiltInAgentsOfAServerWorkInAFreshFolder(t *testing.T) {
	p := newPlace(t)
	s := p.up()
	remote := func(args ...string) string {
		t.Helper()
		return p.ok(append([]string{"run", "--server", s.url, "--token-file", p.data("token")}, args...)...)
	}
	if got := remote("exec", "--", "pwd"); !strings.HasPrefix(got, p.data("attempts")) {
		t.Errorf("it works in %s", got)
	}
	p.contains(remote("demo", "--", "--dash"), "You said: --dash")
	if got := p.ok("run", "exec", "--", "pwd"); got != filepath.Join(p.dir, "work")+"\n" {
		t.Errorf("over the socket it works in %s", got)
	}
	p.contains(p.ok("run", "--help"), "a fresh folder there")
	// There is one namespace, whoever asks.
	status, text := s.http("POST", "/api/v1/runs", `{"agent":"exec","command":["true"],"namespace":"team"}`, nil)
	if status != 400 || !strings.Contains(text, `this server has only \"default\"`) {
		t.Errorf("in another namespace: %d %s", status, text)
	}
}

func TestACommandHasNoTurns(t *testing.T) {
	p := newPlace(t)
	o := p.want(0, "run", "exec", "--", "true")
	p.lacks(o.err, "turns", "tokens", "cost")
	run := p.ends(tallyman.Completed, "exec", "--", "true")
	p.lacks(p.ok("show", run.ID), "turns", "tokens", "cost", "artifacts")
	p.contains(p.ok("artifacts", "ls", run.ID, "-o", "json"), `"items": []`)
	p.contains(p.ok("show", run.ID, "-o", "json"), `"turns": 0`, `"cost_usd": 0`, `"attempts": [`, `"number": 1`, `"artifacts": []`, `"timeline": [`, `"kind": "ended"`)
	p.contains(p.want(0, "run", "demo", "x").err, "turns", "tokens", "cost")
}

func TestStopSaysWhatItWaitsFor(t *testing.T) {
	p := newPlace(t)
	p.contains(p.ok("stop", "--help"), "2 minutes", "Exit codes: 0")
	p.set("TALLYMAN_GRACE=1s")
	s := p.up()
	run := p.detach("exec", "--", "sh", "-c", "trap '' TERM; touch effects; while :; do sleep 0.05; done")
	s.running(run.ID)
	p.eventually("it hears no TERM", func() bool { _, err := os.Stat(filepath.Join(p.dir, "work", "effects")); return err == nil })
	if got := p.ok("stop", "--wait=false", run.ID); got != run.Name+" running\n" {
		t.Errorf("without waiting it prints %q", got)
	}
	if got := p.ok("stop", run.ID); got != run.Name+" stopped\n" {
		t.Errorf("stop prints %q", got)
	}
	p.want(5, "stop", "nosuch")
}

// files are all files below a folder with their sizes.
func (p *place) files(dir string) map[string]int64 {
	p.t.Helper()
	all := map[string]int64{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		all[path] = info.Size()
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return all
}

func TestADryRunOfPruneChangesNothing(t *testing.T) {
	p := newPlace(t)
	run := p.ends(tallyman.Completed, "exec", "--key", "k", "--output", "f", "--", "sh", "-c", "echo x | tee f")
	blobs, attempts := p.files(p.data("blobs")), p.files(p.data("attempts"))
	if len(blobs) != 1 || len(attempts) == 0 {
		t.Fatalf("there are %d blobs and %d files of attempts", len(blobs), len(attempts))
	}
	look := func() string {
		return p.ok("ls", "-o", "json") + p.ok("events", run.ID) + p.ok("artifacts", "ls", run.ID) + p.ok("show", run.ID)
	}
	before := look()
	if got := p.ok("prune", "--age", "0s", "--dry-run"); !strings.HasPrefix(got, "would remove 1 runs") {
		t.Errorf("it says %q", got)
	}
	if diff := cmp.Diff(before, look()); diff != "" {
		t.Errorf("what is kept has changed:\n%s", diff)
	}
	if diff := cmp.Diff(blobs, p.files(p.data("blobs"))) + cmp.Diff(attempts, p.files(p.data("attempts"))); diff != "" {
		t.Errorf("files have changed:\n%s", diff)
	}
	// What is never old by itself is pruned by an age only.
	p.write("tallyman.yaml", "retention: {age: 0}\n")
	p.contains(p.want(2, "prune").err, "retention.age is 0", "--age 168h")
	p.contains(p.ok("prune", "--age", "0s"), "removed 1 runs")
}
