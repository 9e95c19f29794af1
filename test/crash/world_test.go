//go:build faults

package crash_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman/client"
)

// world is one data folder with the server that serves it now, and what is
// remembered outside of both.
type world struct {
	t      *testing.T
	dir    string
	client *client.Client
	calls  sync.RWMutex // is read-locked by calls that change something
	wrong  func(format string, args ...any)
	faults int // how many things were wrong

	mu     sync.Mutex
	server *exec.Cmd
	exited chan struct{} // closed when server has been waited for
	killed map[int]bool  // runners that the test has killed
	jobs   []*job
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "tc-") // short: the socket is below it
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir, killed: map[int]bool{}}
	w.wrong = func(format string, args ...any) {
		t.Helper()
		w.faults++
		t.Errorf(format, args...)
	}
	w.client = client.NewSocket(w.path("data", "run", "tallyman.sock"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]string{
		"worker": "harness: exec\n  command: [" + self + "]\n",
		"player": "harness: script\n",
	} {
		text := "apiVersion: tallyman.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: " + name + "\nspec:\n  " + spec + "  retry: {backoff: 50ms}\n"
		if err := os.MkdirAll(w.path("agents"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(w.path("agents", name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(w.clear)
	return w
}

func (w *world) path(parts ...string) string {
	return filepath.Join(append([]string{w.dir}, parts...)...)
}

// clear ends whatever is left, and keeps the folder of a test that failed.
func (w *world) clear() {
	w.client.Close()
	w.kill(syscall.SIGKILL)
	for pid := range w.processes() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if !w.t.Failed() {
		_ = os.RemoveAll(w.dir)
		return
	}
	w.t.Logf("kept: %s", w.dir)
	if b, err := os.ReadFile(w.path("server.log")); err == nil {
		w.t.Logf("the servers wrote, at last:\n%s", b[max(0, len(b)-4<<10):])
	}
}

// command is one call of tallyman on this world's data.
func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(bin, "tallyman"), append([]string{"--data", w.path("data"), "--agents", w.path("agents")}, args...)...)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "HOME="+w.dir, "TALLYMAN_FAULT_LOG="+w.path("faults.log"))
	return cmd
}

// start starts a server with a fault, "" for none, and waits until it answers
// or has been killed by its fault.
func (w *world) start(fault string, args ...string) {
	w.t.Helper()
	w.launch(fault, args...)
	w.answers()
}

// launch starts a server.
func (w *world) launch(fault string, args ...string) {
	w.t.Helper()
	log, err := os.OpenFile(w.path("server.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	fmt.Fprintf(log, "-- start, fault %q\n", fault)
	cmd := w.command(append([]string{"up", "--listen", "127.0.0.1:0", "--max-running", "5"}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(cmd.Env, "TALLYMAN_FAULT="+fault)
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ends is the test's doing
		close(exited)
	}()
	w.mu.Lock()
	w.server, w.exited = cmd, exited
	w.mu.Unlock()
}

// answers waits until the server answers or has been killed.
func (w *world) answers() {
	w.t.Helper()
	w.mu.Lock()
	cmd, exited := w.server, w.exited
	w.mu.Unlock()
	for until := time.Now().Add(15 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		info, err := w.client.Info(ctx)
		cancel()
		if err == nil && info.PID == cmd.Process.Pid {
			return
		}
		select {
		case <-exited:
			if !cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
				w.t.Fatalf("the server did not start: %v; there are %v", cmd.ProcessState, w.processes())
			}
			return
		default:
		}
	}
	w.t.Fatal("the server does not answer")
}

// kill ends the server and waits for its end.
func (w *world) kill(sig syscall.Signal) {
	w.mu.Lock()
	server, exited := w.server, w.exited
	w.mu.Unlock()
	if server == nil {
		return
	}
	_ = server.Process.Signal(sig) // gone already is as good
	select {
	case <-exited:
	case <-time.After(10 * time.Second):
		w.t.Errorf("the server did not end after %s", sig)
		_ = server.Process.Kill()
		<-exited
	}
}

// gone reports whether the server has ended.
func (w *world) gone() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.exited
}

// processes returns the command lines of everything that belongs to this
// world, by pid. Zombies are not among them.
func (w *world) processes() map[int]string {
	found := map[int]string{}
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range entries {
		pid, err := strconv.Atoi(filepath.Base(p))
		if err != nil || pid == os.Getpid() {
			continue
		}
		args, _ := os.ReadFile(p + "/cmdline") // a process that is gone has nothing
		env, _ := os.ReadFile(p + "/environ")
		cwd, _ := os.Readlink(p + "/cwd")
		if bytes.Contains(args, []byte(w.dir)) || bytes.Contains(env, []byte(w.dir)) || strings.HasPrefix(cwd, w.dir) {
			found[pid] = strings.TrimSpace(string(bytes.ReplaceAll(args, []byte{0}, []byte{' '})))
		}
	}
	return found
}

// runners returns the pids of the runners that live, in order: as they wrote
// them, since what a runner has just forked looks like one too.
func (w *world) runners() []int {
	var pids []int
	living := w.processes()
	locks, _ := filepath.Glob(w.path("data", "attempts", "*", "lock"))
	for _, path := range locks {
		if pid := lockedBy(path); strings.HasSuffix(living[pid], "tallyman-runner runner") {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// lockedBy is the pid that a runner wrote into its lock, 0 without one.
func lockedBy(path string) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

// killRunner kills the runner that pick chooses, if one lives.
func (w *world) killRunner(pick int) {
	pids := w.runners()
	if len(pids) == 0 {
		return
	}
	pid := pids[pick%len(pids)]
	w.mu.Lock()
	w.killed[pid] = true // before: it may be seen dead at once
	w.mu.Unlock()
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// fired returns the processes that a point has killed, by the point's name.
func (w *world) fired() map[string][]int {
	b, err := os.ReadFile(w.path("faults.log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Error(err)
	}
	all := map[string][]int{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[2] == "killed" {
			pid, err := strconv.Atoi(f[0])
			if err != nil {
				w.t.Errorf("faults.log: %q", line)
			}
			all[f[1]] = append(all[f[1]], pid)
		}
	}
	return all
}

// wasKilled reports whether a runner did not end by itself.
func (w *world) wasKilled(pid int) bool {
	for _, pids := range w.fired() {
		if slices.Contains(pids, pid) {
			return true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.killed[pid]
}

// eventually waits for something that happens in other processes.
func (w *world) eventually(what string, patience time.Duration, ok func() bool) bool {
	w.t.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return true
		}
	}
	w.t.Errorf("never: %s", what)
	return false
}
