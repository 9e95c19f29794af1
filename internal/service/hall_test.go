package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/blob"
	"github.com/tallyman-dev/tallyman/internal/catalog"
	"github.com/tallyman-dev/tallyman/internal/database"
	"github.com/tallyman-dev/tallyman/internal/database/sqlite"
	"github.com/tallyman-dev/tallyman/internal/harness"
	"github.com/tallyman-dev/tallyman/internal/history"
	"github.com/tallyman-dev/tallyman/internal/service"
	"github.com/tallyman-dev/tallyman/internal/store"
)

// hall is a service on real stores, with a clock and a backend of the test's.
type hall struct {
	*service.Service
	t          *testing.T
	store      *store.Store
	history    *history.History
	blobs      *blob.Folder
	transcript *service.Transcript
	agents     agents
	backend    *backend

	mu    sync.Mutex
	clock time.Time
	ended []tallyman.Run
	full  error // why there is no space
}

// agents are the catalog.
type agents map[string]tallyman.Agent

func (a agents) Get(_ context.Context, namespace, name string) (tallyman.Agent, error) {
	agent, ok := a[name]
	if !ok || namespace != tallyman.DefaultNamespace {
		return agent, tallyman.Errorf(tallyman.NotFound, "no agent %q", name)
	}
	return agent, nil
}

// backend notes what it is asked.
type backend struct {
	refuse error
	noSpec error // why what a runner is told cannot be made
	mu     sync.Mutex
	asked  []tallyman.AgentSpec // under mu
}

func (b *backend) Preflight(_ context.Context, spec tallyman.AgentSpec) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, spec)
	return b.refuse
}

func (b *backend) Spec(_ context.Context, origin string, spec tallyman.RunnerSpec) (tallyman.RunnerSpec, error) {
	spec.WorkDir = "/work/" + origin
	return spec, b.noSpec
}

func newHall(t *testing.T) *hall {
	t.Helper()
	dir := t.TempDir()
	open := func(name string) *sqlite.DB {
		db, err := sqlite.Open(context.Background(), filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	control, events := open("control.db"), open("history.db")
	h := &hall{t: t, clock: time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC), agents: agents{}, backend: &backend{}}
	var err error
	if h.store, err = store.Open(t.Context(), control.Writer, control.Reader, database.SQLite); err != nil {
		t.Fatal(err)
	}
	if h.history, err = history.Open(t.Context(), events.Writer, events.Reader, database.SQLite); err != nil {
		t.Fatal(err)
	}
	if h.blobs, err = blob.Open(filepath.Join(dir, "blobs")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.blobs.Close() })
	for _, a := range catalog.Builtin(harness.DemoSteps()) {
		h.agents[a.Name] = a
	}
	h.serves()
	return h
}

// serves is a server anew over what is there, with those namespaces.
func (h *hall) serves(namespaces ...string) {
	h.Service = service.New(service.Options{
		Store: h.store, Agents: h.agents, Backend: h.backend, Blobs: h.blobs,
		Checks: service.Checks{
			Validate: catalog.Validate, Harness: harness.Check, Schema: catalog.CheckSchema, Steps: catalog.ScriptSteps,
			PromptLimit: harness.PromptLimit, Space: func() error { return h.full },
		},
		Timing: service.Timing{Grace: tallyman.Duration(time.Second)},
		NewID:  func() string { return ulid.Make().String() },
		Now:    h.now,
		Ended:  func(r tallyman.Run) { h.mu.Lock(); defer h.mu.Unlock(); h.ended = append(h.ended, r) },
		Log:    slog.New(slog.DiscardHandler),

		Namespaces: namespaces,
	})
	h.transcript = service.NewTranscript(h.Service, h.history)
}

func (h *hall) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.clock
}

// later moves the clock.
func (h *hall) later(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock = h.clock.Add(d)
}

// agent adds an agent to the catalog.
func (h *hall) agent(name string, spec tallyman.AgentSpec) {
	h.agents[name] = tallyman.Agent{Name: name, Namespace: tallyman.DefaultNamespace, Origin: "/agents/" + name + ".yaml", Spec: spec}
}

func (h *hall) submit(r tallyman.Request) tallyman.Run {
	h.t.Helper()
	run, created, err := h.Submit(h.t.Context(), r)
	if err != nil || !created {
		h.t.Fatalf("submit: created %v, %v", created, err)
	}
	return run
}

// command is a request for a run of exec.
func command(change ...func(*tallyman.Request)) tallyman.Request {
	r := tallyman.Request{Agent: "exec", Command: []string{"true"}, Source: tallyman.SourceCLI}
	for _, c := range change {
		c(&r)
	}
	return r
}

func (h *hall) run(id string) tallyman.Run {
	h.t.Helper()
	r, err := h.store.Run(h.t.Context(), id)
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

func (h *hall) attempt(ref tallyman.AttemptRef) tallyman.Attempt {
	h.t.Helper()
	a, err := h.store.Attempt(h.t.Context(), ref)
	if err != nil {
		h.t.Fatal(err)
	}
	return a
}

// runs counts all runs.
func (h *hall) runs() int {
	h.t.Helper()
	counts, err := h.store.Counts(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	n := 0
	for _, c := range counts[tallyman.DefaultNamespace] {
		n += c
	}
	return n
}

// admit starts the next attempt of a run, as the scheduler does.
func (h *hall) admit(id string) tallyman.AttemptRef {
	h.t.Helper()
	a, err := h.Admit(h.t.Context(), h.run(id), 0, 0, "test")
	if err != nil {
		h.t.Fatal(err)
	}
	return a.Ref()
}

// runner is the runner of an attempt, as the service sees it.
type runner struct {
	*hall
	ref     tallyman.AttemptRef
	key     string
	journal string
	epoch   int64
	cursor  uint64
}

// start admits the next attempt of a run and lets its runner say hello.
func (h *hall) start(id string) *runner {
	h.t.Helper()
	r := &runner{hall: h, ref: h.admit(id)}
	r.journal = "J-" + r.ref.String()
	var err error
	if r.key, err = h.NewKey(h.t.Context(), r.ref); err != nil {
		h.t.Fatal(err)
	}
	r.hello()
	return r
}

func (r *runner) hello() tallyman.Welcome {
	r.t.Helper()
	w, v, err := r.Greet(r.t.Context(), r.ref, tallyman.Proof{Key: r.key}, tallyman.Hello{JournalID: r.journal, LastCursor: r.cursor, Process: "7"})
	if err != nil || v != tallyman.HelloWelcome {
		r.t.Fatalf("hello: %s, %v", v, err)
	}
	r.epoch = w.Epoch
	return w
}

// tell reports a fact at the next cursor.
func (r *runner) tell(f tallyman.Fact) tallyman.ControlAnswer {
	r.t.Helper()
	if f.Cursor == 0 {
		r.cursor++
		f.Cursor = r.cursor
	}
	if f.At.IsZero() {
		f.At = r.now()
	}
	a, err := r.Report(r.t.Context(), r.ref, r.epoch, tallyman.ControlReport{Facts: []tallyman.Fact{f}})
	if err != nil {
		r.t.Fatalf("report %s: %v", f.Kind, err)
	}
	return a
}

func (r *runner) began() { r.t.Helper(); r.tell(tallyman.Fact{Kind: tallyman.FactStarted}) }

func (r *runner) used(tokens int64) {
	r.t.Helper()
	r.tell(tallyman.Fact{Kind: tallyman.FactUsage, Usage: &tallyman.Usage{OutputTokens: tokens, Turns: 1}})
}

// writes stores events of the runner's journal.
func (r *runner) writes(n int) {
	r.t.Helper()
	var lines [][]byte
	from := r.cursor + 1
	for range n {
		r.cursor++
		e := tallyman.Event{Time: r.now(), Type: tallyman.EventText, Text: fmt.Sprint(r.ref.Number, ".", r.cursor)}
		lines = append(lines, e.AppendJSON(nil))
	}
	if _, err := r.history.Append(r.t.Context(), r.journal, from, lines); err != nil {
		r.t.Fatal(err)
	}
}

// ends ends the attempt, as the executor does, with its processes gone.
func (r *runner) ends(reason tallyman.Reason, change ...func(*tallyman.Settlement)) tallyman.Run {
	r.t.Helper()
	s := tallyman.Settlement{Reason: reason, Message: "because", FinalCursor: r.cursor, Outcome: tallyman.Outcome{Reason: reason, Usage: r.attempt(r.ref).Usage}}
	for _, c := range change {
		c(&s)
	}
	run, err := r.End(r.t.Context(), r.ref, s)
	if err != nil {
		r.t.Fatalf("end: %v", err)
	}
	if err := r.Gone(r.t.Context(), r.ref, false, nil); err != nil {
		r.t.Fatal(err)
	}
	return run
}

func code(t *testing.T, err error, want tallyman.Code) *tallyman.Error {
	t.Helper()
	var e *tallyman.Error
	if !errors.As(err, &e) || e.Code != want {
		t.Fatalf("got %s (%v), want %s", tallyman.CodeOf(err), err, want)
	}
	return e
}

func ptr[T any](v T) *T { return &v }

func raw(s string) json.RawMessage { return json.RawMessage(s) }

func rawMap(key, value string) map[string]json.RawMessage {
	return map[string]json.RawMessage{key: raw(value)}
}

func dropNothing(context.Context, []string) error { return nil }
