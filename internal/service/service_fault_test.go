package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/blob"
	"github.com/tallyman-dev/tallyman/internal/database"
	"github.com/tallyman-dev/tallyman/internal/database/sqlite"
	"github.com/tallyman-dev/tallyman/internal/history"
	"github.com/tallyman-dev/tallyman/internal/service"
	"github.com/tallyman-dev/tallyman/internal/store"
)

// TestEveryCallOfTheStoreMayFail makes the Nth call of the store that an
// operation makes fail, instead of being done or after it was, for every N
// there is. The caller does what a real one does: it looks again and repeats.
// What must always be true is held after every call.
func TestEveryCallOfTheStoreMayFail(t *testing.T) {
	h := newFaultHouse(t)
	for _, op := range operations {
		for _, mode := range []string{"instead of the call", "after the call"} {
			t.Run(op.name+", "+mode, func(t *testing.T) {
				h.t = t
				n := 1
				for ; h.strike(op, mode, n); n++ {
				}
				if n == 1 {
					t.Error("no call was struck")
				}
			})
		}
	}
}

// operation is something that a caller does to a run. prepare brings a run to
// where it can be done, on a sound store; once does it once; done says what
// must be true when once has said that it is done.
type operation struct {
	name    string
	prepare func(s *scene)
	once    func(s *scene) error
	done    func(s *scene) bool
}

var operations = []operation{
	{"submit with a key", nothing, (*scene).submit, func(s *scene) bool { return s.run.ID != "" && s.now().State == tallyman.Queued }},
	{"submit a long prompt", func(s *scene) { s.req.Prompt = strings.Repeat("p", tallyman.MaxInline+1) }, (*scene).submit, func(s *scene) bool { return s.prompt() == len(s.req.Prompt) }},
	{"admit", (*scene).queued, (*scene).admit, func(s *scene) bool { return s.now().State == tallyman.Starting }},
	{"admit with one slot for two", (*scene).twoQueued, (*scene).admitBoth, func(s *scene) bool { return s.load() == 1 }},
	{"stop while it is queued", (*scene).queued, (*scene).stop, func(s *scene) bool { return s.now().State == tallyman.Stopped }},
	{"wait", (*scene).queued, (*scene).wait, func(s *scene) bool { return s.now().Waiting != nil }},
	{"greet", (*scene).admitted, (*scene).greet, func(s *scene) bool { return s.attempt().Journal == s.journal() }},
	{"report the start", (*scene).greeted, (*scene).reportStart, func(s *scene) bool { return s.now().State == tallyman.Running && s.now().Usage.InputTokens == 4 }},
	{"report the end", (*scene).running, (*scene).reportEnd, func(s *scene) bool { return s.attempt().Final != nil && s.now().Usage.InputTokens == 7 }},
	{"stop while it runs", (*scene).running, (*scene).stop, func(s *scene) bool { return s.now().StopRequestedAt != nil }},
	{"end well", (*scene).reported, (*scene).endWell, func(s *scene) bool { return s.now().State == tallyman.Succeeded }},
	{"end with a long result", (*scene).reported, (*scene).endLong, func(s *scene) bool { return s.now().State == tallyman.Succeeded && s.now().ResultBlob != "" }},
	{"end for another attempt", (*scene).running, (*scene).endLost, func(s *scene) bool { return s.now().State == tallyman.Queued && s.now().Attempt == 1 }},
	{"gone", (*scene).ended, (*scene).gone, func(s *scene) bool { return s.attempt().Gone && s.load() == 0 }},
	{"delete", (*scene).over, (*scene).delete, func(s *scene) bool { return s.remembered() && s.events() == 0 }},
}

func nothing(*scene) {}

var errStruck = errors.New("struck")

// strike plays an operation with its Nth call failing, and reports whether
// there was such a call.
func (h *faultHouse) strike(op operation, mode string, n int) bool {
	h.t.Helper()
	s := h.newScene()
	op.prepare(s)
	s.hold()
	struck := false
	s.service = h.newService(store.WithFaults(h.store, func(_ string, call int) store.Fault {
		switch {
		case struck || call != n:
			return store.Fault{}
		case mode == "after the call":
			struck = true
			return store.Fault{After: errStruck}
		}
		struck = true
		return store.Fault{Before: errStruck}
	}))
	var err error
	for range 3 {
		if err = op.once(s); err == nil {
			break
		}
		if !errors.Is(err, errStruck) {
			h.t.Fatalf("call %d: a fault became %v", n, err)
		}
		s.hold()
	}
	if err != nil || !op.done(s) {
		h.t.Errorf("call %d: %v; the run is %+v", n, err, s.run)
	}
	s.hold()
	s.service = h.sound
	s.clear()
	if h.t.Failed() {
		h.t.FailNow()
	}
	return struck
}

// faultHouse is the rooms under test.
type faultHouse struct {
	t       *testing.T
	store   *store.Store
	history *history.History
	blobs   *blob.Folder
	sound   *service.Service
	count   int
}

func newFaultHouse(t *testing.T) *faultHouse {
	t.Helper()
	h, dir := &faultHouse{t: t}, t.TempDir()
	open := func(name string) *sqlite.DB {
		db, err := sqlite.Open(t.Context(), filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	var err error
	control, events := open("control.db"), open("history.db")
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
	h.sound = h.newService(h.store)
	return h
}

// newScene is a run that is about to be submitted.
func (h *faultHouse) newScene() *scene {
	h.count++
	key := fmt.Sprintf("key-%d", h.count)
	return &scene{
		h: h, service: h.sound, key: key, versions: map[string]tallyman.Run{},
		req: tallyman.Request{Agent: "worker", Key: key, Prompt: "work"},
	}
}

func (h *faultHouse) newService(st *store.Store) *service.Service {
	return service.New(service.Options{
		Store: st, Agents: oneAgent{}, Backend: anywhere{}, Blobs: h.blobs,
		Checks: service.Checks{
			Validate:    func(tallyman.Agent) error { return nil },
			Harness:     func(tallyman.AgentSpec) error { return nil },
			Steps:       func([]byte) (json.RawMessage, error) { return nil, nil },
			PromptLimit: func(string) int64 { return 0 },
		},
		NewID: func() string { return ulid.Make().String() },
		Log:   slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

type oneAgent struct{}

func (oneAgent) Get(_ context.Context, namespace, name string) (tallyman.Agent, error) {
	return tallyman.Agent{Name: name, Namespace: namespace, Spec: tallyman.AgentSpec{
		Harness: "exec", Command: []string{"true"}, Retry: tallyman.Retry{Backoff: tallyman.Duration(time.Nanosecond)},
	}}, nil
}

type anywhere struct{}

func (anywhere) Preflight(context.Context, tallyman.AgentSpec) error { return nil }

func (anywhere) Spec(_ context.Context, _ string, s tallyman.RunnerSpec) (tallyman.RunnerSpec, error) {
	return s, nil
}
