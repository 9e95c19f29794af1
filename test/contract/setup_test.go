//go:build linux

package contract_test

import (
	"net"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// hangingGit is a Git server that accepts and never answers.
func hangingGit(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
		}
	}()
	return "git:git://" + l.Addr().String() + "/repository"
}

func TestAStopReachesARunThatIsBeingSetUp(t *testing.T) {
	p := newPlace(t)
	p.agent("cloner", "harness: exec\ncommand: [\"true\"]\nworkspace: "+hangingGit(t))
	run := p.detach("cloner")
	p.eventually("git clones", func() bool { return p.count("clone") > 0 })
	began := time.Now()
	p.ok("stop", run.ID)
	p.holds(p.show(run.ID), tallyman.ReasonStopped)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestASetUpThatNeverEndsIsAStartTimeout(t *testing.T) {
	p := newPlace(t)
	p.set("TALLYMAN_START_TIMEOUT=1s")
	p.agent("cloner", "harness: exec\ncommand: [\"true\"]\nretry: {max: 0}\nworkspace: "+hangingGit(t))
	p.ends(tallyman.StartTimeout, "cloner")
}
