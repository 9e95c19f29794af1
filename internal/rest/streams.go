package rest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tallyman-dev/tallyman"
)

const heartbeat = 15 * time.Second

type eventsInput struct {
	RunPath
	After  string `query:"after" doc:"ATTEMPT.CURSOR of the last event that you have"`
	LastID string `header:"Last-Event-ID" doc:"goes before after: a browser that comes back sends it, with its first address"`
	Accept string `header:"Accept"`
	Follow bool   `query:"follow" doc:"go on until the run has ended"`
	Deltas bool   `query:"deltas" doc:"text as it is written, for display only"`
}

func (a *api) streams(h huma.API) {
	huma.Register(h, huma.Operation{
		OperationID: "get-events", Method: http.MethodGet, Path: "/api/v1/runs/{id}/events", Tags: []string{"events"},
		Summary: "The events of a run, in order and without gaps",
		Description: "NDJSON, one event a line, each with its id. With follow=true it goes on until the run has ended; " +
			"a last line {\"end\":true} says that nothing is missing, {\"error\":…,\"code\":…} why the rest does not come. With Accept: text/event-stream the same as server-sent " +
			"events, always to the run's end (heartbeat 15 s), the end as event \"end\". A stream that ends without it was cut: go on after the last id.",
		Responses: map[string]*huma.Response{"200": {Description: "events", Content: map[string]*huma.MediaType{"application/x-ndjson": {}, "text/event-stream": {}}}},
	}, func(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
		after, err := tallyman.ParseEventID(cmp.Or(in.LastID, in.After))
		if err != nil {
			return nil, a.refuse(ctx, err)
		}
		run, err := a.src.Run(ctx, in.ID)
		if err != nil {
			return nil, a.refuse(ctx, err)
		}
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			sse := strings.Contains(in.Accept, "text/event-stream")
			s := newStream(hc, sse)
			defer s.close()
			each := func(id tallyman.EventID, line []byte, delta bool) error {
				if delta && !in.Deltas {
					return nil
				}
				return s.event(id, line, delta)
			}
			read := a.src.Events
			if in.Follow || sse {
				read = a.src.Follow
			}
			err := read(hc.Context(), run.ID, after, each)
			if hc.Context().Err() != nil {
				return // nothing is wrong with the events: a bare end means come again
			}
			if err != nil && !errors.Is(err, errGone) {
				a.log.WarnContext(hc.Context(), "streaming events", "run", run.ID, "err", err)
			}
			s.end(err)
		}}, nil
	})

	huma.Register(h, huma.Operation{
		OperationID: "watch-runs", Method: http.MethodGet, Path: "/api/v1/watch", Tags: []string{"events"},
		Summary:     "Server-sent notices that the list of runs may have changed",
		Description: "Event \"changed\" with the newest runs as data, at most twice a second; heartbeat 15 s.",
		Responses:   map[string]*huma.Response{"200": {Description: "notices", Content: map[string]*huma.MediaType{"text/event-stream": {}}}},
	}, func(ctx context.Context, _ *struct{}) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: a.watch}, nil
	})
}

func (a *api) watch(hc huma.Context) {
	s := newStream(hc, true)
	defer s.close()
	changed := a.src.Watch(hc.Context())
	for {
		items, _, err := a.src.Runs(hc.Context(), tallyman.Filter{Limit: 50})
		if err != nil {
			if hc.Context().Err() == nil {
				a.log.WarnContext(hc.Context(), "listing runs for a watcher", "err", err)
			}
			return
		}
		b, err := json.Marshal(Page{Items: list(items)})
		if err != nil || s.named("changed", b) != nil {
			return
		}
		select {
		case <-hc.Context().Done():
			return
		case <-changed:
		}
		select {
		case <-hc.Context().Done():
			return
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// errGone says that who followed has gone.
var errGone = errors.New("the follower has gone")

// stream writes events as NDJSON or as server-sent events. What is written
// goes out when the writer has nothing more for the moment.
type stream struct {
	sse bool

	mu      sync.Mutex
	w       *bufio.Writer
	flush   func() error
	dirty   chan struct{}
	done    chan struct{}
	flushed sync.WaitGroup
	err     error
}

func newStream(hc huma.Context, sse bool) *stream {
	s := &stream{sse: sse, dirty: make(chan struct{}, 1), done: make(chan struct{})}
	kind := "application/x-ndjson"
	if sse {
		kind = "text/event-stream"
	}
	hc.SetHeader("Content-Type", kind)
	hc.SetHeader("Cache-Control", "no-store")
	hc.SetHeader("X-Accel-Buffering", "no")
	hc.SetStatus(http.StatusOK)
	body := hc.BodyWriter()
	s.w = bufio.NewWriterSize(body, 64<<10)
	s.flush = func() error { return nil }
	if rw, ok := body.(http.ResponseWriter); ok {
		s.flush = http.NewResponseController(rw).Flush
	} else if f, ok := body.(http.Flusher); ok {
		s.flush = func() error { f.Flush(); return nil }
	}
	s.poke()
	s.flushed.Go(s.keep)
	return s
}

// keep flushes what was written, and sends a heartbeat when nothing was.
func (s *stream) keep() {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-s.dirty:
		case <-beat.C:
			if s.sse {
				s.write(func() { _, _ = s.w.WriteString(": alive\n\n") })
			}
		}
		s.mu.Lock()
		if s.err == nil {
			s.err = errors.Join(s.w.Flush(), s.flush())
		}
		s.mu.Unlock()
	}
}

func (s *stream) poke() {
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

// write calls f, which writes to s.w; a bufio.Writer keeps its first error.
func (s *stream) write(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		f()
	}
}

func (s *stream) event(id tallyman.EventID, line []byte, delta bool) error {
	var gone bool
	s.write(func() {
		switch {
		case s.sse && delta:
			fmt.Fprintf(s.w, "event: delta\ndata: %s\n\n", line)
		case s.sse:
			fmt.Fprintf(s.w, "id: %s\ndata: ", id)
			writeEvent(s.w, id, line)
			_, _ = s.w.WriteString("\n\n")
		case delta:
			_, _ = s.w.Write(line)
			_ = s.w.WriteByte('\n')
		default:
			writeEvent(s.w, id, line)
			_ = s.w.WriteByte('\n')
		}
	})
	s.mu.Lock()
	gone = s.err != nil
	s.mu.Unlock()
	if gone {
		return errGone
	}
	s.poke()
	return nil
}

// writeEvent writes an event's line with its id in front.
func writeEvent(w io.Writer, id tallyman.EventID, line []byte) {
	_, _ = fmt.Fprintf(w, `{"id":"%d.%d",`, id.Attempt, id.Cursor)
	_, _ = w.Write(line[1:])
}

func (s *stream) named(name string, data []byte) error {
	s.write(func() { fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", name, data) })
	s.poke()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// end says that the stream is whole, or why it is not: an error without a
// code of its own is told flat.
func (s *stream) end(err error) {
	last := []byte(`{"end":true}`)
	if err != nil {
		last = fmt.Appendf(nil, `{"error":%s,"code":%q}`, tallyman.AppendString(nil, told(err)), tallyman.CodeOf(err))
	}
	if s.sse {
		_ = s.named("end", last) // a follower that has gone reads nothing
		return
	}
	s.write(func() { _, _ = s.w.Write(append(last, '\n')) })
}

// told is what a follower is told of an error.
func told(err error) string {
	var e *tallyman.Error
	if errors.As(err, &e) {
		return err.Error()
	}
	return flat
}

func (s *stream) close() {
	close(s.done)
	s.flushed.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = errors.Join(s.w.Flush(), s.flush())
	}
}
