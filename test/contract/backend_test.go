//go:build linux

package contract_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// An agent file that cannot be read is told once, however often it is looked at,
// and a backend that is not there changes nothing.
func TestWhatAServerSaysOfItsSetUp(t *testing.T) {
	p := newPlace(t)
	p.write("agents/bad.yaml", "kind: Nonsense\n")
	s := p.up()
	for range 3 {
		if _, err := s.own.Agents(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(s.err.String(), "reading agents"); n != 1 {
		t.Errorf("it is told %d times:\n%s", n, s.err.String())
	}
	s.kill()
	// What is not there gets no data folder.
	p.contains(p.want(2, "up", "--backend", "kubes").err, `backend "kubes" is not in tallyman, which has local; tallyman-server has kube`)
	p.ends(tallyman.Completed, "exec", "--", "true")
}

// The runs of a data folder execute where its server says. While that is down
// nobody else looks after them: what was recorded can be read, and whoever
// would start, stop or settle something is told whose it is.
func TestADataFolderOfAnotherBackend(t *testing.T) {
	p := newPlace(t)
	s := p.up("--max-running", "1")
	run := p.detach("exec", "--", "sh", "-c", "echo begun; sleep 600")
	queued := p.detach("exec", "--", "touch", "started-here")
	p.eventually("it is at work", func() bool { return strings.Contains(p.ok("logs", run.ID), "begun") })
	if b, err := os.ReadFile(p.data("backend")); err != nil || string(b) != "local\n" {
		t.Errorf("the folder's backend is %q, %v", b, err)
	}
	s.kill()
	kube := func() {
		if err := os.WriteFile(p.data("backend"), []byte("kube\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kube()
	if err := syscall.Kill(p.runner(), syscall.SIGKILL); err != nil { // what a local server would settle as RunnerLost
		t.Fatal(err)
	}
	for _, args := range [][]string{{"ls"}, {"show", run.ID}, {"logs", run.ID}, {"events", run.ID}} {
		o := p.call(args...)
		if o.code != 0 {
			t.Errorf("%s: %s", args, o)
		}
		p.contains(o.err, "--backend kube", "is not running", "this is what it has recorded")
	}
	p.contains(p.ok("logs", run.ID), "begun")
	began := time.Now()
	for _, args := range [][]string{
		{"run", "exec", "--", "true"}, {"run", "-d", "exec", "--", "true"}, {"rerun", run.ID}, {"stop", run.ID}, {"logs", "-f", run.ID},
		{"up", "--listen", "127.0.0.1:0"}, {"up", "--background"},
	} {
		p.contains(p.want(4, args...).err, p.data(), "with --backend kube, which is not running", "tallyman-server up --backend kube", "--data")
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("refusing took %s", took)
	}
	for _, was := range []tallyman.Run{run, queued} {
		if now := p.show(was.ID); now.State.Terminal() || now.Attempt != map[bool]int{true: 1}[was.ID == run.ID] {
			t.Errorf("%s is %s, attempt %d", now.Name, now.State, now.Attempt)
		}
	}
	// Whoever names another backend gets the folder once nothing is left there.
	p.contains(p.want(4, "up", "--listen", "127.0.0.1:0", "--backend", "local").err, "have not ended", "until they have")
	if err := os.WriteFile(p.data("backend"), []byte("local\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.call("stop", queued.ID)
	p.call("stop", run.ID)
	kube()
	p.contains(p.want(4, "run", "exec", "--", "true").err, "--backend kube")
	p.up("--backend", "local")
	p.ends(tallyman.Completed, "exec", "--", "test", "!", "-e", "started-here")
}
