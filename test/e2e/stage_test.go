//go:build e2e

// Package e2e_test runs the real Claude Code CLI under the real tallyman,
// against a scripted model in the test's own process.
//
// It needs Linux and the CLI that install-claude.sh puts into .cache/claude;
// E2E_CLAUDE names another one.
package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/fakemodel"
)

// The programs under test, set by TestMain.
var programs struct{ tallyman, mcpserver, claude string }

func TestMain(m *testing.M) {
	code, err := prepared(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
	}
	os.Exit(code)
}

func prepared(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "tallyman-e2e-bin-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir+"/", "./cmd/tallyman", "./test/e2e/mcpserver")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	programs.tallyman, programs.mcpserver = filepath.Join(dir, "tallyman"), filepath.Join(dir, "mcpserver")
	programs.claude = os.Getenv("E2E_CLAUDE")
	if programs.claude == "" {
		if programs.claude, err = filepath.Abs("../../.cache/claude/node_modules/.bin/claude"); err != nil {
			return 1, err
		}
	}
	if out, err := exec.Command(programs.claude, "--version").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("the Claude Code CLI does not start, run test/e2e/install-claude.sh: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// apiKey is what the CLI sends to the model; secret is one more that a run
// gets. Neither may be written anywhere.
const (
	apiKey = "sk-test-0f3b9a6d2c"
	secret = "swordfish-77-\"quoted\"-aardvark"
)

// stage is a home, a data folder, agents and a model, of one test's own.
type stage struct {
	t     *testing.T
	dir   string
	model *fakemodel.Server
	url   string // of the model
	env   []string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	dir, err := os.MkdirTemp("", "tm-e2e-") // short, for the socket's sake
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, dir: dir, model: fakemodel.New(fakemodel.Script{Models: []string{"claude-sonnet-4-5"}}, nil)}
	hs := httptest.NewServer(s.model)
	s.url = hs.URL
	for _, sub := range []string{"home", "data", "agents", "work"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "home"), "TMPDIR=" + os.TempDir(), "LANG=C.UTF-8",
		"ANTHROPIC_API_KEY=" + apiKey, "E2E_SECRET=" + secret,
	}
	t.Cleanup(func() {
		if t.Failed() {
			s.tell()
		}
		hs.CloseClientConnections()
		s.clear()
		hs.Close()
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	s.agent("tester", nil)
	return s
}

// agent writes an agent file: claude against the scripted model, with what
// the test gives on top.
func (s *stage) agent(name string, spec map[string]any) {
	s.t.Helper()
	base := map[string]any{
		"harness": "claude",
		"command": []string{programs.claude},
		"model":   "claude-sonnet-4-5",
		"env": []map[string]string{
			{"name": "IS_SANDBOX", "value": "1"},
			{"name": "ANTHROPIC_BASE_URL", "value": s.url},
			{"name": "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "value": "1"},
			{"name": "CLAUDE_CODE_MAX_RETRIES", "value": "1"},
		},
		"envFrom": []map[string]any{{"host": []string{"ANTHROPIC_API_KEY", "E2E_SECRET"}}},
		"retry":   map[string]any{"max": 0},
	}
	for k, v := range spec {
		base[k] = v
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": tallyman.APIVersion, "kind": tallyman.KindAgent,
		"metadata": map[string]any{"name": name}, "spec": base,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("agents/"+name+".yaml", string(text))
}

// write makes a file below the stage's folder and returns its path.
func (s *stage) write(name, text string) string {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// command is one call of tallyman on the stage's data.
func (s *stage) command(args ...string) *exec.Cmd {
	cmd := exec.Command(programs.tallyman, append([]string{
		"--data", filepath.Join(s.dir, "data"), "--agents", filepath.Join(s.dir, "agents"),
	}, args...)...)
	cmd.Dir, cmd.Env = filepath.Join(s.dir, "work"), s.env
	return cmd
}

// outcome is what a call of tallyman printed, and its exit code.
type outcome struct {
	out, err string
	code     int
}

func (s *stage) call(stdin string, args ...string) outcome {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := s.command(args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		s.t.Fatalf("start tallyman: %v", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !stop() {
		s.t.Fatalf("tallyman %s did not end; it wrote:\n%s%s", strings.Join(args, " "), &out, &errs)
	}
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("tallyman %s: %v", strings.Join(args, " "), err)
	}
	return outcome{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// ok is a call that must succeed; it returns what was printed.
func (s *stage) ok(args ...string) string {
	s.t.Helper()
	o := s.call("", args...)
	if o.code != 0 {
		s.t.Fatalf("tallyman %s: exit code %d\n%s%s", strings.Join(args, " "), o.code, o.out, o.err)
	}
	return o.out
}

// run runs an agent on a prompt to its end. The prompt goes by standard
// input.
func (s *stage) run(agent, prompt string, flags ...string) (tallyman.Run, int) {
	s.t.Helper()
	o := s.call(prompt, append([]string{"run", "-o", "json", agent, "-"}, flags...)...)
	return s.decode(o.out, o), o.code
}

// detach submits a run and leaves it going.
func (s *stage) detach(agent, prompt string, flags ...string) tallyman.Run {
	s.t.Helper()
	o := s.call(prompt, append([]string{"run", "-d", "-o", "json", agent, "-"}, flags...)...)
	return s.decode(o.out, o)
}

func (s *stage) decode(text string, o outcome) tallyman.Run {
	s.t.Helper()
	var r tallyman.Run
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		s.t.Fatalf("not one object of JSON: %v (exit code %d)\n%s%s", err, o.code, o.out, o.err)
	}
	return r
}

func (s *stage) show(run tallyman.Run) tallyman.Run {
	s.t.Helper()
	text := s.ok("show", run.ID, "-o", "json")
	return s.decode(text, outcome{out: text})
}

// ended waits until a run is over.
func (s *stage) ended(run tallyman.Run) tallyman.Run {
	s.t.Helper()
	s.eventually("the run has ended", func() bool {
		run = s.show(run)
		return run.State.Terminal()
	})
	return run
}

// event is a journal event as `tallyman events` prints it.
type event struct {
	ID string `json:"id"`
	tallyman.Event
}

// String leaves out the raw line, which says it all again.
func (e event) String() string {
	return fmt.Sprintf("%s %s %s tool=%s parent=%s failed=%v %.300q %s", e.ID, e.Type, e.Name, e.ToolID, e.Parent, e.Failed, e.Text, e.Data)
}

// events returns the events of a run, after it checked that they have no gap.
func (s *stage) events(run tallyman.Run) []event {
	s.t.Helper()
	var list []event
	lines := bufio.NewReader(strings.NewReader(s.ok("events", run.ID, "-o", "json")))
	last := map[int]int{} // cursor by attempt
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) == 0 && err != nil {
			break
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			s.t.Fatalf("event %d: %v: %s", len(list)+1, err, line)
		}
		var attempt, cursor int
		if _, err := fmt.Sscanf(e.ID, "%d.%d", &attempt, &cursor); err != nil || cursor != last[attempt]+1 {
			s.t.Errorf("event %s follows %d of its attempt", e.ID, last[attempt])
		}
		last[attempt] = cursor
		list = append(list, e)
	}
	if len(list) == 0 || list[len(list)-1].Type != tallyman.EventRunnerEnded {
		s.t.Errorf("the events do not end with runner.ended: %d of them", len(list))
	}
	return list
}

// eventually waits for something that happens in other processes.
func (s *stage) eventually(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(45 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if ok() {
			return
		}
	}
	s.t.Fatalf("never: %s; the model: %+v", what, s.model.Stats())
}

// stalled waits until so many model calls stand still.
func (s *stage) stalled(n int) {
	s.t.Helper()
	s.eventually("the model is stalled", func() bool { return s.model.Stats().Waiting == n })
}

// control posts to one of the model's control endpoints.
func (s *stage) control(verb string) {
	s.t.Helper()
	resp, err := http.Post(s.url+"/control/"+verb, "", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp.Body.Close()
}

// processes returns the command lines, by pid, of all processes that were
// started with this stage's folder in their arguments or environment.
func (s *stage) processes() map[int]string {
	found := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(d), "%d", &pid); err != nil || pid == os.Getpid() {
			continue
		}
		args, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(d, "environ")) // a process that is gone has neither
		if bytes.Contains(args, []byte(s.dir)) || bytes.Contains(env, []byte(s.dir)) {
			found[pid] = strings.TrimSpace(string(bytes.ReplaceAll(args, []byte{0}, []byte{' '})))
		}
	}
	return found
}

// clear checks that no process is left, and ends those that are.
func (s *stage) clear() {
	var left map[int]string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if left = s.processes(); len(left) == 0 {
			return
		}
		if s.t.Failed() {
			break
		}
	}
	for pid, args := range left {
		if !s.t.Failed() {
			s.t.Errorf("process %d is left: %.200s", pid, args)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// tell logs what helps to understand a failure.
func (s *stage) tell() {
	for _, pattern := range []string{"data/*.log", "data/log/*", "data/run/*.log"} {
		files, _ := filepath.Glob(filepath.Join(s.dir, pattern))
		for _, f := range files {
			b, _ := os.ReadFile(f)
			s.t.Logf("%s:\n%s", f, b[max(0, len(b)-8<<10):])
		}
	}
}
