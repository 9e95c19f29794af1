//go:build linux

// Package contract_test starts the real programs, as a user would, and holds
// what they promise: answers to bad input, exit codes, what is printed where,
// and that nothing is lost, doubled or called a success that was none.
//
// It needs Linux and Go; some tests need root for a mount and say so.
package contract_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/client"
)

// programs is the folder with the programs under test, set by TestMain.
var programs string

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("short: this suite starts whole programs, in which a race detector here sees nothing")
		return
	}
	code, err := prepared(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "contract:", err)
	}
	os.Exit(code)
}

func prepared(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "tallyman-contract-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	// Caught here, it is not ignored in what we start, whoever starts us (nohup).
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	build := exec.Command("go", "build", "-o", dir+"/", "./cmd/...")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	programs = dir
	return m.Run(), nil
}

// patience is how long anything may take before a test gives up.
const patience = 30 * time.Second

// place is a home, a working folder and a data folder of one test's own.
type place struct {
	t   *testing.T
	dir string
	env []string
}

// newPlace makes a place and lets the test run beside others. At the end it
// checks that no process of it is left.
func newPlace(t *testing.T) *place {
	t.Helper()
	t.Parallel()
	dir, err := os.MkdirTemp("", "tmc-") // short, for the socket's sake
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, dir: dir, env: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "home"), "LANG=C.UTF-8",
		"TALLYMAN_DATA=" + filepath.Join(dir, "data"),
	}}
	for _, sub := range []string{"home", "work"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(p.leave)
	return p
}

// set adds a variable to the environment of what the place starts.
func (p *place) set(kv ...string) { p.env = append(p.env, kv...) }

func (p *place) data(name ...string) string {
	return filepath.Join(append([]string{p.dir, "data"}, name...)...)
}

// write makes a file below the working folder and returns its path.
func (p *place) write(name, text string) string {
	p.t.Helper()
	file := filepath.Join(p.dir, "work", name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
	return file
}

// agent writes ./agents/NAME.yaml; spec is YAML, indented by nothing.
func (p *place) agent(name, spec string) string {
	p.t.Helper()
	return p.write("agents/"+name+".yaml", "apiVersion: tallyman.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: "+name+"\nspec:\n  "+
		strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  ")+"\n")
}

// command is one call of tallyman in the place.
func (p *place) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(programs, "tallyman"), args...)
	cmd.Dir, cmd.Env = filepath.Join(p.dir, "work"), p.env
	return cmd
}

// outcome is what a call of tallyman printed, and its exit code.
type outcome struct {
	args     []string
	out, err string
	code     int
}

func (o outcome) String() string {
	return fmt.Sprintf("tallyman %.200s\nexit code %d\n--- stdout\n%.4000s--- stderr\n%.4000s", strings.Join(o.args, " "), o.code, o.out, o.err)
}

// started is a call of tallyman that goes on.
type started struct {
	p        *place
	cmd      *exec.Cmd
	out, err safeBuffer
	done     chan struct{}
}

// start begins a call of tallyman.
func (p *place) start(stdin string, args ...string) *started {
	p.t.Helper()
	s := &started{p: p, cmd: p.command(args...), done: make(chan struct{})}
	s.cmd.Stdin = strings.NewReader(stdin)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.err
	s.cmd.WaitDelay = 5 * time.Second
	if err := s.cmd.Start(); err != nil {
		p.t.Fatalf("start tallyman: %v", err)
	}
	go func() {
		_ = s.cmd.Wait() // the state tells it all
		close(s.done)
	}()
	p.t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	return s
}

func (s *started) signal(sig syscall.Signal) {
	s.p.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.p.t.Fatalf("signal tallyman: %v", err)
	}
}

// wait waits for the call to end.
func (s *started) wait() outcome {
	s.p.t.Helper()
	select {
	case <-s.done:
	case <-time.After(patience):
		_ = s.cmd.Process.Signal(syscall.SIGQUIT)
		<-s.done
		s.p.t.Fatalf("tallyman %s did not end; it wrote:\n%.2000s%.4000s", strings.Join(s.cmd.Args[1:], " "), s.out.String(), s.err.String())
	}
	return outcome{s.cmd.Args[1:], s.out.String(), s.err.String(), s.cmd.ProcessState.ExitCode()}
}

// call is a call of tallyman from its start to its end.
func (p *place) call(args ...string) outcome {
	p.t.Helper()
	return p.start("", args...).wait()
}

// want is a call that must end with an exit code.
func (p *place) want(code int, args ...string) outcome {
	p.t.Helper()
	o := p.call(args...)
	if o.code != code {
		p.t.Fatalf("exit code %d is wanted: %s", code, o)
	}
	return o
}

// ok is a call that must succeed; it returns what was printed.
func (p *place) ok(args ...string) string {
	p.t.Helper()
	return p.want(0, args...).out
}

// run runs to the end with -o json and returns the run and the exit code.
func (p *place) run(args ...string) (tallyman.Run, int) {
	p.t.Helper()
	o := p.call(append([]string{"run", "-o", "json"}, args...)...)
	return p.decode(o), o.code
}

// ends runs to the end and holds how it ends.
func (p *place) ends(reason tallyman.Reason, args ...string) tallyman.Run {
	p.t.Helper()
	run, code := p.run(args...)
	p.holds(run, reason)
	want := map[tallyman.State]int{tallyman.Succeeded: 0, tallyman.Failed: 1, tallyman.Stopped: 3}[reason.State()]
	if reason == tallyman.DeadlineExceeded || reason == tallyman.IdleTimeout {
		want = 124
	}
	if code != want {
		p.t.Errorf("exit code %d after %s, want %d", code, run.Reason, want)
	}
	return run
}

// holds checks the end of a run.
func (p *place) holds(run tallyman.Run, reason tallyman.Reason) {
	p.t.Helper()
	if run.State != reason.State() || run.Reason != reason {
		p.t.Fatalf("run %s ended %s, %s (%s); want %s", run.Name, run.State, run.Reason, run.Message, reason)
	}
}

// detach submits a run and leaves it going.
func (p *place) detach(args ...string) tallyman.Run {
	p.t.Helper()
	o := p.want(0, append([]string{"run", "-d", "-o", "json"}, args...)...)
	return p.decode(o)
}

// decode reads the one object on standard output.
func (p *place) decode(o outcome) tallyman.Run {
	p.t.Helper()
	var r tallyman.Run
	p.object(o, &r)
	return r
}

// object reads the one JSON value that standard output must hold.
func (p *place) object(o outcome, v any) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(o.out), v); err != nil {
		p.t.Fatalf("standard output is not one JSON object: %v: %s", err, o)
	}
}

func (p *place) show(id string) tallyman.Run {
	p.t.Helper()
	return p.decode(p.want(0, "show", id, "-o", "json"))
}

// event is a journal event as `tallyman events` prints it.
type event struct {
	ID string `json:"id"`
	tallyman.Event
}

// events returns the events of an ended run, after it checked that they have
// no gap and end each attempt as they must.
func (p *place) events(id string) []event {
	p.t.Helper()
	return p.parseEvents(p.ok("events", id, "-o", "json"))
}

func (p *place) parseEvents(text string) []event {
	p.t.Helper()
	var list []event
	last := tallyman.EventID{}
	for line := range strings.Lines(text) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			p.t.Fatalf("event %d is not JSON: %v: %.500s", len(list)+1, err, line)
		}
		id, err := tallyman.ParseEventID(e.ID)
		next := id.Attempt == last.Attempt && id.Cursor == last.Cursor+1 || id.Attempt > last.Attempt && id.Cursor == 1
		if err != nil || !next {
			p.t.Fatalf("event %q follows %s: %v", e.ID, last, err)
		}
		last = id
		list = append(list, e)
	}
	return list
}

// texts are the texts of events of one type.
func texts(events []event, kind tallyman.EventType) []string {
	var all []string
	for _, e := range events {
		if e.Type == kind {
			all = append(all, e.Text)
		}
	}
	return all
}

// server is `tallyman up` in a place.
type server struct {
	*started
	url, token string
	api        *client.Client // over TCP
	own        *client.Client // over the socket
}

// up starts a server and waits until it says that it serves.
func (p *place) up(args ...string) *server {
	p.t.Helper()
	s := &server{started: p.start("", append([]string{"up", "--listen", "127.0.0.1:0"}, args...)...)}
	p.eventually("the server serves", func() bool {
		select {
		case <-s.done:
			p.t.Fatalf("the server ended: %s", s.wait())
		default:
		}
		_, rest, ok := strings.Cut(s.out.String(), "http://")
		s.url, _, _ = strings.Cut(rest, "/login")
		return ok && strings.Contains(rest, "/api/v1")
	})
	s.url = "http://" + s.url
	token, err := os.ReadFile(p.data("token"))
	if err != nil {
		p.t.Fatal(err)
	}
	s.token = strings.TrimSpace(string(token))
	if s.api, err = client.New(s.url, s.token); err != nil {
		p.t.Fatal(err)
	}
	s.own = client.NewSocket(p.data("run", "tallyman.sock"))
	p.t.Cleanup(func() {
		s.api.Close()
		s.own.Close()
		_ = s.cmd.Process.Kill()
		<-s.done
	})
	return s
}

// kill ends the server as a power cut would.
func (s *server) kill() {
	s.p.t.Helper()
	s.signal(syscall.SIGKILL)
	<-s.done
}

// submit submits over the socket.
func (s *server) submit(r tallyman.Request) tallyman.Run {
	s.p.t.Helper()
	run, err := s.own.Submit(s.p.t.Context(), r)
	if err != nil {
		s.p.t.Fatalf("submit: %v", err)
	}
	return run
}

// get asks the API for a path with the token and returns status and body.
func (s *server) get(path string) (int, string) {
	s.p.t.Helper()
	return s.http(http.MethodGet, path, "", nil)
}

func (s *server) http(method, path, body string, header map[string]string) (int, string) {
	s.p.t.Helper()
	req, err := http.NewRequestWithContext(s.p.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.p.t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		s.p.t.Fatal(err)
	}
	return resp.StatusCode, b.String()
}

// until polls a run over the socket until it is as wanted.
func (s *server) until(id, what string, ok func(tallyman.Run) bool) tallyman.Run {
	s.p.t.Helper()
	var run tallyman.Run
	s.p.eventually(what, func() bool {
		ctx, cancel := context.WithTimeout(s.p.t.Context(), 5*time.Second)
		defer cancel()
		var err error
		run, err = s.own.Run(ctx, id)
		return err == nil && ok(run)
	})
	return run
}

func (s *server) ended(id string) tallyman.Run {
	s.p.t.Helper()
	return s.until(id, "run "+id+" has ended", func(r tallyman.Run) bool { return r.State.Terminal() })
}

func (s *server) running(id string) tallyman.Run {
	s.p.t.Helper()
	return s.until(id, "run "+id+" is running", func(r tallyman.Run) bool { return r.State == tallyman.Running })
}

// ended polls a run by the command line until it is over.
func (p *place) ended(id string) tallyman.Run {
	p.t.Helper()
	var run tallyman.Run
	p.eventually("run "+id+" has ended", func() bool {
		run = p.show(id)
		return run.State.Terminal()
	})
	return run
}

// eventually waits for something that happens in other processes.
func (p *place) eventually(what string, ok func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	p.t.Fatalf("never: %s", what)
}

// processes returns the command lines, by pid, of the living processes that
// have this place's folder in their arguments or environment.
func (p *place) processes() map[int]string {
	return scan(p.t, func(args, env []byte) bool {
		return bytes.Contains(args, []byte(p.dir)) || bytes.Contains(env, []byte(p.dir))
	})
}

// scan returns the command lines, by pid, of the living processes that match.
func scan(t *testing.T, match func(args, env []byte) bool) map[int]string {
	found := map[int]string{}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil || pid == os.Getpid() {
			continue
		}
		// A process that is gone, or a zombie, has neither.
		args, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(d, "environ"))
		args = bytes.TrimSpace(bytes.ReplaceAll(args, []byte{0}, []byte{' '}))
		if match(args, env) {
			found[pid] = string(args)
		}
	}
	return found
}

// count is how many processes of the place have words in their command line.
func (p *place) count(words string) int {
	n := 0
	for _, args := range p.processes() {
		if strings.Contains(args, words) {
			n++
		}
	}
	return n
}

// runner returns the process of the only runner that is at work, 0 without
// one.
func (p *place) runner() int {
	for pid, args := range p.processes() {
		if strings.HasSuffix(args, "tallyman-runner runner") {
			return pid
		}
	}
	return 0
}

// leave ends a server in the background, and checks that nothing else is left.
func (p *place) leave() {
	if p.t.Failed() {
		p.tell()
	}
	var left map[int]string
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		left = p.processes()
		for pid, args := range left {
			if strings.Contains(args, "tallyman up --background") {
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
		}
		if len(left) == 0 || p.t.Failed() {
			break
		}
	}
	for pid, args := range left {
		if !p.t.Failed() {
			p.t.Errorf("process %d is left: %.200s", pid, args)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err := os.RemoveAll(p.dir); err != nil && !p.t.Failed() {
		p.t.Errorf("clean up: %v", err)
	}
}

// tell logs what helps to understand a failure.
func (p *place) tell() {
	for _, pattern := range []string{"data/*.log", "data/attempts/*/log"} {
		files, err := filepath.Glob(filepath.Join(p.dir, pattern))
		if err != nil {
			continue
		}
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil && len(b) > 0 {
				p.t.Logf("%s:\n%s", f, b[max(0, len(b)-4<<10):])
			}
		}
	}
}

// contains holds that a text says what it must.
func (p *place) contains(text string, words ...string) {
	p.t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			p.t.Errorf("%q is not in:\n%.3000s", w, text)
		}
	}
}

// lacks holds that a text does not say what it must not.
func (p *place) lacks(text string, words ...string) {
	p.t.Helper()
	for _, w := range words {
		if strings.Contains(text, w) {
			p.t.Errorf("%q is in:\n%.3000s", w, text)
		}
	}
}
