package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/config"
	"github.com/tallyman-dev/tallyman/internal/local"
)

// claim finds out whether the data folder's runs are this server's to look
// after. Where they are another backend's, who only looks is told whose, and
// everybody else is refused.
func (s *server) claim(ctx context.Context, o serverOptions) (foreign string, err error) {
	was, err := backendOf(s.cfg.Data)
	switch {
	case err != nil || was == s.cfg.Backend:
		return "", err
	case o.role == looks:
		return was, nil
	case was != "" && !o.moves:
		return "", o.program.foreign(s.cfg.Data, was)
	case was != "":
		idle, err := s.idle(ctx)
		if err != nil {
			return "", err
		}
		if !idle {
			return "", tallyman.Errorf(tallyman.Unavailable, "the data folder %s was served with --backend %s, and runs there have not ended: serve it so until they have, or name another folder with --data", s.cfg.Data, was)
		}
	}
	return "", nil
}

// record makes the data folder that of this server's backend, once that is
// there.
func (s *server) record(o serverOptions) error {
	was, err := backendOf(s.cfg.Data)
	if err != nil || o.role == looks || was == s.cfg.Backend {
		return err
	}
	if err := os.WriteFile(backendFile(s.cfg.Data), []byte(s.cfg.Backend+"\n"), 0o600); err != nil {
		return fmt.Errorf("record the backend of the data folder: %w", err)
	}
	return nil
}

// backendFile holds the name of the backend that a data folder's runs execute
// on.
func backendFile(data string) string { return filepath.Join(data, "backend") }

// backendOf is that name, "" while no server has looked after anything there.
func backendOf(data string) (string, error) {
	b, err := os.ReadFile(backendFile(data))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read the backend of the data folder: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// runsHere reports whether what is submitted to the data folder runs on this
// machine.
func runsHere(cfg config.Config) bool {
	was, err := backendOf(cfg.Data)
	return err == nil && cmp.Or(was, cfg.Backend) == local.Name
}

// mayServe refuses a data folder of another backend.
func (p Program) mayServe(cfg config.Config) error {
	was, err := backendOf(cfg.Data)
	if err != nil || was == "" || was == cfg.Backend {
		return err
	}
	return p.foreign(cfg.Data, was)
}

// errForeign is of a data folder of another backend.
var errForeign = errors.New("the server of this data folder is not running")

// foreign refuses to look after runs that execute elsewhere.
func (p Program) foreign(data, backend string) error {
	program := p.Name
	if backend != local.Name && p.Backends[backend] == nil {
		program = "tallyman-server"
	}
	return &tallyman.Error{Code: tallyman.Unavailable, Err: errForeign, Message: fmt.Sprintf(
		"the data folder %s is that of a server with --backend %s, which is not running: start it (%s up --backend %[2]s …), or name another folder with --data", data, backend, program)}
}

// elsewhere is the backend of who only looks at runs that execute on another
// one: it knows nothing of them and does nothing.
type elsewhere struct{ error }

func (e elsewhere) Start(context.Context, tallyman.Assignment) (string, error) { return "", e }
func (e elsewhere) Kill(context.Context, tallyman.Attempt) error               { return e }
func (e elsewhere) Observe(context.Context, tallyman.Attempt) (tallyman.Observation, error) {
	return tallyman.Observation{}, e
}

func (e elsewhere) Leftover(context.Context, tallyman.AttemptRef, uint64, func(uint64, []byte) error) error {
	return e
}
func (e elsewhere) Changed() <-chan struct{}                            { return nil }
func (e elsewhere) Preflight(context.Context, tallyman.AgentSpec) error { return e }
func (e elsewhere) Spec(context.Context, string, tallyman.RunnerSpec) (tallyman.RunnerSpec, error) {
	return tallyman.RunnerSpec{}, e
}

// Remove leaves what an ended attempt has there to its own server.
func (e elsewhere) Remove(context.Context, tallyman.AttemptRef) error { return nil }

// Run has nothing to do.
func (e elsewhere) Run(ctx context.Context) error { <-ctx.Done(); return nil }
