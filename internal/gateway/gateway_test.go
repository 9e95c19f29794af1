package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/blob"
	"github.com/tallyman-dev/tallyman/internal/database"
	"github.com/tallyman-dev/tallyman/internal/database/sqlite"
	"github.com/tallyman-dev/tallyman/internal/gateway"
	"github.com/tallyman-dev/tallyman/internal/history"
	"github.com/tallyman-dev/tallyman/internal/service"
	"github.com/tallyman-dev/tallyman/internal/store"
)

// maxArtifact is how large a file may be in these tests.
const maxArtifact = 1 << 20

// world is a gateway over the real service and the real stores.
type world struct {
	t       testing.TB
	store   *store.Store
	history *history.History
	blobs   *blob.Folder
	service *service.Service
	gateway *gateway.Gateway
	server  *httptest.Server
}

// anyBackend takes every agent.
type anyBackend struct{}

func (anyBackend) Preflight(context.Context, tallyman.AgentSpec) error { return nil }
func (anyBackend) Spec(_ context.Context, _ string, s tallyman.RunnerSpec) (tallyman.RunnerSpec, error) {
	s.WorkDir = "/work"
	return s, nil
}

// oneAgent is a catalog.
type oneAgent struct{ tallyman.Agent }

func (a oneAgent) Get(context.Context, string, string) (tallyman.Agent, error) { return a.Agent, nil }

func newWorld(t testing.TB) *world {
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
	w := &world{t: t}
	var err error
	if w.store, err = store.Open(t.Context(), control.Writer, control.Reader, database.SQLite); err != nil {
		t.Fatal(err)
	}
	if w.history, err = history.Open(t.Context(), events.Writer, events.Reader, database.SQLite); err != nil {
		t.Fatal(err)
	}
	if w.blobs, err = blob.Open(filepath.Join(dir, "blobs")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.blobs.Close() })
	none := func(tallyman.AgentSpec) error { return nil }
	w.service = service.New(service.Options{
		Store: w.store, Backend: anyBackend{}, Blobs: w.blobs,
		Agents: oneAgent{tallyman.Agent{Name: "worker", Spec: tallyman.AgentSpec{Harness: "exec", Command: []string{"make"}}}},
		Checks: service.Checks{
			Validate: func(tallyman.Agent) error { return nil }, Harness: none,
			PromptLimit: func(string) int64 { return 0 },
		},
		NewID: func() string { return ulid.Make().String() }, Log: slog.New(slog.DiscardHandler),
	})
	w.gateway = gateway.New(w.service, w.history, w.blobs, maxArtifact, slog.New(slog.DiscardHandler))
	mux := http.NewServeMux()
	w.gateway.Routes(mux)
	w.server = httptest.NewServer(mux)
	t.Cleanup(w.server.Close)
	return w
}

// with is the same world for another test.
func (w *world) with(t testing.TB) *world {
	same := *w
	same.t = t
	return &same
}

// runner is a runner as its gateway sees it.
type runner struct {
	*world
	ref   tallyman.AttemptRef
	key   string
	epoch int64
}

// admit makes a run with an attempt whose runner has its key, and has said
// nothing yet.
func (w *world) admit() *runner {
	w.t.Helper()
	run, _, err := w.service.Submit(w.t.Context(), tallyman.Request{Agent: "worker", Prompt: "do it"})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.next(run.ID)
}

// next admits the next attempt of a run.
func (w *world) next(id string) *runner {
	w.t.Helper()
	run, err := w.store.Run(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	a, err := w.service.Admit(w.t.Context(), run, 0, 0, "test")
	if err != nil {
		w.t.Fatal(err)
	}
	r := &runner{world: w, ref: a.Ref()}
	if r.key, err = w.service.NewKey(w.t.Context(), r.ref); err != nil {
		w.t.Fatal(err)
	}
	return r
}

// greeted is a runner after its hello.
func (w *world) greeted() *runner {
	w.t.Helper()
	r := w.admit()
	r.hello("J-"+r.ref.RunID, 0).is(http.StatusOK)
	return r
}

// reply is an answer of the gateway.
type reply struct {
	t      testing.TB
	status int
	header http.Header
	body   string
}

func (a reply) is(status int) reply {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("the answer is %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

func (a reply) says(words ...string) reply {
	a.t.Helper()
	for _, w := range words {
		if !strings.Contains(a.body, w) {
			a.t.Errorf("%q is not in the answer: %s", w, a.body)
		}
	}
	return a
}

func (a reply) decode(v any) {
	a.t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		a.t.Fatalf("%v: %s", err, a.body)
	}
}

// call calls a path of the attempt with a key.
func (r *runner) call(method, path string, body io.Reader) reply {
	r.t.Helper()
	return r.world.call(method, r.ref.String(), path, body, "Bearer "+r.key)
}

func (w *world) call(method, attempt, path string, body io.Reader, bearers ...string) reply {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.server.URL+"/runner/v1/attempts/"+attempt+"/"+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header["Authorization"] = bearers
	resp, err := w.server.Client().Do(req)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return reply{w.t, resp.StatusCode, resp.Header, string(b)}
}

func (r *runner) post(path string, v any) reply {
	r.t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.call(http.MethodPost, path, bytes.NewReader(b))
}

func (r *runner) hello(journal string, last uint64) reply {
	r.t.Helper()
	a := r.post("hello", tallyman.Hello{JournalID: journal, LastCursor: last, Process: "7"})
	if a.status == http.StatusOK {
		var w tallyman.Welcome
		a.decode(&w)
		r.epoch = w.Epoch
	}
	return a
}

func (r *runner) report(epoch int64, facts ...tallyman.Fact) reply {
	r.t.Helper()
	return r.post(fmt.Sprint("control?epoch=", epoch), tallyman.ControlReport{Facts: facts})
}

func (r *runner) journal() string { return "J-" + r.ref.RunID }

func (r *runner) attempt() tallyman.Attempt {
	r.t.Helper()
	a, err := r.store.Attempt(r.t.Context(), r.ref)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// ends ends the attempt and tells that its processes are gone.
func (r *runner) ends(reason tallyman.Reason) {
	r.t.Helper()
	if _, err := r.service.End(r.t.Context(), r.ref, tallyman.Settlement{Reason: reason}); err != nil {
		r.t.Fatal(err)
	}
	if err := r.service.Gone(r.t.Context(), r.ref, false, nil); err != nil {
		r.t.Fatal(err)
	}
}

// orders opens the stream of orders of an epoch. Its lines come one by one;
// the channel is closed at its end.
func (r *runner) orders(epoch int64) <-chan string {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, fmt.Sprintf("%s/runner/v1/attempts/%s/commands?epoch=%d", r.server.URL, r.ref, epoch), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	resp, err := r.server.Client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		r.t.Fatalf("the stream of orders is answered with %s, %v", resp.Status, resp.Header)
	}
	r.t.Cleanup(func() { resp.Body.Close() })
	events := make(chan string, 100)
	go func() {
		defer close(events)
		var buf [4096]byte
		var text string
		for {
			n, err := resp.Body.Read(buf[:])
			text += string(buf[:n])
			for {
				event, rest, ok := strings.Cut(text, "\n\n")
				if !ok {
					break
				}
				text = rest
				events <- event
			}
			if err != nil {
				return
			}
		}
	}()
	if got := next(r.t, events); got != ": connected" {
		r.t.Fatalf("the stream begins with %q", got)
	}
	return events
}

// next waits for the next event of a stream, "end" at its end.
func next(t testing.TB, events <-chan string) string {
	t.Helper()
	select {
	case e, ok := <-events:
		if !ok {
			return "end"
		}
		return e
	case <-time.After(20 * time.Second):
		t.Fatal("nothing comes on the stream")
		return ""
	}
}

// lines are n events from a cursor on, as a body.
func lines(from, n int) string {
	var b []byte
	for i := range n {
		e := tallyman.Event{Time: time.Unix(int64(from+i), 0), Type: tallyman.EventText, Text: fmt.Sprint("event ", from+i)}
		b = append(e.AppendJSON(b), '\n')
	}
	return string(b)
}

// stored is what History has of a journal.
func (w *world) stored(journal string) string {
	w.t.Helper()
	var b strings.Builder
	err := w.history.Read(w.t.Context(), journal, 0, func(_ uint64, line []byte) error {
		b.Write(line)
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return b.String()
}
