// Package service is the hall of the house: every source, page and runner
// comes through it, and it alone writes runs. Rules are in the root package;
// the store applies them in one transaction each; notices go out after the
// commit.
package service

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/store"
)

// Agents finds agents by name.
type Agents interface {
	Get(ctx context.Context, namespace, name string) (tallyman.Agent, error)
}

// Backend is what submitting needs of where runs execute.
type Backend interface {
	// Preflight refuses a spec that cannot run: a program or variable is
	// missing, a feature is not there.
	Preflight(ctx context.Context, spec tallyman.AgentSpec) error
	// Spec completes what a runner is told: environment, folders, notes.
	Spec(ctx context.Context, origin string, spec tallyman.RunnerSpec) (tallyman.RunnerSpec, error)
}

// Blobs keeps what is too large for a row.
type Blobs interface {
	Put(ctx context.Context, r io.Reader) (digest string, size int64, err error)
	Open(ctx context.Context, digest string) (io.ReadSeekCloser, int64, error)
}

// Checks are rules about agents that live beside the agent files.
type Checks struct {
	// Validate checks an agent as a run would use it.
	Validate func(tallyman.Agent) error
	// Harness checks what only the harness's adapter knows: its settings.
	Harness func(tallyman.AgentSpec) error
	// Space refuses new work when there is no room to record it; may be nil.
	Space func() error
	// Schema checks a JSON file against a JSON Schema.
	Schema func(schema json.RawMessage, file io.Reader) error
	// Steps turns the prompt of a script without steps into steps.
	Steps func(prompt []byte) (json.RawMessage, error)
	// PromptLimit is how many bytes a harness takes on standard input, 0: any.
	PromptLimit func(harness string) int64
}

// Timing is what every runner is told.
type Timing struct {
	Grace, ResultGrace, OrphanBudget, DrainBudget tallyman.Duration
}

// Service is the only writer of runs.
type Service struct {
	store   *store.Store
	agents  Agents
	backend Backend
	blobs   Blobs
	checks  Checks
	timing  Timing
	spaces  []string
	prices  json.RawMessage
	newID   func() string
	now     func() time.Time
	ended   func(tallyman.Run)
	log     *slog.Logger
	notices *notices
}

// Options are the parts of a service.
type Options struct {
	Store   *store.Store
	Agents  Agents
	Backend Backend
	Blobs   Blobs
	Checks  Checks
	Timing  Timing
	// Namespaces are those whose agents a cluster has as resources; runs of
	// other namespaces than these and the default are refused.
	Namespaces []string
	Prices     json.RawMessage  // replaces entries of the built-in price table
	NewID      func() string    // ULIDs in order
	Now        func() time.Time // default time.Now
	// Ended is told each run that has ended, after the commit; may be nil.
	Ended func(tallyman.Run)
	Log   *slog.Logger
}

// New makes a service of its parts.
func New(o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Checks.Space == nil {
		o.Checks.Space = func() error { return nil }
	}
	if o.Ended == nil {
		o.Ended = func(tallyman.Run) {}
	}
	return &Service{
		store: o.Store, agents: o.Agents, backend: o.Backend, blobs: o.Blobs,
		checks: o.Checks, timing: o.Timing, spaces: o.Namespaces, prices: o.Prices, newID: o.NewID,
		now:   func() time.Time { return o.Now().UTC().Truncate(time.Microsecond) },
		ended: o.Ended, log: o.Log, notices: newNotices(),
	}
}

// Changed returns a channel that gets a notice after runs have changed, and a
// function that ends it. A notice is a hint: look at what is true.
func (s *Service) Changed() (<-chan struct{}, func()) { return s.notices.watch(aboutAnything) }

// QueueChanged is Changed for changes after which other runs may start than
// before: what is queued, and what takes a slot.
func (s *Service) QueueChanged() (<-chan struct{}, func()) { return s.notices.watch(aboutQueue) }

// AttemptsChanged is Changed for changes after which there is something to do
// with an attempt: start it, stop it, settle it.
func (s *Service) AttemptsChanged() (<-chan struct{}, func()) { return s.notices.watch(aboutAttempts) }

// frozen is what a run keeps of its agent, from submit on.
type frozen struct {
	Agent  tallyman.AgentSpec `json:"agent"`
	Origin string             `json:"origin"`
}

func (s *Service) frozen(ctx context.Context, runID string) (frozen, store.Detail, error) {
	var f frozen
	d, err := s.store.Detail(ctx, runID)
	if err != nil {
		return f, d, err
	}
	if err := json.Unmarshal(d.Spec, &f); err != nil {
		return f, d, tallyman.Errorf(tallyman.Internal, "run %s: its stored spec cannot be read: %w", runID, err)
	}
	return f, d, nil
}
