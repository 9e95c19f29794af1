package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/auth"
	"github.com/tallyman-dev/tallyman/internal/rest"
)

// source keeps runs in memory, and notes what it was asked.
type source struct {
	mu     sync.Mutex
	err    error // what every call answers, where there is one
	runs   []tallyman.Run
	keys   map[string]string // key: the run's id
	asked  []tallyman.Request
	filter tallyman.Filter
	by     string
	set    map[string]string
	from   tallyman.Source
	pruned tallyman.PruneRequest

	events   []said
	live     chan said // what a follower gets after the events; closed: the run has ended
	ending   error     // what Events and Follow end with
	followed int       // followers that have not ended
	changed  chan struct{}

	artifact tallyman.Artifact
	body     string
}

// said is an event or a delta.
type said struct {
	id    tallyman.EventID
	line  string
	delta bool
}

func event(attempt int, cursor uint64, text string) said {
	e := tallyman.Event{Type: tallyman.EventText, Text: text}
	return said{id: tallyman.EventID{Attempt: attempt, Cursor: cursor}, line: string(e.AppendJSON(nil))}
}

func (s *source) Runs(_ context.Context, f tallyman.Filter) ([]tallyman.Run, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filter = f
	if s.err != nil {
		return nil, "", s.err
	}
	from := 0
	if f.After != "" {
		for from = range s.runs {
			if s.runs[from].ID == f.After {
				break
			}
		}
		if s.runs[from].ID != f.After {
			return nil, "", tallyman.Errorf(tallyman.Invalid, "cursor %q is none", f.After)
		}
		from++
	}
	to := min(from+f.Limit, len(s.runs))
	if to == len(s.runs) {
		return s.runs[from:to], "", nil
	}
	return s.runs[from:to], s.runs[to-1].ID, nil
}

func (s *source) Run(_ context.Context, id string) (tallyman.Run, error) {
	if s.err != nil {
		return tallyman.Run{}, s.err
	}
	for _, r := range s.runs {
		if r.ID == id || r.Name == id {
			return r, nil
		}
	}
	return tallyman.Run{}, tallyman.Errorf(tallyman.NotFound, "there is no run %q", id)
}

func (s *source) Attempts(context.Context, string) ([]tallyman.Attempt, error) { return nil, nil }

func (s *source) Timeline(context.Context, string) ([]tallyman.TimelineEntry, error) { return nil, nil }

func (s *source) Artifacts(context.Context, string) ([]tallyman.Artifact, error) { return nil, nil }

func (s *source) OpenArtifact(_ context.Context, id, name string) (io.ReadSeekCloser, tallyman.Artifact, error) {
	if name != s.artifact.Name {
		return nil, tallyman.Artifact{}, tallyman.Errorf(tallyman.NotFound, "run %s has no artifact %q", id, name)
	}
	return file{strings.NewReader(s.body)}, s.artifact, nil
}

type file struct{ io.ReadSeeker }

func (file) Close() error { return nil }

func (s *source) OpenPrompt(context.Context, string) (io.ReadCloser, int64, error) {
	return io.NopCloser(strings.NewReader(s.body)), int64(len(s.body)), s.err
}

func (s *source) Agents(context.Context) ([]tallyman.Agent, error) { return nil, s.err }

func (s *source) Preview(_ context.Context, r tallyman.Request) (json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r)
	return json.RawMessage(`{"kind":"Job"}`), s.err
}

func (s *source) Submit(_ context.Context, r tallyman.Request) (tallyman.Run, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r)
	if s.err != nil {
		return tallyman.Run{}, false, s.err
	}
	if id, ok := s.keys[r.Key]; ok && r.Key != "" {
		run, err := s.Run(context.Background(), id)
		return run, false, err
	}
	id := "01J0000000000000000000000" + string(rune('A'+len(s.keys)))
	if s.keys == nil {
		s.keys = map[string]string{}
	}
	s.keys[r.Key] = id
	run := tallyman.Run{ID: id, Agent: r.Agent, State: tallyman.Queued, Key: r.Key, Source: r.Source}
	s.runs = append(s.runs, run)
	return run, true, nil
}

func (s *source) Stop(ctx context.Context, id, by string) (tallyman.Run, error) {
	s.by = by
	return s.Run(ctx, id)
}

func (s *source) Rerun(ctx context.Context, id string, set map[string]string, from tallyman.Source) (tallyman.Run, error) {
	s.set, s.from = set, from
	return s.Run(ctx, id)
}

func (s *source) Delete(ctx context.Context, id string) error {
	_, err := s.Run(ctx, id)
	return err
}

func (s *source) Prune(_ context.Context, p tallyman.PruneRequest) (tallyman.PruneResult, error) {
	s.pruned = p
	return tallyman.PruneResult{Runs: 3, Blobs: 2, Bytes: 1}, s.err
}

func (s *source) Events(_ context.Context, _ string, after tallyman.EventID, fn func(tallyman.EventID, []byte, bool) error) error {
	for _, e := range s.events {
		if e.id.Attempt < after.Attempt || e.id.Attempt == after.Attempt && e.id.Cursor <= after.Cursor {
			continue
		}
		if err := fn(e.id, []byte(e.line), e.delta); err != nil {
			return err
		}
	}
	return s.ending
}

func (s *source) Follow(ctx context.Context, id string, after tallyman.EventID, fn func(tallyman.EventID, []byte, bool) error) error {
	s.count(1)
	defer s.count(-1)
	if err := s.Events(ctx, id, after, fn); err != nil || s.live == nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-s.live:
			if !ok {
				return s.ending
			}
			if err := fn(e.id, []byte(e.line), e.delta); err != nil {
				return err
			}
		}
	}
}

func (s *source) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followed += n
}

func (s *source) followers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.followed
}

func (s *source) Watch(context.Context) <-chan struct{} { return s.changed }

// api is the API over a source, without a network.
type api struct {
	*source
	http.Handler
	log *bytes.Buffer
}

func newAPI(t testing.TB, s *source) *api {
	t.Helper()
	log := &bytes.Buffer{}
	return &api{source: s, Handler: routes(t, s, log), log: log}
}

func routes(t testing.TB, s rest.Source, log io.Writer) http.Handler {
	t.Helper()
	a, err := auth.Open(filepath.Join(t.TempDir(), "token"))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	info := func() tallyman.Info {
		return tallyman.Info{Version: "v9", Listen: "127.0.0.1:7333", URL: "http://127.0.0.1:7333", MaxRunning: 4}
	}
	rest.Routes(mux, s, info, a, slog.New(slog.NewTextHandler(log, nil)))
	return mux
}

// serve starts a server whose network is in memory, so that it may live in a
// bubble, and returns a client of it.
func serve(t *testing.T, s rest.Source) *http.Client {
	t.Helper()
	l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: routes(t, s, io.Discard)}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		select {
		case l.conns <- theirs:
			return ours, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		serving.Wait()
	})
	return &http.Client{Transport: transport}
}

// pipes is a listener of connections in memory.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.done) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// call makes a call and returns its answer.
func (a *api) call(method, target, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func owner(r *http.Request) { *r = *r.WithContext(auth.Owner(r.Context())) }

// told is a problem as a caller reads it.
type told struct {
	Status int
	Title  string
	Detail string
	Code   tallyman.Code
	Reason tallyman.Reason
	Errors []struct{ Message, Location string }
}

// problem reads a problem, and checks what all have.
func problem(t *testing.T, w *httptest.ResponseRecorder, status int) told {
	t.Helper()
	var p told
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	if w.Code != status || p.Status != status || p.Title != http.StatusText(status) || p.Detail == "" || p.Code == "" {
		t.Fatalf("got %d %.500s, want a problem with %d", w.Code, w.Body, status)
	}
	if kind := w.Header().Get("Content-Type"); kind != "application/problem+json" {
		t.Fatalf("a problem as %q", kind)
	}
	return p
}

func answer[T any](t *testing.T, w *httptest.ResponseRecorder, status int) (v T) {
	t.Helper()
	if w.Code != status {
		t.Fatalf("got %d %s, want %d", w.Code, w.Body, status)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("%s: %v", w.Body, err)
	}
	return v
}

func some() []tallyman.Run {
	return []tallyman.Run{
		{ID: "01J0000000000000000000000C", Name: "exec-c", Agent: "exec", State: tallyman.Running},
		{ID: "01J0000000000000000000000B", Name: "exec-b", Agent: "exec", State: tallyman.Failed},
		{ID: "01J0000000000000000000000A", Name: "exec-a", Agent: "exec", State: tallyman.Succeeded},
	}
}
