package local_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/journal"
	"github.com/tallyman-dev/tallyman/internal/local"
	"github.com/tallyman-dev/tallyman/internal/runner"
)

// TestMain is the runner, too: a small one that does what its last argument
// says.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "runner" {
		if err := smallRunner(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(7)
		}
		return
	}
	os.Exit(m.Run())
}

// smallRunner does with bootstrap, lock and journal what the real one does.
func smallRunner(mode string) error {
	var boot tallyman.Bootstrap
	if err := json.NewDecoder(os.NewFile(runner.BootstrapFD, "bootstrap")).Decode(&boot); err != nil {
		return err
	}
	switch mode {
	case "dies":
		return errors.New("no luck today")
	case "half":
		// It dies as its journal is begun.
		return errors.Join(os.Mkdir(filepath.Join(boot.Dir, "journal"), 0o700), errors.New("gone"))
	case "nameless":
		return until(boot.Dir, "finish")
	}
	syscall.CloseOnExec(runner.LockFD)
	if _, err := syscall.Pwrite(runner.LockFD, []byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return err
	}
	ref, err := tallyman.ParseAttemptRef(boot.Attempt)
	if err != nil {
		return err
	}
	w, err := journal.Create(filepath.Join(boot.Dir, "journal"), journal.Header{Journal: "J-" + boot.Key, Run: ref.RunID, Attempt: ref.Number}, journal.Options{})
	if err != nil {
		return err
	}
	say := func(e tallyman.Event) error {
		e.Time = time.Now()
		_, err := w.Append(e.AppendJSON(nil))
		return err
	}
	if err := say(tallyman.Event{Type: tallyman.EventRunnerStarted}); err != nil {
		return err
	}
	if mode == "leaves a child" {
		child := exec.Command("sleep", "600")
		child.Env = append(os.Environ(), runner.Mark+"="+boot.Attempt)
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(boot.Dir, "child"), []byte(strconv.Itoa(child.Process.Pid)), 0o600); err != nil {
			return err
		}
	}
	if err := until(boot.Dir, "finish"); err != nil {
		return err
	}
	final := tallyman.Outcome{Reason: tallyman.Completed, Message: "fine", Started: true}
	data, err := json.Marshal(final)
	if err != nil {
		return err
	}
	return errors.Join(say(tallyman.Event{Type: tallyman.EventRunnerEnded, Data: data}), w.Close())
}

// until waits for a file, a minute at most.
func until(dir, name string) error {
	for range 6000 {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("nobody said " + name)
}

// runID is this test process's own: an attempt's processes are found, and
// killed, by their attempt's name, whoever started them.
var runID = fmt.Sprintf("01JZ%022d", os.Getpid())

var ref = tallyman.AttemptRef{RunID: runID, Number: 1}

// backend is a backend over a folder; several of them are several servers.
type backend struct {
	*local.Backend
	t *testing.T
}

func newBackend(t *testing.T, dir, mode string) backend {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := backend{t: t, Backend: local.New(local.Options{
		Dir: dir, Socket: "/nowhere.sock", Runner: []string{self, "runner", mode},
		Lookup: os.LookupEnv, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})}
	t.Cleanup(func() {
		b.finish()
		_, _ = runner.KillAll(context.Background(), ref.String(), 0) // whatever a failed test left
	})
	return b
}

var (
	attempt    = tallyman.Attempt{RunID: runID, Number: 1}
	assignment = tallyman.Assignment{Attempt: attempt, NewKey: func(context.Context) (string, error) { return "key", nil }}
)

func (b backend) start() {
	b.t.Helper()
	if _, err := b.Start(b.t.Context(), assignment); err != nil {
		b.t.Fatalf("start: %v", err)
	}
}

func (b backend) observe() tallyman.Observation {
	b.t.Helper()
	s, err := b.Observe(b.t.Context(), attempt)
	if err != nil {
		b.t.Fatalf("observe: %v", err)
	}
	return s
}

// finish tells the runner to end; it is no error when there is none.
func (b backend) finish() { _ = os.WriteFile(filepath.Join(b.Dir(ref), "finish"), nil, 0o600) }

// eventually waits for what other processes do.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

func (b backend) gone() (s tallyman.Observation) {
	b.t.Helper()
	eventually(b.t, "the attempt is gone", func() bool { s = b.observe(); return s.Gone })
	return s
}

func (b backend) named() {
	b.t.Helper()
	eventually(b.t, "the runner has written its journal", func() bool {
		_, last, _, err := journal.Last(filepath.Join(b.Dir(ref), "journal"))
		return err == nil && last > 0
	})
}

func TestAnAttemptFromStartToRemove(t *testing.T) {
	b := newBackend(t, t.TempDir(), "works")
	if s := b.observe(); s != (tallyman.Observation{}) {
		t.Errorf("before the start: %+v", s)
	}
	if err := b.Remove(t.Context(), ref); err != nil {
		t.Errorf("remove what never was: %v", err)
	}
	b.start()
	if s := b.observe(); !s.Running || s.Gone {
		t.Errorf("after the start: %+v", s)
	}
	b.named()
	b.start() // to start it again changes nothing
	if err := b.Remove(t.Context(), ref); tallyman.CodeOf(err) != tallyman.Conflict {
		t.Errorf("remove while it runs: %v", err)
	}
	b.finish()
	s := b.gone()
	if s.Final == nil || s.Final.Reason != tallyman.Completed || s.Final.Message != "fine" || s.FinalAt.IsZero() || s.StartedAt != nil ||
		s.Last != 2 || s.FinalCursor != 2 || s.Journal != "J-key" || s.JournalErr != "" || s.Process != "exit code 0" {
		t.Errorf("at the end: %+v", s)
	}
	b.start() // nor does it after the end
	if again := b.observe(); !again.Gone || again.Last != 2 {
		t.Errorf("a start after the end: %+v", again)
	}
	if err := b.Kill(t.Context(), attempt); err != nil {
		t.Errorf("kill what is gone: %v", err)
	}
	for range 2 {
		if err := b.Remove(t.Context(), ref); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	if _, err := os.Stat(b.Dir(ref)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func TestTheLockIsNeverFreeWhileTheRunnerLives(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		b, other := newBackend(t, dir, "works"), newBackend(t, dir, "works")
		stop := make(chan struct{})
		watched := make(chan string, 1)
		var started atomic.Bool
		go func() {
			seen := false
			for n := 0; ; n++ {
				must := seen || started.Load()
				s, err := other.Observe(context.Background(), attempt)
				seen = seen || s.Running
				if must && (err != nil || !s.Running) {
					watched <- fmt.Sprintf("look %d: %+v, %v", n, s, err)
					return
				}
				select {
				case <-stop:
					watched <- ""
					return
				default:
				}
			}
		}()
		// The other's looks may hold the lock for a moment: that is no start.
		eventually(t, "it is started", func() bool {
			b.start()
			_, err := os.Stat(filepath.Join(b.Dir(ref), "log"))
			return err == nil
		})
		started.Store(true)
		b.named()
		close(stop)
		if wrong := <-watched; wrong != "" {
			t.Fatalf("another server saw it free: %s", wrong)
		}
		b.finish()
		b.gone()
	}
}

func TestARunnerThatDiedBeforeItsJournalMayBeStartedAgain(t *testing.T) {
	for _, mode := range []string{"dies", "half"} {
		t.Run(mode, func(t *testing.T) {
			dir := t.TempDir()
			b := newBackend(t, dir, mode)
			b.start()
			s := b.gone()
			if s.StartedAt != nil || s.Last != 0 || !strings.HasPrefix(s.Process, "exit code 7: ") {
				t.Errorf("the server that started it sees %+v", s)
			}
			// A server that comes later knows nothing of it: nothing was done,
			// so it is started once more.
			later := newBackend(t, dir, "works")
			if s := later.observe(); s != (tallyman.Observation{}) {
				t.Errorf("a later server sees %+v", s)
			}
			later.start()
			if s := later.observe(); !s.Running {
				t.Errorf("started again: %+v", s)
			}
			later.finish()
			if s := later.gone(); s.Final == nil {
				t.Errorf("at its end: %+v", s)
			}
		})
	}
}

func TestWhatADeadRunnerLeftIsKilledBeforeItIsCalledGone(t *testing.T) {
	dir := t.TempDir()
	b := newBackend(t, dir, "leaves a child")
	b.start()
	eventually(t, "there is a child", func() bool { _, err := os.Stat(filepath.Join(b.Dir(ref), "child")); return err == nil })
	text, err := os.ReadFile(filepath.Join(b.Dir(ref), "child"))
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Kill(t.Context(), attempt); err != nil {
		t.Fatal(err)
	}
	s := b.gone()
	if s.Process != "signal killed" || s.Final != nil || s.Last != 1 || s.Journal != "J-key" {
		t.Errorf("it is gone as %+v", s)
	}
	eventually(t, "the child is gone", func() bool { return !lives(child) })
}

// lives reports whether a process is there and no zombie.
func lives(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestKillNeverTakesAnOlderPidForTheRunner(t *testing.T) {
	bystander := exec.Command("sleep", "600")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = bystander.Process.Kill(), bystander.Wait() }()
	dir := t.TempDir()
	b := newBackend(t, dir, "nameless")
	if err := os.MkdirAll(b.Dir(ref), 0o700); err != nil {
		t.Fatal(err)
	}
	// An earlier start left its pid, which the system has given to another.
	old := fmt.Sprintf("%d\n", bystander.Process.Pid)
	if err := os.WriteFile(filepath.Join(b.Dir(ref), "lock"), []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	b.start()
	if err := b.Kill(t.Context(), attempt); err == nil || !strings.Contains(err.Error(), "does not name its process") {
		t.Errorf("kill a runner that has not said who it is: %v", err)
	}
	if !lives(bystander.Process.Pid) {
		t.Error("a process that has nothing to do with it was killed")
	}
}

func TestADamagedJournalIsToldAndItsGoodPartRead(t *testing.T) {
	dir := t.TempDir()
	b := newBackend(t, dir, "works")
	b.start()
	b.named()
	b.finish()
	b.gone()
	segments, err := filepath.Glob(filepath.Join(b.Dir(ref), "journal", "*.seg"))
	if err != nil || len(segments) != 1 {
		t.Fatal(segments, err)
	}
	whole, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	// The last byte of the first record; a later commit proves that it was good.
	i := strings.Index(string(whole), "runner.started")
	whole[i] ^= 1
	if err := os.WriteFile(segments[0], whole, 0o600); err != nil {
		t.Fatal(err)
	}
	s := newBackend(t, dir, "works").observe()
	if !s.Gone || s.Final != nil || s.Last != 0 || !strings.Contains(s.JournalErr, filepath.Base(segments[0])) {
		t.Errorf("got %+v", s)
	}
	if err := b.Leftover(t.Context(), ref, 0, func(uint64, []byte) error { t.Error("there is no good part"); return nil }); err != nil {
		t.Error(err)
	}
}

func TestLeftoverGoesOnAfterACursor(t *testing.T) {
	b := newBackend(t, t.TempDir(), "works")
	b.start()
	b.named()
	b.finish()
	b.gone()
	for after, want := range [][]uint64{{1, 2}, {2}, nil} {
		var got []uint64
		err := b.Leftover(t.Context(), ref, uint64(after), func(c uint64, line []byte) error {
			if !json.Valid(line) {
				t.Errorf("event %d is %q", c, line)
			}
			got = append(got, c)
			return nil
		})
		if err != nil || !cmp.Equal(want, got) {
			t.Errorf("after %d: %v, %v", after, got, err)
		}
	}
	stop := errors.New("enough")
	if err := b.Leftover(t.Context(), ref, 0, func(uint64, []byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the caller's error comes back as %v", err)
	}
}

func TestWhoRunsTheBackendIsToldOfEnds(t *testing.T) {
	b := newBackend(t, t.TempDir(), "works")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	b.start()
	b.finish()
	select {
	case <-b.Changed():
	case <-time.After(20 * time.Second):
		t.Error("no notice of the end")
	}
	if s := b.gone(); s.Process != "exit code 0" {
		t.Errorf("it ended as %q", s.Process)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
}

func TestARunnerThatCannotBeStartedIsABackendError(t *testing.T) {
	b := local.New(local.Options{Dir: t.TempDir(), Runner: []string{"/nowhere/runner"}, Lookup: os.LookupEnv})
	_, err := b.Start(t.Context(), assignment)
	var e *tallyman.Error
	if !errors.As(err, &e) || e.Reason != tallyman.BackendError || !strings.Contains(e.Message, "/nowhere/runner") {
		t.Errorf("got %v", err)
	}
	if s, err := b.Observe(t.Context(), attempt); err != nil || s != (tallyman.Observation{}) {
		t.Errorf("it is seen as %+v, %v", s, err)
	}
}
