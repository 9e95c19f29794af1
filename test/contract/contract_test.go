//go:build linux

// Package contract_test starts the real programs, as a user would, and holds
// what they promise: answers to bad input, exit codes, what is printed where,
// and that nothing is lost, doubled or called a success that was none.
//
// It needs Linux and Go; some tests need root for a mount and say so.
package contract_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
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
