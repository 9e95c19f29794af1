package cli

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/config"
	"github.com/tallyman-dev/tallyman/internal/executor"
	"github.com/tallyman-dev/tallyman/internal/gateway"
	"github.com/tallyman-dev/tallyman/internal/local"
	"github.com/tallyman-dev/tallyman/internal/service"
)

// Backend is where a server's attempts execute.
type Backend interface {
	executor.Backend
	service.Backend
	// Run does the backend's own work until ctx ends.
	Run(ctx context.Context) error
	// Remove removes what is left of an attempt that is gone.
	Remove(ctx context.Context, ref tallyman.AttemptRef) error
}

// BackendOptions are what a backend that is compiled in is made of.
type BackendOptions struct {
	Config config.Config
	CA     string // PEM of who vouches for the server, "": the system's roots
	Lookup func(name string) (string, bool)
	// Object is what was made for an attempt, as it was recorded.
	Object func(ctx context.Context, ref tallyman.AttemptRef) (string, error)
	// Kept reports whether an attempt's record is complete.
	Kept    func(ctx context.Context, ref tallyman.AttemptRef) (bool, error)
	Control Control
	History History
	Log     *slog.Logger
}

// Control is who learns of an attempt without a runner, from its backend.
type Control interface {
	Greet(ctx context.Context, ref tallyman.AttemptRef, p tallyman.Proof, h tallyman.Hello) (tallyman.Welcome, tallyman.HelloVerdict, error)
	Report(ctx context.Context, ref tallyman.AttemptRef, epoch int64, r tallyman.ControlReport) (tallyman.ControlAnswer, error)
}

// History is where a backend writes the journal of such an attempt.
type History interface {
	Next(ctx context.Context, journal string) (uint64, error)
	Read(ctx context.Context, journal string, after uint64, fn func(cursor uint64, line []byte) error) error
	Append(ctx context.Context, journal string, from uint64, lines [][]byte) (next uint64, err error)
}

// Program is a main of the house: its name, and what is compiled in beside
// what every one has.
type Program struct {
	Name     string
	Version  string
	Backends map[string]func(BackendOptions) (Backend, error)
	// Resources makes what keeps the agents that the place of a backend has;
	// by the backend's name.
	Resources map[string]func(ResourceOptions) (Loop, error)
	// Checks look, for doctor, at what a backend needs elsewhere; by its name.
	Checks map[string]func(context.Context, CheckOptions) []Finding
}

// makeBackend makes the backend that is configured.
func (s *server) makeBackend(o serverOptions) (Backend, error) {
	name := s.cfg.Backend
	if s.foreign != "" {
		return elsewhere{o.program.foreign(s.cfg.Data, s.foreign)}, nil
	}
	if name == local.Name {
		s.local = local.New(local.Options{
			Dir: s.house.attempts, Socket: socketPath(s.cfg.Data), Runner: runnerCommand(),
			Lookup: o.env.lookup, Home: o.env.home(), Peek: o.role == looks, UID: os.Getuid(), Log: s.log,
		})
		return s.local, nil
	}
	make, ok := o.program.Backends[name]
	if !ok {
		known := append(slices.Collect(maps.Keys(o.program.Backends)), local.Name)
		slices.Sort(known)
		hint := ""
		if len(o.program.Backends) == 0 {
			hint = "; tallyman-server has kube"
		}
		return nil, usageError("backend %q is not in %s, which has %s%s", name, o.program.Name, strings.Join(known, ", "), hint)
	}
	ca, err := s.authority()
	if err != nil {
		return nil, err
	}
	b, err := make(BackendOptions{Config: s.cfg, CA: ca, Lookup: o.env.lookup, Object: s.house.object, Kept: s.house.kept,
		Control: lateControl{s.house}, History: roomy{s.house.history, s.cfg.Data}, Log: s.log})
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", name, err)
	}
	return b, nil
}

// trust lets the gateway know Pods, where the backend does.
func (s *server) trust() {
	if known, ok := s.backend.(gateway.Identity); ok {
		s.gateway.Trust(known)
	}
}

// lateControl is the service of a house that gets it after its backend.
type lateControl struct{ h *house }

func (l lateControl) Greet(ctx context.Context, ref tallyman.AttemptRef, p tallyman.Proof, h tallyman.Hello) (tallyman.Welcome, tallyman.HelloVerdict, error) {
	return l.h.service.Greet(ctx, ref, p, h)
}

func (l lateControl) Report(ctx context.Context, ref tallyman.AttemptRef, epoch int64, r tallyman.ControlReport) (tallyman.ControlAnswer, error) {
	return l.h.service.Report(ctx, ref, epoch, r)
}

// object is what was made for an attempt.
func (h *house) object(ctx context.Context, ref tallyman.AttemptRef) (string, error) {
	a, err := h.store.Attempt(ctx, ref)
	return a.Object, err
}

// kept reports whether an attempt is over, and History has all that there is
// of it.
func (h *house) kept(ctx context.Context, ref tallyman.AttemptRef) (bool, error) {
	a, err := h.store.Attempt(ctx, ref)
	if err != nil || !a.Gone || a.Owed || a.EndedAt == nil {
		return false, err
	}
	return true, nil
}
