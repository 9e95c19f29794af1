// Package local runs attempts as processes of this machine. Each runner lives
// in a session of its own, so that it outlives the server; a lock on a file in
// the attempt's folder, inherited by the runner, proves that it lives.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/fault"
	"github.com/tallyman-dev/tallyman/internal/journal"
	"github.com/tallyman-dev/tallyman/internal/runner"
)

// Name is what attempts of this backend are said to run on.
const Name = "local"

const killPatience = 10 * time.Second

// Options are what a backend needs.
type Options struct {
	Dir    string   // where attempts have their folders; absolute
	Socket string   // the server's
	Runner []string // the runner's command line
	// Lookup finds a variable of the server's environment.
	Lookup func(name string) (string, bool)
	Home   string // the user's
	Peek   bool   // look for the end in journals of living runners: we do not wait for their word
	UID    int
	Log    *slog.Logger
}

// Backend runs attempts as processes.
type Backend struct {
	o       Options
	changed chan struct{}

	mu       sync.Mutex
	children map[tallyman.AttemptRef]int    // pids not yet waited for
	exited   map[tallyman.AttemptRef]string // how children of this process ended
}

// New makes a backend. It starts nothing.
func New(o Options) *Backend {
	return &Backend{o: o, changed: make(chan struct{}, 1), children: map[tallyman.AttemptRef]int{}, exited: map[tallyman.AttemptRef]string{}}
}

// Dir is the folder of an attempt.
func (b *Backend) Dir(ref tallyman.AttemptRef) string { return filepath.Join(b.o.Dir, ref.String()) }

// Changed gets a notice when a runner may have ended.
func (b *Backend) Changed() <-chan struct{} { return b.changed }

// Run waits for the runners that this process has started. One goroutine
// serves all of them.
func (b *Backend) Run(ctx context.Context) error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if b.reap() {
			select {
			case b.changed <- struct{}{}:
			default:
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
		case <-tick.C:
		}
	}
}

// reap waits for the children that have ended.
func (b *Backend) reap() (any bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ref, pid := range b.children {
		var status unix.WaitStatus
		got, err := unix.Wait4(pid, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) || err == nil && got == 0 {
			continue
		}
		how := "exit code " + strconv.Itoa(status.ExitStatus())
		if status.Signaled() {
			how = "signal " + status.Signal().String()
		}
		if err != nil {
			how = "it cannot be waited for: " + err.Error()
		}
		b.exited[ref] = how
		delete(b.children, ref)
		any = true
	}
	return any
}

// Start starts the runner of an attempt. The lock is taken before the fork
// and passes to the runner, so that at no moment it is free while a runner
// lives; a runner whose server dies before the bootstrap is written ends. An
// attempt whose runner lives, or has begun a journal, is not started again.
func (b *Backend) Start(ctx context.Context, w tallyman.Assignment) (object string, err error) {
	key, err := w.NewKey(ctx)
	if err != nil {
		return "", err
	}
	return "", b.start(w.Attempt.Ref(), key)
}

func (b *Backend) start(ref tallyman.AttemptRef, key string) error {
	dir := b.Dir(ref)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return backendError("make the folder of attempt %s: %w", ref, err)
	}
	lock, err := lockFile(filepath.Join(dir, "lock"))
	if errors.Is(err, errHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if _, _, _, err := journal.Last(filepath.Join(dir, "journal")); tallyman.CodeOf(err) != tallyman.NotFound {
		return nil // observing settles it
	}
	// Whoever held it before must not be taken for the runner that comes.
	if err := lock.Truncate(0); err != nil {
		return backendError("empty the lock of attempt %s: %w", ref, err)
	}
	fault.Point(fault.LocalLocked)
	out, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return backendError("open the log of attempt %s: %w", ref, err)
	}
	defer out.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return backendError("make a pipe: %w", err)
	}
	defer read.Close()
	defer write.Close()
	cmd := exec.Command(b.o.Runner[0], b.o.Runner[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	cmd.ExtraFiles = []*os.File{read, lock}
	cmd.Env = b.runnerEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	boot, err := json.Marshal(tallyman.Bootstrap{Attempt: ref.String(), Socket: b.o.Socket, Key: key, Dir: dir})
	if err != nil {
		return fmt.Errorf("encode the bootstrap: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return backendError("start the runner %s: %w", b.o.Runner[0], err)
	}
	fault.Point(fault.LocalForked)
	delete(b.exited, ref)
	b.children[ref] = cmd.Process.Pid
	if err := cmd.Process.Release(); err != nil {
		return fmt.Errorf("release the runner's handle: %w", err)
	}
	if _, err := write.Write(boot); err != nil {
		return fmt.Errorf("tell the runner of %s its attempt: %w", ref, err)
	}
	fault.Point(fault.LocalBootstrapped)
	return nil
}

func backendError(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &tallyman.Error{Code: tallyman.Internal, Reason: tallyman.BackendError, Message: err.Error(), Err: errors.Unwrap(err)}
}

// errHeld says that a lock is held by a living runner.
var errHeld = errors.New("held")

// lockFile opens and locks a file. errHeld when somebody else holds it.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, backendError("open the lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.Join(errHeld, f.Close())
	}
	if err != nil {
		return nil, errors.Join(backendError("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// Kill ends the runner of an attempt; Observe ends what it leaves. Where the
// runner is gone already, or the whole folder, Kill ends what is left.
func (b *Backend) Kill(ctx context.Context, a tallyman.Attempt) error {
	ref := a.Ref()
	path := filepath.Join(b.Dir(ref), "lock")
	lock, err := lockFile(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		killing, cancel := context.WithTimeout(ctx, killPatience)
		defer cancel()
		_, killErr := runner.KillAll(killing, ref.String(), 0)
		if err == nil {
			killErr = errors.Join(killErr, lock.Close())
		}
		return killErr
	}
	if !errors.Is(err, errHeld) {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read who holds %s: %w", path, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return fmt.Errorf("kill the runner of %s: %s does not name its process", ref, path)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill the runner of %s, process %d: %w", ref, pid, err)
	}
	return nil
}

// Remove deletes the folder of an attempt that is gone.
func (b *Backend) Remove(_ context.Context, ref tallyman.AttemptRef) error {
	lock, err := lockFile(filepath.Join(b.Dir(ref), "lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, errHeld) {
		return tallyman.Errorf(tallyman.Conflict, "attempt %s still has a runner", ref)
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	b.mu.Lock()
	delete(b.exited, ref)
	b.mu.Unlock()
	return os.RemoveAll(b.Dir(ref))
}

// RemoveShared deletes the workspace that the attempts of a run shared
// (workspace.keep). A run without one is fine.
func (b *Backend) RemoveShared(runID string) error {
	if !tallyman.IsRunID(runID) {
		return tallyman.Errorf(tallyman.Invalid, "%q is not the id of a run", runID)
	}
	return os.RemoveAll(b.shared(runID))
}

// SharedOf returns the run whose shared workspace a folder's name is.
func SharedOf(name string) (runID string, ok bool) {
	id, ok := strings.CutSuffix(name, sharedSuffix)
	return id, ok && tallyman.IsRunID(id)
}

const sharedSuffix = "-work"

func (b *Backend) shared(runID string) string { return filepath.Join(b.o.Dir, runID+sharedSuffix) }
