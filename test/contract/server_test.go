//go:build linux

package contract_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tallyman-dev/tallyman"
)

func TestManyTerminalsAtOnce(t *testing.T) {
	p := newPlace(t)
	var all []*started
	for i := range 8 {
		all = append(all, p.start("", "run", "exec", "--", "sh", "-c", fmt.Sprintf("echo begin %d; sleep 0.%d; echo end %[1]d", i, i%4)))
	}
	for i, s := range all {
		if o := s.wait(); o.code != 0 || o.out != fmt.Sprintf("begin %d\nend %[1]d\n", i) {
			t.Errorf("%s", o)
		}
	}
	for _, id := range strings.Fields(p.ok("ls", "-o", "name")) {
		run := p.show(id)
		p.holds(run, tallyman.Completed)
		if run.Attempt != 1 {
			t.Errorf("run %s took %d attempts", id, run.Attempt)
		}
	}
}

// waiter is a command that counts until a file is there.
func waiter(name string) []string {
	return []string{"--", "sh", "-c", "i=0; while ! [ -e " + name + " ]; do i=$((i+1)); echo $i; sleep 0.02; done; echo once >> effects; echo end"}
}

// counted holds that a transcript counts without a gap, and ends.
func (p *place) counted(text string) {
	p.t.Helper()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines[:len(lines)-1] {
		if line != strconv.Itoa(i+1) {
			p.t.Fatalf("line %d is %q", i+1, line)
		}
	}
	if len(lines) < 3 || lines[len(lines)-1] != "end" {
		p.t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

func TestAWaitingTerminalTakesOver(t *testing.T) {
	for name, leave := range map[string]func(p *place, first *started){
		"when the first has ended": func(p *place, first *started) {
			p.write("go1", "")
			if o := first.wait(); o.code != 0 {
				p.t.Errorf("the first: %s", o)
			}
		},
		"when the first is killed": func(p *place, first *started) {
			first.signal(syscall.SIGKILL)
			<-first.done
			p.write("go1", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			first := p.start("", append([]string{"run", "exec", "--label", "n=1"}, waiter("go1")...)...)
			p.eventually("the first works", func() bool { return strings.Contains(first.out.String(), "2\n") })
			second := p.start("", append([]string{"run", "exec", "--label", "n=2"}, waiter("go2")...)...)
			follower := p.start("", "logs", "-f", strings.TrimSpace(p.ok("ls", "-o", "name", "--label", "n=1")))
			p.eventually("the second works", func() bool { return strings.Contains(second.out.String(), "2\n") })
			leave(p, first)
			before := second.out.String()
			p.eventually("the second goes on", func() bool { return len(second.out.String()) > len(before)+10 })
			p.write("go2", "")
			o := second.wait()
			if o.code != 0 {
				t.Errorf("the second: %s", o)
			}
			p.counted(o.out)
			p.counted(follower.wait().out)
			if n := p.effects(); n != 2 {
				t.Errorf("%d effects, want 2", n)
			}
			for _, id := range strings.Fields(p.ok("ls", "-o", "name")) {
				run := p.ended(id)
				p.holds(run, tallyman.Completed)
				if run.Attempt != 1 {
					t.Errorf("%d attempts", run.Attempt)
				}
				p.counted(p.ok("logs", id))
				p.events(id)
			}
		})
	}
}

func TestAKilledServerIsReplaced(t *testing.T) {
	p := newPlace(t)
	work := filepath.Join(p.dir, "work")
	p.agent("count", "harness: exec\nconcurrency: {max: 1}\nworkspace: "+work+"\ncommand: [sh, -c, "+strconv.Quote(waiter("go")[3])+"]")
	s := p.up()
	var ids []string
	for range 3 {
		run, err := s.api.Submit(t.Context(), tallyman.Request{Agent: "count"})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, run.ID)
	}
	s.running(ids[0])
	runner := p.runner()
	for range 3 {
		s.kill()
		s = p.up()
		s.until(ids[1], "the second waits still", func(r tallyman.Run) bool { return r.State == tallyman.Queued && r.Waiting != nil })
	}
	if p.runner() != runner {
		t.Error("the runner is another")
	}
	s.kill()
	p.write("go", "") // it ends with nobody there
	p.eventually("the first has ended its work", func() bool { return p.effects() == 1 })
	s = p.up()
	for _, id := range ids {
		run := s.ended(id)
		p.holds(run, tallyman.Completed)
		if run.Attempt != 1 {
			t.Errorf("run %s took %d attempts", id, run.Attempt)
		}
		p.events(id)
		if id == ids[0] {
			p.counted(p.ok("logs", id))
		}
	}
	if n := p.effects(); n != 3 {
		t.Errorf("%d effects, want 3", n)
	}
	p.contains(p.ok("show", ids[0]), "adopted")
}

func TestTERMLeavesRunsGoing(t *testing.T) {
	p := newPlace(t)
	s := p.up()
	run := p.detach(append([]string{"exec"}, waiter("go")...)...)
	s.running(run.ID)
	s.signal(syscall.SIGTERM)
	o := s.wait()
	if o.code != 0 {
		t.Errorf("it ended so: %s", o)
	}
	p.contains(o.err, "1 running", "takes them over", "--stop-runs")
	if p.runner() == 0 {
		t.Fatal("the runner is gone")
	}
	s = p.up("--stop-runs")
	s.until(run.ID, "it goes on", func(r tallyman.Run) bool { return r.State == tallyman.Running })
	s.signal(syscall.SIGTERM)
	if o := s.wait(); o.code != 0 || strings.Contains(o.err, "takes them over") {
		t.Errorf("it ended so: %s", o)
	}
	if p.runner() != 0 {
		t.Error("--stop-runs left a runner")
	}
	p.holds(p.show(run.ID), tallyman.ReasonStopped)
}

func TestTheSecondServerIsToldWhoHoldsTheFolder(t *testing.T) {
	p := newPlace(t)
	s := p.up()
	o := p.want(1, "up", "--listen", "127.0.0.1:0")
	p.contains(o.err, p.data(), fmt.Sprintf("process %d", s.cmd.Process.Pid), "--data")
	if n := strings.Count(o.err, "\n"); n != 1 {
		t.Errorf("the message has %d lines:\n%s", n, o.err)
	}
	// It still serves, and others talk to it.
	if got := p.ok("run", "exec", "--", "echo", "served"); got != "served\n" {
		t.Errorf("got %q", got)
	}
	p.contains(p.ok("doctor"), fmt.Sprintf("process %d", s.cmd.Process.Pid))
	// A terminal that serves is named as well.
	other := newServing(t, p)
	o = p.want(1, "up", "--data", filepath.Join(p.dir, "other"), "--listen", "127.0.0.1:0")
	p.contains(o.err, fmt.Sprintf("process %d", other.cmd.Process.Pid))
	p.write("go", "")
	other.wait()
}

// newServing is a `tallyman run` that serves another data folder.
func newServing(t *testing.T, p *place) *started {
	t.Helper()
	run := p.start("", append([]string{"--data", filepath.Join(p.dir, "other"), "run", "exec"}, waiter("go")...)...)
	p.eventually("it works", func() bool { return strings.Contains(run.out.String(), "1\n") })
	return run
}

func TestAPortThatIsTaken(t *testing.T) {
	p := newPlace(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := p.want(1, "up", "--listen", l.Addr().String())
	p.contains(o.err, l.Addr().String(), "in use", "--listen")
	p.ends(tallyman.Completed, "exec", "--", "true") // the folder is free again
	p.contains(p.want(2, "up", "--listen", "here").err, "here")
	p.contains(p.want(2, "up", "--max-running", "0").err, "max-running")
	// The last one wins.
	s := p.up("--listen", l.Addr().String(), "--listen", "127.0.0.1:0")
	if s.url == "http://"+l.Addr().String() {
		t.Errorf("it listens on %s", s.url)
	}
}

func TestADataFolderWithALongPath(t *testing.T) {
	p := newPlace(t)
	long := filepath.Join(p.dir, strings.Repeat("long/", 30))
	p.set("TALLYMAN_DATA=" + long)
	if got := p.ok("run", "exec", "--", "echo", "there"); got != "there\n" {
		t.Errorf("got %q", got)
	}
	run := p.detach("exec", "--", "true")
	p.holds(p.ended(run.ID), tallyman.Completed)
}

func TestTheServersDoors(t *testing.T) {
	p := newPlace(t)
	s := p.up()
	ask := func(path, token, host string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		if host != "" {
			req.Host = host
		}
		resp, err := http.DefaultTransport.RoundTrip(req) // as it is, without following
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for _, c := range []struct {
		path, token, host string
		want              int
	}{
		{"/healthz", "", "", 200}, {"/readyz", "", "", 200},
		{"/api/v1/runs", "", "", 401}, {"/api/v1/runs", "wrong-token-wrong-token", "", 401}, {"/api/v1/runs", s.token, "", 200},
		{"/openapi.json", s.token, "", 200}, {"/metrics", s.token, "", 200},
		{"/api/v1/runs", s.token, "evil.example", 421}, {"/healthz", "", "evil.example", 421}, {"/", "", "evil.example", 421},
	} {
		if got := ask(c.path, c.token, c.host); got != c.want {
			t.Errorf("%s with token %q as %q: %d, want %d", c.path, c.token, c.host, got, c.want)
		}
	}
	for name, mode := range map[string]os.FileMode{"token": 0o600, "run/tallyman.sock": 0o600, "": 0o700} {
		if info, err := os.Stat(p.data(name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%q: %v, %v", name, info.Mode(), err)
		}
	}
	// The command line over TCP: the token of the data folder is found.
	if got := p.ok("ls", "--server", s.url, "-o", "name"); got != "" {
		t.Errorf("ls prints %q", got)
	}
	p.contains(p.want(2, "run", "--server", s.url, "--harness", "script", "[]").err, "socket")
	p.agent("echo", "harness: exec\ncommand: [cat]") // the server rereads
	if got := p.ok("run", "--server", s.url, "echo", "over TCP"); got != "over TCP\n" {
		t.Errorf("run prints %q", got)
	}
	p.contains(p.ok("config", "--login-link"), s.url+"/login?code=")
	wrong := p.write("token", "not-the-token-of-any-server")
	if o := p.call("ls", "--server", s.url, "--token-file", wrong); o.code == 0 || o.code == 5 {
		t.Errorf("with a wrong token: %s", o)
	}
}

func TestServerSentEventsGoOnAfterTheLastID(t *testing.T) {
	p := newPlace(t)
	s := p.up()
	run := p.detach(append([]string{"exec"}, waiter("go")...)...)
	s.running(run.ID)
	stream := func(after string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/api/v1/runs/"+run.ID+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+s.token)
		req.Header.Set("Accept", "text/event-stream")
		if after != "" {
			req.Header.Set("Last-Event-ID", after)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	var ids []string
	read := func(resp *http.Response, most int) (ended bool) {
		t.Helper()
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for n := 0; n < most && lines.Scan(); {
			if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				ids = append(ids, id)
				n++
			}
			ended = ended || lines.Text() == "event: end"
		}
		return ended
	}
	read(stream(""), 5)
	s.kill()
	s = p.up()
	read(stream(ids[len(ids)-1]), 5)
	p.write("go", "")
	if !read(stream(ids[len(ids)-1]), 1_000_000) {
		t.Error("the stream does not say that it is whole")
	}
	var want []string
	for _, e := range p.events(run.ID) {
		want = append(want, e.ID)
	}
	if strings.Join(ids, " ") != strings.Join(want, " ") {
		t.Errorf("followed are %d events, there are %d", len(ids), len(want))
	}
}

func TestThePagesOfTheAPI(t *testing.T) {
	p := newPlace(t)
	p.agent("idle", "harness: exec\ncommand: [\"true\"]")
	s := p.up()
	const n = 7
	for range n {
		if _, err := s.api.Submit(t.Context(), tallyman.Request{Agent: "idle"}); err != nil {
			t.Fatal(err)
		}
	}
	seen, cursor := map[string]bool{}, ""
	for pages := 0; pages < 10; pages++ {
		items, next, err := s.api.Runs(t.Context(), listOptions(3, cursor))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range items {
			if seen[r.ID] {
				t.Errorf("run %s is listed twice", r.ID)
			}
			seen[r.ID] = true
		}
		if cursor = next; next == "" {
			break
		}
		if pages == 0 { // what comes meanwhile does not move the pages
			if _, err := s.api.Submit(t.Context(), tallyman.Request{Agent: "idle"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(seen) != n {
		t.Errorf("%d runs are listed, want %d", len(seen), n)
	}
	p.eventually("all have ended", func() bool {
		items, _, err := s.api.Runs(t.Context(), listOptions(100, ""))
		for _, r := range items {
			if !r.State.Terminal() {
				return false
			}
		}
		return err == nil
	})
}

// A run that is submitted while a short command serves the folder, or at the
// last moment of a server in the background, is worked all the same.
func TestDetachedRunsAreNeverForgotten(t *testing.T) {
	p := newPlace(t)
	var ids []string
	for range 12 {
		list := p.start("", "ls")
		ids = append(ids, p.detach("exec", "--", "true").ID)
		list.wait()
		p.start("", "ls").wait()
		for pid, args := range p.processes() {
			if strings.Contains(args, "tallyman up --background") && len(ids)%3 == 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	last := p.detach("exec", "--", "true") // what a kill left behind is taken up with it
	for _, id := range append(ids, last.ID) {
		p.holds(p.ended(id), tallyman.Completed)
	}
}
