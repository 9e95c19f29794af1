package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/journal"
)

// attempt is a whole attempt of harness exec: the real thing but for the
// server.
type attempt struct {
	*channel
	dir string
	err error
}

// agentSpec is an attempt that runs a command in a shell.
func agentSpec(t *testing.T, script string, change ...func(*tallyman.RunnerSpec)) tallyman.RunnerSpec {
	t.Helper()
	spec := tallyman.RunnerSpec{
		RunID: testRun, RunName: "test", Attempt: 1,
		Agent:   tallyman.AgentSpec{Harness: "exec", Command: []string{"sh", "-c", script}},
		WorkDir: filepath.Join(t.TempDir(), "work"),
		Env:     []tallyman.EnvVar{{Name: "PATH", Value: os.Getenv("PATH")}},
		Grace:   tallyman.Duration(200 * time.Millisecond), ResultGrace: tallyman.Duration(time.Second), DrainBudget: tallyman.Duration(20 * time.Second),
	}
	for _, c := range change {
		c(&spec)
	}
	return spec
}

// work works an attempt from hello to its end.
func work(t *testing.T, spec tallyman.RunnerSpec) *attempt {
	t.Helper()
	a := &attempt{channel: newChannel(t), dir: t.TempDir()}
	a.spec = spec
	return a.work(t.Context())
}

func (a *attempt) work(ctx context.Context) *attempt {
	a.err = Run(ctx, a.boot(a.dir), "test", slog.New(slog.DiscardHandler))
	return a
}

// ended holds how the attempt ended, that the server was told so, and that it
// has the whole journal.
func (a *attempt) ended(reason tallyman.Reason) tallyman.Outcome {
	a.t.Helper()
	if a.err != nil {
		a.t.Fatalf("the runner ended with %v", a.err)
	}
	out := a.final()
	if out == nil || out.Reason != reason {
		a.t.Fatalf("the outcome is %+v, want %s; events:\n%s", out, reason, strings.Join(a.lines, "\n"))
	}
	_, last, rec, err := journal.Last(filepath.Join(a.dir, "journal"))
	if err != nil || int(last) != len(a.lines) || string(rec) != a.lines[last-1] {
		a.t.Fatalf("the journal ends at %d with %.200s, the server has %d events: %v", last, rec, len(a.lines), err)
	}
	return *out
}

// texts are the texts of events of a type, in order.
func (a *attempt) texts(kind tallyman.EventType) (all []string) {
	a.t.Helper()
	for _, e := range events(a.t, a.lines) {
		if e.Type == kind {
			all = append(all, e.Text)
		}
	}
	return all
}

// alive reports whether a process is there and no zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		return unix.Kill(pid, 0) == nil && !hasProc()
	}
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func hasProc() bool { _, err := os.Stat("/proc/self"); return err == nil }

func TestAnAttemptFromHelloToItsEnd(t *testing.T) {
	a := work(t, agentSpec(t, `echo "$PWD"; echo oops >&2; env | sort; exit 3`, func(s *tallyman.RunnerSpec) {
		s.Attempt, s.LastFailure = 2, "attempt 1 ended with OOMKilled: too big"
		s.Notes = []string{"a note"}
		s.Env = append(s.Env, tallyman.EnvVar{Name: "GIVEN", Value: "yes"}, tallyman.EnvVar{Name: "SECRET", Value: secret, Mask: ptr(true)})
	}))
	out := a.ended(tallyman.AgentError)
	if *out.ExitCode != 3 || out.Signal != "" || !out.Started || out.StderrTail != "oops" || out.Message != "exit code 3: oops" {
		t.Errorf("the outcome is %+v", out)
	}
	var kinds []string
	for _, e := range events(t, a.lines) {
		if e.Type != tallyman.EventText && e.Type != tallyman.EventAgentStderr {
			kinds = append(kinds, string(e.Type))
		}
	}
	want := "runner.started notice setup.started setup.finished agent.started agent.exited runner.ended"
	if got := strings.Join(kinds, " "); got != want {
		t.Errorf("the events are %s, want %s", got, want)
	}
	if first := a.lines[0]; !strings.Contains(first, `"last_failure":"attempt 1 ended with OOMKilled: too big"`) {
		t.Errorf("the first event does not say why it is another attempt: %s", first)
	}
	said := strings.Join(a.texts(tallyman.EventText), "\n")
	for _, line := range []string{
		a.spec.WorkDir, "GIVEN=yes", "SECRET=[SECRET masked]", Mark + "=" + testAttempt, "TALLYMAN_RUN=test", "TALLYMAN_RUN_ID=" + testRun,
		"TALLYMAN_ATTEMPT_NO=2", "TALLYMAN_LAST_FAILURE=attempt 1 ended with OOMKilled: too big",
	} {
		if !strings.Contains(said+"\n", line+"\n") {
			t.Errorf("the agent did not see %q in:\n%s", line, said)
		}
	}
	if all := strings.Join(a.lines, "\n") + fmt.Sprint(out); strings.Contains(all, secret) {
		t.Error("the secret is in the events or in the outcome")
	}
	if a.facts[0].Kind != tallyman.FactStarted || a.facts[len(a.facts)-1].Kind != tallyman.FactFinal || a.facts[len(a.facts)-1].Cursor != uint64(len(a.lines)) {
		t.Errorf("the facts are %+v", a.facts)
	}
}

func TestTheWholeTreeIsKilled(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pids := t.TempDir()
	began := time.Now()
	a := work(t, agentSpec(t, "", func(s *tallyman.RunnerSpec) { s.Agent.Command = []string{self, "family", pids} }))
	a.ended(tallyman.Completed)
	if took := time.Since(began); took > eofGrace+10*time.Second {
		t.Errorf("it took %s: who holds the streams is not waited for", took)
	}
	if got := a.texts(tallyman.EventText); len(got) != 1 || got[0] != "the agent ends, its family stays" {
		t.Errorf("the agent said %q", got)
	}
	for _, name := range []string{"session", "daemon", "nameless"} {
		text, err := os.ReadFile(filepath.Join(pids, name))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(string(text))
		if err != nil {
			t.Fatal(err)
		}
		if alive(pid) {
			t.Errorf("%s, process %d, still lives", name, pid)
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

func TestKillAllFindsWhatCarriesTheMark(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, mark := range []string{"mine", "mine", "yours", "mine-2"} {
		cmd := exec.Command(self, "sleep")
		cmd.Env = []string{Mark + "=" + mark}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
		pids = append(pids, cmd.Process.Pid)
	}
	eventually(t, "they have begun", func() bool {
		for _, pid := range pids {
			if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err != nil || !bytes.Contains(env, []byte(Mark)) {
				return false
			}
		}
		return true
	})
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	killed, err := KillAll(ctx, "mine", 0)
	if err != nil || killed != 2 {
		t.Errorf("killed %d, %v", killed, err)
	}
	for _, pid := range pids[:2] { // without its memory it has no mark, and is no zombie yet
		eventually(t, "the killed have ended", func() bool { return !alive(pid) })
	}
	for i, pid := range pids[2:] {
		if !alive(pid) {
			t.Errorf("process %d was killed, too", i+2)
		}
	}
	if killed, err := KillAll(ctx, "mine", 0); err != nil || killed != 0 {
		t.Errorf("once more: %d, %v", killed, err)
	}
}

func TestAnAgentThatIgnoresTERMIsKilled(t *testing.T) {
	a := work(t, agentSpec(t, `trap '' TERM; echo up; while :; do sleep 0.1; done`, func(s *tallyman.RunnerSpec) {
		s.Agent.Limits.Deadline = seconds(0.3)
	}))
	out := a.ended(tallyman.DeadlineExceeded)
	if out.Signal != "SIGKILL" || out.ExitCode != nil || out.OOMKills != 0 {
		t.Errorf("the outcome is %+v", out)
	}
	if got := a.texts(tallyman.EventText); len(got) != 1 || got[0] != "up" {
		t.Errorf("it said %q", got)
	}
}

func TestAnAgentThatListensToTERMEndsByItself(t *testing.T) {
	a := work(t, agentSpec(t, `trap 'echo tidy; exit 5' TERM; echo up; while :; do sleep 0.05; done`, func(s *tallyman.RunnerSpec) {
		s.Grace = tallyman.Duration(20 * time.Second)
		s.Agent.Limits.Idle = seconds(0.3)
	}))
	out := a.ended(tallyman.IdleTimeout)
	if out.Signal != "" || *out.ExitCode != 5 {
		t.Errorf("the outcome is %+v", out)
	}
	if got := strings.Join(a.texts(tallyman.EventText), " "); got != "up tidy" {
		t.Errorf("it said %q", got)
	}
}

func TestAPromptThatNobodyReadsIsNoError(t *testing.T) {
	prompt := strings.Repeat("0123456789abcde\n", 20<<20/16)
	for name, script := range map[string]string{
		"closed early":       `exec 0<&-; sleep 0.2; echo done`,
		"never read":         `sleep 0.2; echo done`,
		"read in part":       `head -c 100 >/dev/null; echo done`,
		"read whole":         `test "$(wc -c)" -eq ` + strconv.Itoa(len(prompt)) + ` && echo done`,
		"held by a survivor": `sleep 600 & echo done`,
	} {
		t.Run(name, func(t *testing.T) {
			a := &attempt{channel: newChannel(t), dir: t.TempDir()}
			a.spec, a.prompt = agentSpec(t, script), prompt
			a.spec.PromptSize = int64(len(prompt))
			a.work(t.Context()).ended(tallyman.Completed)
			if got := a.texts(tallyman.EventText); len(got) != 1 || got[0] != "done" {
				t.Errorf("it said %q", got)
			}
		})
	}
}

func TestAStopOrderEndsTheAgent(t *testing.T) {
	a := &attempt{channel: newChannel(t), dir: t.TempDir()}
	a.spec = agentSpec(t, `echo up; sleep 600`)
	go func() {
		eventually(t, "the agent is up", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return strings.Contains(strings.Join(a.lines, ""), `"up"`)
		})
		a.say("event: stop\ndata: {\"reason\":\"Stopped\",\"message\":\"stopped by a test\"}\n\n")
	}()
	out := a.work(t.Context()).ended(tallyman.ReasonStopped)
	if out.Message != "stopped by a test" || out.Signal != "SIGTERM" {
		t.Errorf("the outcome is %+v", out)
	}
}

func TestARunnerThatIsToldToEndIsInterrupted(t *testing.T) {
	t.Run("an agent that dies of it", func(t *testing.T) { interruption(t, `echo up; sleep 600`) })
	t.Run("an agent that ends with 0", func(t *testing.T) {
		interruption(t, `trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done`)
	})
}

func interruption(t *testing.T, script string) {
	t.Helper()
	a := &attempt{channel: newChannel(t), dir: t.TempDir()}
	a.spec = agentSpec(t, script)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		eventually(t, "the agent is up", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return strings.Contains(strings.Join(a.lines, ""), `"up"`)
		})
		stop()
	}()
	out := a.work(ctx).ended("")
	if !out.Interrupted || !out.Started {
		t.Errorf("the outcome is %+v", out)
	}
}

func TestAServerThatIsAwayAtTheEndGetsTheRestLater(t *testing.T) {
	a := &attempt{channel: newChannel(t), dir: t.TempDir()}
	a.spec = agentSpec(t, `echo up; while ! [ -e go ]; do sleep 0.02; done; echo after`)
	go func() {
		eventually(t, "the agent is up", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return strings.Contains(strings.Join(a.lines, ""), `"up"`)
		})
		a.down()
		if err := os.WriteFile(filepath.Join(a.spec.WorkDir, "go"), nil, 0o600); err != nil {
			t.Error(err)
		}
		eventually(t, "the runner has nobody to tell its end", func() bool {
			_, _, rec, err := journal.Last(filepath.Join(a.dir, "journal"))
			return err == nil && bytes.Contains(rec, []byte(tallyman.EventRunnerEnded))
		})
		a.up()
	}()
	a.work(t.Context()).ended(tallyman.Completed)
	if got := strings.Join(a.texts(tallyman.EventText), " "); got != "up after" {
		t.Errorf("it said %q", got)
	}
}

func TestAServerThatStaysAwayLeavesTheJournalOnTheDisk(t *testing.T) {
	a := &attempt{channel: newChannel(t), dir: t.TempDir()}
	a.spec = agentSpec(t, `echo up; while ! [ -e go ]; do sleep 0.02; done`, func(s *tallyman.RunnerSpec) { s.DrainBudget = tallyman.Duration(200 * time.Millisecond) })
	go func() {
		eventually(t, "the agent is up", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return strings.Contains(strings.Join(a.lines, ""), `"up"`)
		})
		a.down()
		if err := os.WriteFile(filepath.Join(a.spec.WorkDir, "go"), nil, 0o600); err != nil {
			t.Error(err)
		}
	}()
	a.work(t.Context())
	if a.err == nil || !strings.Contains(a.err.Error(), "stays on disk") {
		t.Errorf("it ended with %v", a.err)
	}
	_, _, rec, err := journal.Last(filepath.Join(a.dir, "journal"))
	if err != nil || !bytes.Contains(rec, []byte(tallyman.EventRunnerEnded)) {
		t.Errorf("the journal ends with %s, %v", rec, err)
	}
}

func TestOrphansThatEndLeaveNoZombiesWhileTheAgentWorks(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	a := &attempt{channel: newChannel(t), dir: t.TempDir()}
	a.spec = agentSpec(t, `for i in 1 2 3 4 5 6 7 8 9; do (sleep 0.1 &); done; sleep 0.3; echo left; exec sleep 60`)
	done := make(chan struct{})
	go func() { a.work(ctx); close(done) }()
	eventually(t, "the agent has left its orphans", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return strings.Contains(strings.Join(a.lines, ""), `"text":"left"`)
	})
	eventually(t, "no zombie is left", func() bool {
		all, err := table()
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(all, func(p process) bool { return p.zombie && p.parent == os.Getpid() })
	})
	if out := a.final(); out != nil {
		t.Errorf("the agent has ended: %+v", out)
	}
	stop()
	<-done
}
