package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/harness"
)

// setupError is why a run could not be set up.
func setupError(reason tallyman.Reason, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &tallyman.Error{Code: tallyman.Invalid, Reason: reason, Message: err.Error(), Err: errors.Unwrap(err)}
}

// launch is everything that is ready before the harness starts.
type launch struct {
	inv    harness.Invocation
	env    []string
	prompt io.ReadCloser // nil: nothing to say on standard input
}

// setup prepares folders, workspace, prompt and the adapter's files.
func (r *run) setup(ctx context.Context) (launch, error) {
	var l launch
	spec := r.spec
	for _, dir := range []string{r.path("tmp"), r.path("state"), spec.Home} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return l, setupError(tallyman.SetupFailed, "make the folder %s: %w", dir, err)
		}
	}
	if err := r.workspace(ctx); err != nil {
		return l, err
	}
	if err := r.promptToFile(ctx); err != nil {
		return l, err
	}
	inv, err := r.adapter.Invoke(spec, r.path("state"))
	if err != nil {
		return l, err
	}
	for path, content := range inv.Files {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return l, setupError(tallyman.SetupFailed, "make the folder of %s: %w", path, err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return l, setupError(tallyman.SetupFailed, "write %s: %w", path, err)
		}
	}
	l.inv = inv
	if r.inherited != nil {
		roots, err := r.roots()
		if err != nil {
			return l, err
		}
		r.inherited = append(r.inherited, roots...)
	}
	l.env = r.environment(inv.Env)
	l.prompt, err = r.stdin(inv)
	return l, err
}

// prepare does the set-up; an order to stop ends it.
func (r *run) prepare(ctx context.Context) (launch, *order, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done, stopped := make(chan struct{}), make(chan *order, 1)
	go func() {
		defer close(stopped)
		select {
		case o := <-r.up.orders:
			stopped <- &order{o.Reason, o.Message}
			cancel()
		case <-done:
		}
	}()
	l, err := r.setup(ctx)
	close(done)
	return l, <-stopped, err
}

// unprepared is the outcome of a set-up that failed or was stopped. What it
// has started is killed.
func (r *run) unprepared(ctx context.Context, stopped *order, err error) tallyman.Outcome {
	killing, cancel := context.WithTimeout(context.WithoutCancel(ctx), killPatience)
	defer cancel()
	if _, kerr := killTree(killing, r.boot.Attempt, os.Getpid(), 0); kerr != nil {
		r.log.Error("killing what the set-up has started", "err", kerr)
	}
	text := "stopped"
	if err != nil {
		text = err.Error()
	}
	r.rec.event(tallyman.Event{Type: tallyman.EventSetupFinished, Failed: true, Text: text})
	switch {
	case stopped != nil:
		return tallyman.Outcome{Reason: stopped.reason, Message: stopped.message}
	case ctx.Err() != nil:
		return tallyman.Outcome{Interrupted: true, Message: "the runner was told to end during the set-up"}
	default:
		return tallyman.Outcome{Reason: reasonOf(err), Message: err.Error()}
	}
}

// environment is the harness's: what the spec declares, what the adapter
// adds, and the mark.
func (r *run) environment(more []tallyman.EnvVar) []string {
	env := append([]string(nil), r.inherited...)
	for _, v := range append(append([]tallyman.EnvVar(nil), r.spec.Env...), more...) {
		env = append(env, v.Name+"="+v.Value)
	}
	env = append(env,
		Mark+"="+r.boot.Attempt,
		"TALLYMAN_RUN="+r.spec.RunName,
		"TALLYMAN_RUN_ID="+r.spec.RunID,
		"TALLYMAN_ATTEMPT_NO="+strconv.Itoa(r.spec.Attempt),
	)
	if r.spec.LastFailure != "" {
		env = append(env, "TALLYMAN_LAST_FAILURE="+strings.ReplaceAll(r.spec.LastFailure, "\x00", ""))
	}
	return env
}

// workspace makes the folder that the harness works in.
func (r *run) workspace(ctx context.Context) error {
	path := r.spec.Agent.Workspace.Path
	if source, ok := strings.CutPrefix(path, "git:"); ok {
		return r.clone(ctx, source)
	}
	if path == "" || path == "fresh" {
		if err := os.MkdirAll(r.spec.WorkDir, 0o700); err != nil {
			return setupError(tallyman.SetupFailed, "make the workspace %s: %w", r.spec.WorkDir, err)
		}
		return nil
	}
	info, err := os.Stat(r.spec.WorkDir)
	if err != nil {
		return setupError(tallyman.ConfigMissing, "workspace %s: %w", r.spec.WorkDir, err)
	}
	if !info.IsDir() {
		return setupError(tallyman.InvalidSpec, "workspace %s is a file; name a folder", r.spec.WorkDir)
	}
	return nil
}

// stdin is what the harness reads.
func (r *run) stdin(inv harness.Invocation) (io.ReadCloser, error) {
	switch {
	case !inv.PromptOnStdin || r.spec.PromptSize == 0:
		return nil, nil
	case r.spec.Agent.PromptFile:
		return io.NopCloser(strings.NewReader(fmt.Sprintf(promptPointer, r.promptPath))), nil
	case r.promptPath != "":
		f, err := os.Open(r.promptPath)
		if err != nil {
			return nil, setupError(tallyman.SetupFailed, "read the prompt: %w", err)
		}
		return f, nil
	default:
		return io.NopCloser(strings.NewReader(r.spec.Prompt)), nil
	}
}

// reasonOf is the reason that a set-up error carries, SetupFailed without one.
func reasonOf(err error) tallyman.Reason {
	var e *tallyman.Error
	if errors.As(err, &e) && e.Reason.Valid() {
		return e.Reason
	}
	if errors.Is(err, fs.ErrNotExist) {
		return tallyman.ConfigMissing
	}
	return tallyman.SetupFailed
}
