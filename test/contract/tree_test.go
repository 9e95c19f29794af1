//go:build linux

package contract_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/tallyman-dev/tallyman"
)

// family is an agent's offspring: a child in a session of its own, a daemon by
// two forks, and one that nohup keeps; all sleep for a time of their own, by
// which they are known. orphan has thrown its environment away as well.
type family string

func newFamily() family { return family(fmt.Sprint("sleep ", 1_000_000+rand.IntN(9_000_000))) }

func (f family) script() string {
	return strings.ReplaceAll(`setsid SLEEP.1 &
(setsid sh -c 'SLEEP.2 & exec SLEEP.3' >/dev/null 2>&1 </dev/null &)
nohup SLEEP.4 >/dev/null 2>&1 &
`, "SLEEP", string(f))
}

func (f family) orphan() string {
	return strings.ReplaceAll("(env -i setsid SLEEP.5 >/dev/null 2>&1 </dev/null &)\n", "SLEEP", string(f))
}

// alive is how many of the family live.
func (f family) alive(t *testing.T) int {
	return len(scan(t, func(args, _ []byte) bool { return bytes.HasPrefix(args, []byte(f)) }))
}

func TestTheWholeTreeIsKilled(t *testing.T) {
	interrupt := func(run *started) { run.signal(syscall.SIGINT) }
	for name, end := range map[string]struct {
		how  string // what the agent does in the end
		code int
		do   func(run *started)
	}{
		"when the agent ends by itself": {"read x < fifo; exit 0", 0, nil},
		"when the agent fails":          {"read x < fifo; exit 1", 1, nil},
		"when it is stopped":            {"read x < fifo", 130, interrupt},
		"when it ignores TERM":          {"trap '' TERM INT HUP; read x < fifo; while :; do sleep 0.05; done", 130, interrupt},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.set("TALLYMAN_GRACE=1s")
			fifo := p.dir + "/work/fifo"
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			f := newFamily()
			script := p.write("agent.sh", f.script()+f.orphan()+end.how+"\n")
			run := p.start("", "run", "exec", "--", "sh", script)
			p.eventually("the family lives", func() bool { return f.alive(t) == 5 })
			if end.do != nil {
				end.do(run)
			}
			if end.do == nil || strings.Contains(name, "TERM") {
				p.write("fifo", "go\n")
			}
			if o := run.wait(); o.code != end.code {
				t.Errorf("want %d: %s", end.code, o)
			}
			if n := f.alive(t); n != 0 {
				t.Errorf("%d of the family have outlived the run", n)
			}
		})
	}
}

// The script harness can do the same by itself: it needs no shell.
func TestAScriptThatLeavesAChildAndIgnoresTERM(t *testing.T) {
	p := newPlace(t)
	p.set("TALLYMAN_GRACE=500ms")
	f := newFamily()
	p.agent("stubborn", `harness: script
settings:
  steps: [ignoreTerm, {child: {command: [`+strings.ReplaceAll(string(f), " ", ", \"")+`"]}}, {say: at work}, hang]`)
	run := p.detach("stubborn", "x")
	p.eventually("the child lives", func() bool { return f.alive(t) == 1 })
	p.eventually("it has spoken", func() bool { return strings.Contains(p.ok("logs", run.ID), "at work") })
	p.ok("stop", run.ID)
	p.holds(p.show(run.ID), tallyman.ReasonStopped)
	if n := f.alive(t); n != 0 {
		t.Error("the child has outlived the run")
	}
}

func TestAKilledRunnerIsLostAndLeavesNoSurvivor(t *testing.T) {
	p := newPlace(t)
	f := newFamily()
	script := p.write("agent.sh", f.script()+"wait\n")
	p.agent("once", "harness: exec\nretry: {max: 0}\ncommand: [sh, "+script+"]")
	run := p.start("", "run", "once", "-o", "json")
	p.eventually("the family lives", func() bool { return f.alive(t) == 4 })
	if err := syscall.Kill(p.runner(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	o := run.wait()
	ended := p.decode(o)
	p.holds(ended, tallyman.RunnerLost)
	p.contains(ended.Message, "killed")
	if o.code != 1 || ended.Attempt != 1 {
		t.Errorf("exit code %d after %d attempts", o.code, ended.Attempt)
	}
	if n := f.alive(t); n != 0 {
		t.Errorf("%d of the family have outlived the runner", n)
	}
	// What it had done is there to be read.
	if got := p.events(ended.ID); len(got) == 0 || got[0].Type != tallyman.EventRunnerStarted {
		t.Errorf("its events: %+v", got)
	}
}

func TestAKilledRunnerIsRetriedByPolicy(t *testing.T) {
	p := newPlace(t)
	f := newFamily()
	script := p.write("agent.sh", `echo attempt $TALLYMAN_ATTEMPT_NO after "$TALLYMAN_LAST_FAILURE"
[ $TALLYMAN_ATTEMPT_NO = 2 ] && exit 0
`+f.script()+"wait\n")
	p.agent("again", "harness: exec\nretry: {backoff: 100ms}\ncommand: [sh, "+script+"]")
	run := p.start("", "run", "again", "-o", "json")
	p.eventually("the family lives", func() bool { return f.alive(t) == 4 })
	if err := syscall.Kill(p.runner(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended := p.decode(run.wait())
	p.holds(ended, tallyman.Completed)
	if ended.Attempt != 2 || f.alive(t) != 0 {
		t.Errorf("%d attempts, %d survivors", ended.Attempt, f.alive(t))
	}
	logs := p.ok("logs", ended.ID)
	p.contains(logs, "attempt 1 after \n", "attempt 2 after attempt 1 ended with RunnerLost")
	p.contains(p.ok("show", ended.ID), "attempt 1 on local: RunnerLost", "attempt 2 on local: Completed", "retry: RunnerLost")
	p.events(ended.ID) // gap-free over both attempts
}
