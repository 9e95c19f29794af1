package fakemodel

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Stats counts model calls since the start or the last reset. A call without
// a status was given up before the answer began.
type Stats struct {
	Calls         int64            `json:"calls"`
	ByFormat      map[Format]int64 `json:"by_format"`
	ByModel       map[string]int64 `json:"by_model"`
	ByStatus      map[int]int64    `json:"by_status"`
	Open          int              `json:"open"`           // now
	Waiting       int              `json:"waiting"`        // of the open: held or stalled now
	Held          bool             `json:"held"`           // by /control/hold
	ClientAborted int64            `json:"client_aborted"` // the client went before the end
	ServerAborted int64            `json:"server_aborted"` // by /control/abort
	Cut           int64            `json:"cut"`            // by the script
}

// Request is what is remembered of a model call.
type Request struct {
	Time     time.Time   `json:"time"`
	Method   string      `json:"method"`
	Path     string      `json:"path"`
	Format   Format      `json:"format"`
	Model    string      `json:"model"`
	Stream   bool        `json:"stream"`
	Status   int         `json:"status"` // 0: none was sent yet
	End      string      `json:"end"`    // done, client, aborted or cut; "" while it is open
	Bytes    int         `json:"bytes"`  // of the request's body
	Messages int         `json:"messages"`
	Replies  int         `json:"replies"` // of the model so far, since the last user text
	Tools    []string    `json:"tools"`
	Prompt   string      `json:"prompt"` // the last user text, its first 4 kB
	Header   http.Header `json:"header"` // credentials masked
}

// keepRequests is how many of the last calls /control/requests shows.
const keepRequests = 200

// Stats returns the counts as they are now.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.ByFormat, st.ByModel, st.ByStatus = maps.Clone(st.ByFormat), maps.Clone(st.ByModel), maps.Clone(st.ByStatus)
	st.Open, st.Waiting, st.Held = len(s.open), s.waiting, s.held
	return st
}

func (s *Server) controlRoutes() {
	act := func(do func()) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			do()
			writeJSON(w, http.StatusOK, s.Stats())
		}
	}
	s.mux.HandleFunc("GET /control/stats", act(func() {}))
	s.mux.HandleFunc("POST /control/hold", act(s.hold))
	s.mux.HandleFunc("POST /control/release", act(s.release))
	s.mux.HandleFunc("POST /control/abort", act(s.abort))
	s.mux.HandleFunc("POST /control/reset", act(s.reset))
	s.mux.HandleFunc("GET /control/requests", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"requests": s.recent()})
	})
}

func (s *Server) recent() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Request, 0, len(s.requests))
	for _, r := range s.requests {
		list = append(list, *r)
	}
	return list
}

func (s *Server) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = true
}

func (s *Server) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.letGo()
}

// letGo ends holds and stalls; the lock is held.
func (s *Server) letGo() {
	s.held = false
	close(s.released)
	s.released = make(chan struct{})
}

func (s *Server) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		c.cancel(errAborted)
	}
}

func (s *Server) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.letGo()
	s.stats = Stats{ByFormat: map[Format]int64{}, ByModel: map[string]int64{}, ByStatus: map[int]int64{}}
	s.used = map[string]int{}
	s.requests = nil
}

// spend takes one of so many times, and reports whether there was one left.
// Zero times is without limit.
func (s *Server) spend(what string, times int) bool {
	if times == 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[what] >= times {
		return false
	}
	s.used[what]++
	return true
}

// gate waits while the server is held.
func (s *Server) gate(ctx context.Context) error {
	for {
		s.mu.Lock()
		held, released := s.held, s.released
		s.mu.Unlock()
		if !held {
			return ctx.Err()
		}
		if err := s.wait(ctx, released, 0); err != nil {
			return err
		}
	}
}

// stall waits for so long or, with no duration, for the next release.
func (s *Server) stall(ctx context.Context, d time.Duration) error {
	s.mu.Lock()
	released := s.released
	s.mu.Unlock()
	return s.wait(ctx, released, d)
}

// wait returns after the duration, if there is one, at the release, if there
// is none, and when the call is over.
func (s *Server) wait(ctx context.Context, released <-chan struct{}, d time.Duration) error {
	s.mu.Lock()
	s.waiting++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.waiting--
		s.mu.Unlock()
	}()
	var after <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		after, released = timer.C, nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-after:
	case <-released:
	}
	return nil
}

// sleep returns after the duration, or with an error when the call is over.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// begin counts a call and lists it.
func (s *Server) begin(f Format, r *http.Request, cancel context.CancelCauseFunc) *call {
	path := r.URL.Path
	if q := r.URL.Query(); len(q) > 0 {
		for _, secret := range []string{"key", "access_token"} {
			if q.Has(secret) {
				q.Set(secret, masked)
			}
		}
		path += "?" + q.Encode()
	}
	c := &call{format: f, cancel: cancel, request: &Request{
		Time: time.Now().UTC(), Method: r.Method, Path: path, Format: f, Header: maskHeader(r.Header),
	}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Calls++
	s.stats.ByFormat[f]++
	s.open[c] = struct{}{}
	if len(s.requests) == keepRequests {
		s.requests = slices.Delete(s.requests, 0, 1)
	}
	s.requests = append(s.requests, c.request)
	return c
}

// note adds what the body said; t is nil when it made no sense.
func (s *Server) note(c *call, t *talk, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.request.Bytes = bytes
	if t == nil {
		return
	}
	const promptLimit = 4 << 10
	prompt := t.prompt()
	s.stats.ByModel[t.model]++
	c.request.Model, c.request.Stream, c.request.Tools = t.model, t.stream, t.tools
	c.request.Messages = len(t.said)
	c.request.Replies = t.replies(t.last(func(string) bool { return true }))
	c.request.Prompt = strings.ToValidUTF8(prompt[:min(len(prompt), promptLimit)], "")
}

// status counts the status that a call is answered with.
func (s *Server) status(c *call, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.ByStatus[code]++
	c.request.Status = code
}

// end counts how a call ended: err is nil when it was answered whole.
func (s *Server) end(c *call, err error) {
	s.mu.Lock()
	delete(s.open, c)
	switch {
	case err == nil:
		c.request.End = "done"
	case errors.Is(err, errAborted):
		c.request.End = "aborted"
		s.stats.ServerAborted++
	case errors.Is(err, errCut):
		c.request.End = "cut"
		s.stats.Cut++
	default:
		c.request.End = "client"
		s.stats.ClientAborted++
	}
	r := *c.request
	s.mu.Unlock()
	s.log.Info("model call", "format", r.Format, "model", r.Model, "status", r.Status, "end", r.End,
		"bytes", r.Bytes, "replies", r.Replies, "duration", time.Since(r.Time).Round(time.Millisecond))
}

const masked = "***"

// maskHeader copies headers without what gives access.
func maskHeader(h http.Header) http.Header {
	h = h.Clone()
	for name := range h {
		switch name {
		case "Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "Api-Key", "X-Goog-Api-Key":
			h[name] = []string{masked}
		}
	}
	return h
}
