//go:build linux

package contract_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

func TestExitCodes(t *testing.T) {
	p := newPlace(t)
	token := p.write("token", "not-the-token-of-any-server")
	for name, c := range map[string]struct {
		code int
		says string // on standard error
		args []string
	}{
		"0: it succeeded":               {0, "Completed", []string{"run", "exec", "--", "true"}},
		"1: it failed":                  {1, "exit code 7", []string{"run", "exec", "--", "sh", "-c", "exit 7"}},
		"1: a signal ended it":          {1, "SIGKILL", []string{"run", "exec", "--", "sh", "-c", "kill -9 $$"}},
		"2: an unknown agent":           {2, `did you mean "demo"?`, []string{"run", "dmo", "hello"}},
		"2: a file for an agent":        {2, "token is a file: name the agent in it, tallyman run --agents token NAME", []string{"run", "token", "hello"}},
		"2: no folder for a workspace":  {2, "/nowhere/at/all", []string{"run", "exec", "--workspace", "/nowhere/at/all", "--", "true"}},
		"2: an unknown flag":            {2, "--help", []string{"run", "--nonsense"}},
		"2: an unknown verb":            {2, "--help", []string{"rnu"}},
		"2: too many arguments":         {2, "--help", []string{"show", "a", "b"}},
		"4: no server":                  {4, "127.0.0.1:1", []string{"ls", "--server", "http://127.0.0.1:1", "--token-file", token}},
		"5: show of an unknown run":     {5, "nosuch", []string{"show", "nosuch"}},
		"5: logs of an unknown run":     {5, "nosuch", []string{"logs", "nosuch"}},
		"5: events of an unknown run":   {5, "nosuch", []string{"events", "nosuch"}},
		"5: stop of an unknown run":     {5, "nosuch", []string{"stop", "nosuch"}},
		"5: rerun of an unknown run":    {5, "nosuch", []string{"rerun", "nosuch"}},
		"5: rm of an unknown run":       {5, "nosuch", []string{"rm", "nosuch"}},
		"5: files of an unknown run":    {5, "nosuch", []string{"artifacts", "ls", "nosuch"}},
		"124: the deadline has passed":  {124, "DeadlineExceeded", []string{"run", "exec", "--deadline", "300ms", "--", "sleep", "60"}},
		"124: it was silent too long":   {124, "IdleTimeout", []string{"run", "exec", "--idle", "300ms", "--", "sleep", "60"}},
		"2: a deadline that is no time": {2, "--deadline", []string{"run", "exec", "--deadline", "soon", "--", "true"}},
	} {
		if o := p.call(c.args...); o.code != c.code || !strings.Contains(o.err, c.says) {
			t.Errorf("%s, saying %q: %s", name, c.says, o)
		}
	}
}

func TestStoppedBySomebodyElseIsThree(t *testing.T) {
	p := newPlace(t)
	run := p.start("", "run", "exec", "--", "sh", "-c", "echo at work; sleep 300")
	p.eventually("it is at work", func() bool { return strings.Contains(run.out.String(), "at work") })
	name := strings.TrimSpace(p.ok("ls", "-o", "name"))
	if got := p.ok("stop", name); got != name+" stopped\n" {
		t.Errorf("stop prints %q", got)
	}
	o := run.wait()
	if o.code != 3 {
		t.Errorf("want 3: %s", o)
	}
	p.contains(o.err, "outcome   stopped (Stopped)", "the command line")
	p.holds(p.show(name), tallyman.ReasonStopped)
	// Stopping what has ended changes nothing.
	p.ok("stop", name)
	p.holds(p.show(name), tallyman.ReasonStopped)
	if n := p.count("sleep 300"); n != 0 {
		t.Errorf("%d processes of the agent are left", n)
	}
}

func TestCtrlCStopsTheRunProperly(t *testing.T) {
	p := newPlace(t)
	run := p.start("", "run", "exec", "--", "sh", "-c", "trap 'echo cleaned up; exit 0' TERM; echo at work; while :; do sleep 0.05; done")
	p.eventually("it is at work", func() bool { return strings.Contains(run.out.String(), "at work") })
	run.signal(syscall.SIGINT)
	o := run.wait()
	if o.code != 130 {
		t.Errorf("want 130: %s", o)
	}
	if o.out != "at work\ncleaned up\n" {
		t.Errorf("the transcript is not whole: %q", o.out)
	}
	p.contains(o.err, "again to leave at once", "outcome   stopped (Stopped)")
}

func TestCtrlCTwiceLeavesAtOnce(t *testing.T) {
	p := newPlace(t)
	p.set("TALLYMAN_GRACE=6s")
	run := p.start("", "run", "exec", "--", "sh", "-c", "trap '' TERM INT; echo at work; while :; do sleep 0.05; done")
	p.eventually("it is at work", func() bool { return strings.Contains(run.out.String(), "at work") })
	run.signal(syscall.SIGINT)
	p.eventually("it says so", func() bool { return strings.Contains(run.err.String(), "again to leave at once") })
	began := time.Now()
	run.signal(syscall.SIGINT)
	if o := run.wait(); o.code != 130 {
		t.Errorf("want 130: %s", o)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("leaving took %s", took)
	}
	// The run was asked to end and does, though nobody waits for it.
	p.eventually("the agent has ended", func() bool { return p.runner() == 0 })
	p.holds(p.ended(strings.TrimSpace(p.ok("ls", "-o", "name"))), tallyman.ReasonStopped)
}

func TestAReaderThatLeavesDoesNotTakeTheRunAlong(t *testing.T) {
	for name, leave := range map[string]func(p *place){
		"when nobody reads on": func(p *place) {
			p.set("TALLYMAN=" + filepath.Join(programs, "tallyman"))
			cmd := exec.Command("sh", append([]string{"-c", `{ "$TALLYMAN" run exec "$@"; echo $? > code; } | head -2`, "sh"}, waiter("go")...)...)
			cmd.Dir, cmd.Env = filepath.Join(p.dir, "work"), p.env
			if out, err := cmd.Output(); err != nil || string(out) != "1\n2\n" {
				t.Errorf("it printed %q: %v", out, err)
			}
			code, err := os.ReadFile(filepath.Join(p.dir, "work", "code"))
			if err != nil || strings.TrimSpace(string(code)) != "1" {
				t.Errorf("the exit code is %q: %v", code, err)
			}
		},
		"when the terminal closes": func(p *place) {
			run := p.start("", append([]string{"run", "exec"}, waiter("go")...)...)
			p.eventually("it is at work", func() bool { return strings.Contains(run.out.String(), "2\n") })
			run.signal(syscall.SIGHUP)
			if o := run.wait(); o.code != 129 {
				t.Errorf("want 129: %s", o)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			leave(p)
			p.write("go", "")
			p.eventually("the agent has ended", func() bool { return p.effects() == 1 && p.runner() == 0 })
			run := p.ended(strings.TrimSpace(p.ok("ls", "-o", "name")))
			p.holds(run, tallyman.Completed)
			p.counted(p.ok("logs", run.ID))
		})
	}
}

// What the runner catches for itself must not be ignored in the agent: shells
// rely on SIGPIPE. What is ignored where the tests run stays so.
func TestTheAgentHasAPlainSetOfSignals(t *testing.T) {
	p := newPlace(t)
	ours, err := exec.Command("grep", "-E", "Sig(Ign|Blk)", "/proc/self/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	run := p.ends(tallyman.Completed, "exec", "--", "sh", "-c", "yes | head -1; grep -E 'Sig(Ign|Blk)' /proc/self/status")
	if got := p.ok("logs", run.ID); got != "y\n"+string(ours) {
		t.Errorf("the agent says:\n%swithout us it is:\n%s", got, ours)
	}
}

func TestStopPrintsOneObject(t *testing.T) {
	p := newPlace(t)
	first, second := p.detach("exec", "--", "sleep", "300"), p.detach("exec", "--", "sleep", "300")
	var both struct {
		Items []tallyman.Run `json:"items"`
	}
	p.object(p.want(0, "stop", first.ID, second.Name, "-o", "json"), &both)
	if len(both.Items) != 2 || both.Items[0].Reason != tallyman.ReasonStopped || both.Items[1].Reason != tallyman.ReasonStopped {
		t.Errorf("stopped are %+v", both.Items)
	}
	p.holds(p.decode(p.want(0, "stop", first.ID, "-o", "json")), tallyman.ReasonStopped)
	if o := p.want(0, "stop", first.ID, second.ID, "-o", "name"); o.out != first.Name+"\n"+second.Name+"\n" {
		t.Errorf("-o name: %q", o.out)
	}
}
