package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/harness"
)

// agent is a running harness with its streams.
type agent struct {
	cmd     *exec.Cmd
	attempt string

	exited chan struct{} // closed when the process has been waited for
	state  *os.ProcessState
	eof    chan struct{} // closed when both streams have ended
	pipes  [2]*os.File

	mu   sync.Mutex
	sent syscall.Signal // the last signal that we sent
}

// startAgent starts the harness, its prompt being written and its streams
// being recorded.
func startAgent(inv harness.Invocation, dir string, env []string, attempt string, prompt io.Reader) (*agent, error) {
	a := &agent{attempt: attempt, exited: make(chan struct{}), eof: make(chan struct{})}
	a.cmd = exec.Command(inv.Argv[0], inv.Argv[1:]...)
	a.cmd.Dir, a.cmd.Env = dir, env
	a.cmd.Path, a.cmd.Err = LookPath(inv.Argv[0], dir, env)
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a pipe: %w", err), outR.Close(), outW.Close())
	}
	widen(outR)
	a.cmd.Stdout, a.cmd.Stderr = outW, errW
	a.pipes = [2]*os.File{outR, errR}
	var stdin *os.File // our end
	if prompt != nil {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("make a pipe: %w", err), closeAll(outR, outW, errR, errW))
		}
		a.cmd.Stdin, stdin = r, w
		defer r.Close()
	}
	err = a.cmd.Start()
	// While the process lives its start is no error: an end of a pipe that did
	// not close delays the end of a stream, and finish has patience for that.
	_ = closeAll(outW, errW)
	if err != nil {
		return nil, errors.Join(err, closeAll(outR, errR, stdin))
	}
	if stdin != nil {
		go feed(stdin, prompt)
	}
	return a, nil
}

// follow begins to record the streams and to wait for the end.
func (a *agent) follow(rec *recorder) {
	go func() {
		_ = a.cmd.Wait() // the state tells it all; our own files need no copying
		a.state = a.cmd.ProcessState
		close(a.exited)
	}()
	var both sync.WaitGroup
	for i, record := range []func(chunk){rec.stdout, rec.stderrLines} {
		both.Go(func() {
			defer a.pipes[i].Close()
			lines := newLineReader(a.pipes[i])
			for {
				c, err := lines.next()
				if len(c.lines) > 0 {
					record(c)
				}
				if err != nil {
					return // EOF, or the deadline that end sets
				}
			}
		})
	}
	go func() { both.Wait(); close(a.eof) }()
	go a.reapOrphans()
}

// reapPeriod is how often the process table is read for orphans, at most.
const reapPeriod = time.Second

// reapOrphans waits for those whom the agent's processes have left, and who
// are children of this process by that, until the agent itself ends. As
// zombies they would take a pid each for as long as it works.
func (a *agent) reapOrphans() {
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	defer signal.Stop(died)
	for {
		select {
		case <-a.exited:
			return
		case <-died:
		}
		if all, err := table(); err == nil { // else the next one is as good, or the end
			reapZombies(all, a.cmd.Process.Pid)
		}
		select {
		case <-a.exited:
			return
		case <-time.After(reapPeriod):
		}
	}
}

// feed writes the prompt. A harness that closes its standard input early, or
// never reads it, is no error.
func feed(stdin *os.File, prompt io.Reader) {
	_, _ = io.Copy(stdin, prompt)
	_ = stdin.Close()
}

// signal sends a signal to the harness, or to its whole process group.
func (a *agent) signal(sig syscall.Signal, group bool) {
	a.mu.Lock()
	a.sent = sig
	a.mu.Unlock()
	pid := a.cmd.Process.Pid
	if group {
		pid = -pid
	}
	_ = syscall.Kill(pid, sig) // gone already is as good
}

// stop ends the harness in its own stop order, then by TERM, then by KILL.
func (a *agent) stop(order []harness.StopStep, grace time.Duration) {
	if n := len(order); n == 0 || order[n-1].Signal != syscall.SIGTERM {
		order = append(order, harness.StopStep{Signal: syscall.SIGTERM, Wait: grace})
	}
	for _, step := range order {
		if step.Wait == 0 || step.Wait > grace {
			step.Wait = grace
		}
		a.signal(step.Signal, step.Group)
		select {
		case <-a.exited:
			return
		case <-time.After(step.Wait):
		}
	}
	a.signal(syscall.SIGKILL, true)
}

// finish kills what is left of the tree, reads the streams to their end and
// returns how the harness ended. It waits eofGrace for streams that somebody
// still holds before it kills.
func (a *agent) finish(ctx context.Context, eofGrace time.Duration) (tallyman.Exit, int, error) {
	<-a.exited
	select {
	case <-a.eof:
	case <-time.After(eofGrace):
	}
	killed, err := killTree(ctx, a.attempt, os.Getpid(), a.cmd.Process.Pid)
	select {
	case <-a.eof:
	case <-time.After(2 * time.Second):
		for _, p := range a.pipes {
			_ = p.SetReadDeadline(time.Now()) // a pipe has deadlines; closed already is as good
		}
		<-a.eof
	}
	return a.exit(), killed, err
}

func (a *agent) exit() tallyman.Exit {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := tallyman.Exit{Code: a.state.ExitCode()}
	if s, ok := a.state.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		e.Signal = signalName(s.Signal())
	}
	if a.sent != 0 {
		e.Sent = signalName(a.sent)
	}
	return e
}

var signalNames = map[syscall.Signal]string{
	syscall.SIGHUP: "SIGHUP", syscall.SIGINT: "SIGINT", syscall.SIGQUIT: "SIGQUIT", syscall.SIGILL: "SIGILL",
	syscall.SIGABRT: "SIGABRT", syscall.SIGBUS: "SIGBUS", syscall.SIGFPE: "SIGFPE", syscall.SIGKILL: "SIGKILL",
	syscall.SIGSEGV: "SIGSEGV", syscall.SIGPIPE: "SIGPIPE", syscall.SIGALRM: "SIGALRM", syscall.SIGTERM: "SIGTERM",
	syscall.SIGUSR1: "SIGUSR1", syscall.SIGUSR2: "SIGUSR2", syscall.SIGTRAP: "SIGTRAP", syscall.SIGXCPU: "SIGXCPU",
}

func signalName(s syscall.Signal) string {
	if name, ok := signalNames[s]; ok {
		return name
	}
	return "signal " + strconv.Itoa(int(s))
}

func closeAll(files ...*os.File) error {
	var errs []error
	for _, f := range files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
