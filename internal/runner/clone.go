package runner

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// clone fetches URL#ref into the workspace. It does so beside it: what stands
// in the workspace's place is always whole, and is kept for later attempts.
func (r *run) clone(ctx context.Context, source string) error {
	url, ref, _ := strings.Cut(source, "#")
	if err := checkSource(url, ref); err != nil {
		return err
	}
	into := r.spec.WorkDir
	if _, err := os.Stat(filepath.Join(into, ".git")); err == nil {
		return nil
	}
	half := into + ".clone"
	if err := errors.Join(os.RemoveAll(half), os.MkdirAll(filepath.Dir(into), 0o700)); err != nil {
		return setupError(tallyman.SetupFailed, "make room for the clone: %w", err)
	}
	err := r.git(ctx, url, "clone", "--quiet", "--", url, half)
	if err == nil && ref != "" {
		err = r.git(ctx, url, "-C", half, "checkout", "--quiet", ref, "--")
	}
	if err != nil {
		_ = os.RemoveAll(half) // the next attempt does it again
		return err
	}
	// An empty folder may be in its place; anything else is not ours to take away.
	if err := os.Remove(into); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(setupError(tallyman.SetupFailed, "put the clone in its place: %w", err), os.RemoveAll(half))
	}
	if err := os.Rename(half, into); err != nil {
		return setupError(tallyman.SetupFailed, "put the clone in its place: %w", err)
	}
	return nil
}

// checkSource refuses what git would take for an option, and a credential in
// a URL: it would be in messages, and in the workspace's settings.
func checkSource(url, ref string) error {
	if strings.HasPrefix(ref, "-") {
		return setupError(tallyman.InvalidSpec, "workspace ref %q: a ref does not begin with a dash", ref)
	}
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return nil // a path, or host:path
	}
	host, path, _ := strings.Cut(rest, "/")
	at := strings.LastIndexByte(host, '@')
	if at < 0 || strings.HasPrefix(scheme, "ssh") && !strings.Contains(host[:at], ":") {
		return nil
	}
	return setupError(tallyman.InvalidSpec, "workspace git:%s://%s/%s: the URL holds a user or a password; leave it out and give git a credential helper by the agent's environment",
		scheme, host[at+1:], path)
}

// git runs git, and its children, until ctx ends.
func (r *run) git(ctx context.Context, url string, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Env = append(r.environment(nil), "GIT_TERMINAL_PROMPT=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second // for those who hold its output
	out, err := cmd.CombinedOutput()
	if len(out) > 0 {
		r.rec.event(tallyman.Event{Type: tallyman.EventSetupOutput, Name: "git", Text: strings.TrimSpace(string(out)), Failed: err != nil})
	}
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // it ended well
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return setupError(tallyman.SetupFailed, "workspace git:%s: git is not installed where the run is worked", url)
	}
	return setupError(tallyman.SetupFailed, "git %s of %s: %w: %s", verb(args), url, err, lastLine(string(out)))
}

// verb is what git was asked to do.
func verb(args []string) string {
	if args[0] == "-C" {
		return args[2]
	}
	return args[0]
}

func lastLine(text string) string {
	lines := lastLines(text, 1)
	return lines[len(lines)-1]
}
