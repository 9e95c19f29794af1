package rest_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
)

// story is three events over two attempts.
func story() []said { return []said{event(1, 1, "a"), event(1, 2, "b"), event(2, 1, "c")} }

const (
	lineA = `{"id":"1.1","time":"0001-01-01T00:00:00.000000Z","type":"text","text":"a"}`
	lineB = `{"id":"1.2","time":"0001-01-01T00:00:00.000000Z","type":"text","text":"b"}`
	lineC = `{"id":"2.1","time":"0001-01-01T00:00:00.000000Z","type":"text","text":"c"}`
	delta = `{"delta":"x","type":"text"}`
	whole = `{"end":true}`
)

func lines(s ...string) string { return strings.Join(s, "\n") + "\n" }

func sse(r *http.Request) { r.Header.Set("Accept", "text/event-stream") }

func TestEventsAsLines(t *testing.T) {
	for name, c := range map[string]struct {
		query  string
		lastID string
		ending error
		want   string
	}{
		"all":                       {want: lines(lineA, lineB, lineC, whole)},
		"after one":                 {query: "?after=1.1", want: lines(lineB, lineC, whole)},
		"after an attempt":          {query: "?after=1.99", want: lines(lineC, whole)},
		"after the last":            {query: "?after=2.1&follow=true", want: lines(whole)},
		"after what a header says":  {lastID: "1.2", want: lines(lineC, whole)},
		"a browser that comes back": {query: "?after=1.1", lastID: "1.2", want: lines(lineC, whole)},
		"an error with a code":      {ending: tallyman.Errorf(tallyman.NotFound, `the "run" was removed`), want: lines(lineA, lineB, lineC, `{"error":"the \"run\" was removed","code":"not_found"}`)},
		"an error without one":      {ending: errors.New("disk /dev/x"), want: lines(lineA, lineB, lineC, `{"error":"internal error; the server's log has it","code":"internal"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, &source{runs: some(), events: story(), ending: c.ending})
			w := a.call("GET", "/api/v1/runs/exec-c/events"+c.query, "", header("Last-Event-ID", c.lastID))
			if d := cmp.Diff(c.want, w.Body.String()); w.Code != 200 || d != "" {
				t.Errorf("%d (-want +got):\n%s", w.Code, d)
			}
			for k, v := range map[string]string{"Content-Type": "application/x-ndjson", "Cache-Control": "no-store", "X-Accel-Buffering": "no"} {
				if got := w.Header().Get(k); got != v {
					t.Errorf("%s: %q", k, got)
				}
			}
			if (c.ending != nil) != strings.Contains(a.log.String(), "streaming events") {
				t.Errorf("logged: %s", a.log)
			}
		})
	}
}

func TestEventsAsServerSentEvents(t *testing.T) {
	a := newAPI(t, &source{runs: some(), events: story(), live: make(chan said, 2)})
	a.live <- said{id: tallyman.EventID{Attempt: 2}, line: delta, delta: true}
	a.live <- event(2, 2, "d")
	close(a.live)
	w := a.call("GET", "/api/v1/runs/exec-c/events?deltas=true", "", sse, header("Last-Event-ID", "1.2"))
	want := "id: 2.1\ndata: " + lineC + "\n\n" +
		"event: delta\ndata: " + delta + "\n\n" +
		"id: 2.2\ndata: " + strings.NewReplacer("2.1", "2.2", `"c"`, `"d"`).Replace(lineC) + "\n\n" +
		"event: end\ndata: " + whole + "\n\n"
	if d := cmp.Diff(want, w.Body.String()); d != "" || w.Header().Get("Content-Type") != "text/event-stream" {
		t.Errorf("%v (-want +got):\n%s", w.Header(), d)
	}
	a.ending = tallyman.Errorf(tallyman.Unavailable, "come again")
	w = a.call("GET", "/api/v1/runs/exec-c/events", "", sse, header("Last-Event-ID", "2.1"))
	if got, want := w.Body.String(), "event: end\ndata: {\"error\":\"come again\",\"code\":\"unavailable\"}\n\n"; got != want {
		t.Errorf("got %q", got)
	}
}

func TestDeltasAreForThoseWhoAskForThem(t *testing.T) {
	for query, want := range map[string]string{
		"follow=true":             lines(lineA, whole),
		"follow=true&deltas=true": lines(lineA, delta, whole),
	} {
		a := newAPI(t, &source{runs: some(), events: story()[:1], live: make(chan said, 1)})
		a.live <- said{line: delta, delta: true}
		close(a.live)
		if d := cmp.Diff(want, a.call("GET", "/api/v1/runs/exec-c/events?"+query, "").Body.String()); d != "" {
			t.Errorf("%s (-want +got):\n%s", query, d)
		}
	}
}

// follow opens a stream in a bubble. What it has said is read by next.
type followed struct {
	*bufio.Reader
	t    *testing.T
	body io.Closer
}

func follow(t *testing.T, c *http.Client, path string, change ...func(*http.Request)) *followed {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://x"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(req)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return &followed{Reader: bufio.NewReader(resp.Body), t: t, body: resp.Body}
}

// next reads the next line that is not empty.
func (f *followed) next() string {
	f.t.Helper()
	for {
		line, err := f.ReadString('\n')
		if err != nil {
			return err.Error()
		}
		if line = strings.TrimSuffix(line, "\n"); line != "" {
			return line
		}
	}
}

func TestEventsComeAsTheyHappen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{runs: some(), events: story()[:1], live: make(chan said)}
		f := follow(t, serve(t, s), "/api/v1/runs/exec-c/events?follow=true")
		start := time.Now()
		if got := f.next(); got != lineA {
			t.Errorf("first %s", got)
		}
		s.live <- event(1, 2, "b")
		if got := f.next(); got != lineB {
			t.Errorf("then %s", got)
		}
		close(s.live)
		if got := f.next(); got != whole {
			t.Errorf("at last %s", got)
		}
		if got := f.next(); got != "EOF" {
			t.Errorf("after the end %s", got)
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("they waited %s to be sent", took)
		}
	})
}

func TestSilenceIsFilledWithHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{runs: some(), live: make(chan said)}
		c := serve(t, s)
		f := follow(t, c, "/api/v1/runs/exec-c/events", sse)
		start := time.Now()
		for range 3 {
			if got := f.next(); got != ": alive" {
				t.Errorf("got %s", got)
			}
		}
		if took := time.Since(start); took != 45*time.Second {
			t.Errorf("three heartbeats in %s", took)
		}
		plain := follow(t, c, "/api/v1/runs/exec-c/events?follow=true")
		time.Sleep(time.Minute)
		go func() { time.Sleep(time.Second); close(s.live) }()
		if got := plain.next(); got != whole {
			t.Errorf("among lines: %s", got)
		}
	})
}

func TestAFollowerThatLeavesIsLetGo(t *testing.T) {
	for name, path := range map[string]string{"events": "/api/v1/runs/exec-c/events", "notices": "/api/v1/watch"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // a handler that stayed would be a deadlock
				s := &source{runs: some(), live: make(chan said), changed: make(chan struct{})}
				f := follow(t, serve(t, s), path, sse)
				synctest.Wait()
				if n := s.followers(); name == "events" && n != 1 {
					t.Errorf("%d follow", n)
				}
				if err := f.body.Close(); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if n := s.followers(); n != 0 {
					t.Errorf("%d follow still", n)
				}
			})
		})
	}
}

// gone is a connection that takes nothing.
type gone struct{ http.ResponseWriter }

func (gone) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestAConnectionThatTakesNothingEndsTheReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{runs: some(), live: make(chan said)}
		a := newAPI(t, s)
		done := make(chan struct{})
		go func() {
			defer close(done)
			r, err := http.NewRequestWithContext(context.Background(), "GET", "/api/v1/runs/exec-c/events", nil)
			if err != nil {
				t.Error(err)
				return
			}
			sse(r)
			a.ServeHTTP(gone{header0{}}, r)
		}()
		for i := uint64(1); ; i++ {
			select {
			case s.live <- event(1, i, "x"):
				synctest.Wait()
				continue
			case <-done:
			}
			if i > 3 {
				t.Errorf("it took %d events to see it", i-1)
			}
			break
		}
		if a.log.Len() > 0 {
			t.Errorf("logged: %s", a.log)
		}
	})
}

// header0 takes headers, and a flush.
type header0 struct{}

func (header0) Header() http.Header         { return http.Header{} }
func (header0) Write(b []byte) (int, error) { return len(b), nil }
func (header0) WriteHeader(int)             {}
func (header0) Flush()                      {}

func TestAServerThatEndsSaysNothingOfAnEnd(t *testing.T) {
	a := newAPI(t, &source{runs: some(), events: story()[:1], live: make(chan said)})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	w := a.call("GET", "/api/v1/runs/exec-c/events?follow=true", "", func(r *http.Request) { *r = *r.WithContext(ctx) })
	if got := w.Body.String(); got != lines(lineA) {
		t.Errorf("got %q: a cut stream must not look whole", got)
	}
	if a.log.Len() > 0 {
		t.Errorf("logged: %s", a.log)
	}
}

func TestWatchersAreToldOfChangesAtMostTwiceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{runs: some()[:1], changed: make(chan struct{}, 1)}
		f := follow(t, serve(t, s), "/api/v1/watch")
		start := time.Now()
		notice := func() string {
			if got := f.next(); got != "event: changed" {
				return got
			}
			return f.next()
		}
		if got := notice(); !strings.HasPrefix(got, `data: {"items":[{"id":"01J0000000000000000000000C"`) || time.Since(start) > 0 {
			t.Errorf("at once: %s", got)
		}
		s.changed <- struct{}{}
		if notice(); time.Since(start) != 500*time.Millisecond {
			t.Errorf("told after %s", time.Since(start))
		}
		if got := f.next(); got != ": alive" || time.Since(start) != 15*time.Second {
			t.Errorf("after %s of silence: %s", time.Since(start), got)
		}
		s.mu.Lock()
		s.runs = nil
		s.mu.Unlock()
		s.changed <- struct{}{}
		if got := notice(); got != `data: {"items":[],"next":""}` {
			t.Errorf("without runs: %s", got)
		}
		s.mu.Lock()
		s.err = errors.New("disk /dev/x")
		s.mu.Unlock()
		s.changed <- struct{}{}
		if got := f.next(); got != "EOF" {
			t.Errorf("when it cannot be read: %s", got)
		}
	})
}
