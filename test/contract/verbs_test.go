//go:build linux

package contract_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tallyman-dev/tallyman"
)

func listOptions(limit int, cursor string) tallyman.Filter {
	return tallyman.Filter{Limit: limit, After: cursor}
}

func TestEveryVerbHasHelpAndExamples(t *testing.T) {
	p := newPlace(t)
	root := p.ok("--help")
	p.lacks(root, "  runner ")
	for _, verb := range []string{
		"run", "up", "ls", "show", "logs", "events", "stop", "rerun", "rm", "artifacts", "artifacts ls", "artifacts get",
		"agents", "init", "config", "doctor", "prune", "fakemodel", "version",
	} {
		help := p.ok(append(strings.Fields(verb), "--help")...)
		p.contains(help, "Usage:", "Examples:", "tallyman "+verb, "--data", "--server", "--token-file", "--agents", "--config")
		if !strings.Contains(verb, " ") {
			p.contains(root, "\n  "+verb+" ")
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		p.contains(p.ok("completion", shell), "tallyman")
	}
	if got := p.ok("__complete", "lo"); !strings.Contains(got, "logs") {
		t.Errorf("lo is completed to %q", got)
	}
	run := p.ends(tallyman.Completed, "exec", "--", "true")
	if got := p.ok("__complete", "logs", ""); !strings.Contains(got, run.Name+"\n") {
		t.Errorf("logs is completed to %q", got)
	}
	p.contains(p.ok(), "Usage:")
	p.want(2, "artifacts", "nosuch")
	var version map[string]string
	p.object(p.want(0, "version", "-o", "json"), &version)
	if version["version"] == "" || p.ok("version") != "tallyman "+version["version"]+"\n" || p.ok("--version") == "" {
		t.Errorf("the version is %v", version)
	}
}

func TestRerun(t *testing.T) {
	p := newPlace(t)
	p.agent("echo", `harness: exec
command: [sh, -c, 'cat; echo " $WHAT"']`)
	first := p.ends(tallyman.Completed, "echo", "said", "--env", "WHAT=first", "--label", "a=1", "--key", "k", "--max-turns", "3")
	if got := p.ok("rerun", first.Name); got != "said first\n" {
		t.Errorf("the same again prints %q", got)
	}
	o := p.want(0, "rerun", first.Name, "-o", "json", "--set", "prompt=again = and", "--set", "env.WHAT=second", "--set", "label.b=2", "--set", "deadline=5m",
		"--set", "maxTurns=9", "--set", "priority=4", "--set", "model=m")
	run := p.decode(o)
	p.holds(run, tallyman.Completed)
	if run.Parent != first.ID || run.Key != "" || run.Labels["a"] != "1" || run.Labels["b"] != "2" || run.Limits.Deadline.String() != "5m0s" ||
		*run.Limits.MaxTurns != 9 || run.Priority != 4 || run.Model != "m" {
		t.Errorf("the rerun is %+v", run)
	}
	if got := p.ok("logs", run.ID); got != "again = and second\n" {
		t.Errorf("it printed %q", got)
	}
	detached := p.decode(p.want(0, "rerun", "-d", "-o", "json", run.ID))
	if detached.State != tallyman.Queued || detached.Parent != run.ID {
		t.Errorf("a detached rerun is %+v", detached)
	}
	p.holds(p.ended(detached.ID), tallyman.Completed)
	for _, bad := range []string{"nonsense=1", "maxTurns=many", "deadline=soon", "x", "priority=", "maxTurns=-1"} {
		p.want(2, "rerun", first.Name, "--set", bad)
	}
	if n := strings.Count(p.ok("ls", "-o", "name"), "\n"); n != 4 {
		t.Errorf("%d runs are there, want 4", n)
	}
	// A rerun exits as its run does.
	failed, _ := p.run("exec", "--", "sh", "-c", "exit 3")
	p.want(1, "rerun", failed.ID)
}

func TestRm(t *testing.T) {
	p := newPlace(t)
	run := p.ends(tallyman.Completed, "exec", "--output", "f", "--", "sh", "-c", "echo x > f")
	other := p.ends(tallyman.Completed, "exec", "--", "true")
	if got := p.ok("rm", run.Name); got != "removed "+run.Name+"\n" {
		t.Errorf("rm prints %q", got)
	}
	for _, verb := range []string{"show", "logs", "events", "rm", "stop"} {
		p.want(5, verb, run.ID)
	}
	if left, err := filepath.Glob(p.data("attempts", run.ID+"*")); err != nil || len(left) != 0 {
		t.Errorf("folders are left: %v, %v", left, err)
	}
	p.holds(p.show(other.ID), tallyman.Completed)
	going := p.detach("exec", "--", "sleep", "300")
	p.contains(p.want(2, "rm", going.ID).err, "stop it")
	p.ok("stop", going.ID)
	p.ok("rm", going.ID, other.ID)
	if got := p.ok("ls", "-o", "name"); got != "" {
		t.Errorf("left are %s", got)
	}
}

func TestPrune(t *testing.T) {
	p := newPlace(t)
	for range 3 {
		p.ends(tallyman.Completed, "exec", "--", "true")
	}
	type pruned struct{ Runs, Blobs, Bytes int }
	var got pruned
	p.object(p.want(0, "prune", "-o", "json"), &got)
	if got.Runs != 0 {
		t.Errorf("pruned young ones: %+v", got)
	}
	p.object(p.want(0, "prune", "--age", "0s", "--dry-run", "-o", "json"), &got)
	if got.Runs != 3 || strings.Count(p.ok("ls", "-o", "name"), "\n") != 3 {
		t.Errorf("a dry run: %+v", got)
	}
	going := p.detach("exec", "--", "sleep", "300")
	p.contains(p.ok("prune", "--age", "0s"), "removed 3 runs")
	if got := p.ok("ls", "-o", "name"); got != going.Name+"\n" {
		t.Errorf("left are %s", got)
	}
	p.ok("stop", going.ID)
	p.want(2, "prune", "--age", "-1h")
}

func TestAgentsAndInit(t *testing.T) {
	p := newPlace(t)
	builtin := strings.Fields(p.ok("agents", "-o", "name"))
	if strings.Join(builtin, " ") != "claude codex demo exec gemini opencode" {
		t.Errorf("built in are %v", builtin)
	}
	for _, harness := range []string{"claude", "exec", "script"} {
		o := p.want(0, "init", "my-"+harness, "--harness", harness)
		p.contains(o.out, "agents/my-"+harness+".yaml", "tallyman run my-"+harness)
		p.contains(p.ok("agents", "my-"+harness, "-o", "json"), `"harness": "`+harness+`"`)
	}
	p.contains(p.want(2, "init", "my-exec").err, "--force")
	p.ok("init", "my-exec", "--force", "--harness", "exec")
	p.want(2, "init", "Bad_Name")
	p.want(2, "init", "x", "--harness", "nosuch")
	p.want(2, "init")
	p.ends(tallyman.Completed, "my-script", "hello") // what is written can be run
	p.ends(tallyman.Completed, "my-exec", "hello")
	p.contains(p.want(2, "agents", "my-exce").err, `"my-exec"`)
	var list struct {
		Items []tallyman.Agent `json:"items"`
	}
	p.object(p.want(0, "agents", "-o", "json"), &list)
	if len(list.Items) != len(builtin)+3 {
		t.Errorf("%d agents", len(list.Items))
	}
	// Where agents are looked for: --agents, ./agents, XDG_CONFIG_HOME, built-in.
	where := func(name, folder, says string) {
		t.Helper()
		path := filepath.Join(folder, name+".yaml")
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		text := "apiVersion: tallyman.dev/v1alpha1\nkind: Agent\nmetadata: {name: " + name + "}\nspec: {harness: exec, command: [echo, " + says + "]}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flag, config := filepath.Join(p.dir, "flag"), filepath.Join(p.dir, "home", ".config", "tallyman", "agents")
	where("who", config, "config")
	if got := p.ok("run", "who"); got != "config\n" {
		t.Errorf("by the configuration folder: %q", got)
	}
	where("who", filepath.Join(p.dir, "work", "agents"), "here")
	if got := p.ok("run", "who"); got != "here\n" {
		t.Errorf("by ./agents: %q", got)
	}
	where("who", flag, "flag")
	if got := p.ok("run", "who", "--agents", flag); got != "flag\n" {
		t.Errorf("by --agents: %q", got)
	}
	if got := p.ok("run", "who", "--agents", filepath.Join(flag, "who.yaml")); got != "flag\n" {
		t.Errorf("by --agents FILE: %q", got)
	}
	where("demo", flag, "not the built-in one")
	if got := p.ok("run", "demo", "--agents", flag); got != "not the built-in one\n" {
		t.Errorf("over a built-in one: %q", got)
	}
	// Over the socket the command line sends the file that it finds.
	s := p.up()
	if got := p.ok("run", "who", "--agents", flag); got != "flag\n" {
		t.Errorf("over the socket: %q", got)
	}
	if run, err := s.api.Submit(t.Context(), tallyman.Request{Agent: "who"}); err != nil || p.ok("logs", "-f", run.ID) != "here\n" {
		t.Errorf("the server's own: %v", err)
	}
}

func TestConfigAndDoctor(t *testing.T) {
	p := newPlace(t)
	p.write("tallyman.yaml", "max-running: 3\ngrace: 4s\n")
	p.set("TALLYMAN_GRACE=5s")
	text := p.ok("config", "--log-level", "debug")
	p.contains(text, "tallyman.yaml:1", "TALLYMAN_GRACE", "flag --log-level", "default")
	var all map[string]json.RawMessage
	p.object(p.want(0, "config", "-o", "json"), &all)
	if b, err := json.Marshal(all); err != nil || !strings.Contains(string(b), `"5s"`) || !strings.Contains(string(b), p.data()) {
		t.Errorf("as JSON: %s %v", b, err)
	}
	bad := p.write("bad.yaml", "max-runing: 3\ngrace: soon\n")
	o := p.want(2, "config", "--config", bad)
	p.contains(o.err, "bad.yaml:1", `"max-running"`, "bad.yaml:2", "soon")
	p.want(2, "run", "demo", "x", "--config", bad)
	p.want(2, "config", "--config", "nowhere.yaml")
	p.contains(p.ok("doctor"), "ok      data folder", "ok      server", "ok      agent files")
	p.set("TALLYMAN_JOURNAL_RESERVE=1000TiB")
	p.contains(p.want(1, "doctor").out, "BROKEN  disk", "runs are taken down to")
	p.set("TALLYMAN_JOURNAL_RESERVE=1MiB")
	p.contains(p.ok("doctor"), "ok      disk")
	p.write("agents/bad.yaml", "kind: Agent\nspec: {}\n")
	doctor := p.want(1, "doctor")
	p.contains(doctor.out, "BROKEN  agent files", "agents/bad.yaml:1", "mend:")
}

func TestTheScriptedModelServes(t *testing.T) {
	p := newPlace(t)
	s := p.start("", "fakemodel", "--listen", "127.0.0.1:0")
	p.eventually("it listens", func() bool { return strings.Contains(s.out.String(), "http://127.0.0.1:") })
	s.signal(syscall.SIGINT)
	if o := s.wait(); o.code != 0 {
		t.Errorf("it ended so: %s", o)
	}
	p.want(2, "fakemodel", "--script", "nowhere.yaml")
}

// What has ended can be removed at once, whoever settles it.
func TestRmRightAfterTheEnd(t *testing.T) {
	p := newPlace(t)
	s := p.up()
	for range 5 {
		run := s.submit(tallyman.Request{Agent: "exec", Command: []string{"true"}})
		s.ended(run.ID)
		if err := s.own.Delete(t.Context(), run.ID); err != nil {
			t.Fatal(err)
		}
	}
	run := p.detach(append([]string{"exec"}, waiter("go")...)...)
	s.running(run.ID)
	s.kill()
	p.write("go", "")
	p.eventually("the agent has ended", func() bool { return p.effects() == 1 })
	// The first command that looks brings the end and frees the slot.
	p.eventually("the run has ended", func() bool { return p.show(run.ID).State.Terminal() })
	p.ok("rm", run.ID)
}
