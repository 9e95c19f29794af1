package runner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// channel is the server's side of the runner channel, as small as it can be:
// it holds what it was told, and can be made to fail.
type channel struct {
	t      *testing.T
	socket string

	mu        sync.Mutex
	server    *http.Server
	listener  net.Listener
	spec      tallyman.RunnerSpec
	prompt    string
	epoch     int64
	lease     int // in seconds
	hellos    []tallyman.Hello
	lines     []string // History
	live      []string // provisional lines
	reports   int
	facts     []tallyman.Fact
	artifacts map[string]string
	stop      *tallyman.StopOrder
	orders    map[chan string]bool // streams of orders that are open

	// before answers a call instead of the server when it returns true.
	before func(w http.ResponseWriter, r *http.Request) bool
}

func newChannel(t *testing.T) *channel {
	t.Helper()
	dir, err := os.MkdirTemp("", "tmr-") // short, for the socket's sake
	if err != nil {
		t.Fatal(err)
	}
	c := &channel{t: t, socket: filepath.Join(dir, "s"), artifacts: map[string]string{}, orders: map[chan string]bool{}}
	c.up()
	t.Cleanup(func() {
		c.down()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return c
}

// up begins to serve.
func (c *channel) up() {
	c.t.Helper()
	l, err := net.Listen("unix", c.socket)
	if err != nil {
		c.t.Fatal(err)
	}
	server := &http.Server{Handler: c.handler()}
	c.set(func() { c.server, c.listener = server, l })
	go func() { _ = server.Serve(l) }() // it ends by Close
}

// down ends every connection, as the death of a server does.
func (c *channel) down() {
	c.mu.Lock()
	server, l := c.server, c.listener
	c.mu.Unlock()
	_ = server.Close()
	_ = l.Close() // the server may not have taken it over yet
}

var testAttempt = testRun + "-1"

func (c *channel) boot(dir string) tallyman.Bootstrap {
	return tallyman.Bootstrap{Attempt: testAttempt, Socket: c.socket, Key: "key", Dir: dir}
}

func (c *channel) handler() http.Handler {
	mux := http.NewServeMux()
	base := "/runner/v1/attempts/" + testAttempt + "/"
	mux.HandleFunc("POST "+base+"hello", c.hello)
	mux.HandleFunc("POST "+base+"control", c.control)
	mux.HandleFunc("POST "+base+"events", c.events)
	mux.HandleFunc("GET "+base+"commands", c.commands)
	mux.HandleFunc("GET "+base+"files/prompt", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.prompt) })
	mux.HandleFunc("HEAD "+base+"artifacts/{name...}", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Upload-Offset", "0") })
	mux.HandleFunc("PUT "+base+"artifacts/{name...}", c.artifact)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer key" {
			c.t.Errorf("%s came with %q", r.URL, r.Header.Get("Authorization"))
		}
		c.mu.Lock()
		before := c.before
		c.mu.Unlock()
		if before != nil && before(w, r) {
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (c *channel) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *channel) read(r *http.Request, v any) {
	if err := json.NewDecoder(r.Body).Decode(v); err != nil {
		c.t.Errorf("%s: %v", r.URL, err)
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (c *channel) hello(w http.ResponseWriter, r *http.Request) {
	var h tallyman.Hello
	c.read(r, &h)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hellos = append(c.hellos, h)
	c.epoch++
	answer(w, http.StatusOK, tallyman.Welcome{Epoch: c.epoch, LeaseSeconds: c.lease, Spec: c.spec})
}

// current reports whether the caller has the newest epoch.
func (c *channel) current(r *http.Request) bool {
	return r.URL.Query().Get("epoch") == strconv.FormatInt(c.epoch, 10)
}

func (c *channel) control(w http.ResponseWriter, r *http.Request) {
	var report tallyman.ControlReport
	c.read(r, &report)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.current(r) {
		answer(w, http.StatusGone, map[string]string{"detail": "another epoch took over"})
		return
	}
	c.reports++
	c.facts = append(c.facts, report.Facts...)
	answer(w, http.StatusOK, tallyman.ControlAnswer{Stop: c.stop})
}

func (c *channel) events(w http.ResponseWriter, r *http.Request) {
	from, err := strconv.Atoi(r.URL.Query().Get("from"))
	body, readErr := io.ReadAll(r.Body)
	if err != nil || readErr != nil {
		answer(w, http.StatusBadRequest, map[string]string{"detail": "no good"})
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if from > len(c.lines)+1 {
		answer(w, http.StatusConflict, tallyman.EventsExpected{Expected: uint64(len(c.lines) + 1)})
		return
	}
	for line := range bytes.Lines(body) {
		text := strings.TrimSuffix(string(line), "\n")
		switch {
		case strings.HasPrefix(text, tallyman.Provisional):
			c.live = append(c.live, text)
			continue
		case from <= len(c.lines) && c.lines[from-1] != text:
			answer(w, http.StatusConflict, map[string]string{"detail": "other bytes"})
			return
		case from > len(c.lines):
			c.lines = append(c.lines, text)
		}
		from++
	}
	answer(w, http.StatusOK, tallyman.EventsAnswer{Next: uint64(len(c.lines) + 1)})
}

func (c *channel) commands(w http.ResponseWriter, r *http.Request) {
	orders := make(chan string, 8)
	c.mu.Lock()
	if !c.current(r) {
		orders <- "event: superseded\ndata: epoch 9\n\n"
		close(orders)
	}
	c.orders[orders] = true
	c.mu.Unlock()
	defer c.set(func() { delete(c.orders, orders) })
	out := http.NewResponseController(w)
	_ = out.Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case text, more := <-orders:
			if !more {
				return
			}
			_, _ = io.WriteString(w, text)
			_ = out.Flush()
		}
	}
}

// say sends something on the streams of orders that are open.
func (c *channel) say(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for orders := range c.orders {
		orders <- text
	}
}

func (c *channel) artifact(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c.set(func() { c.artifacts[r.PathValue("name")] = string(b) })
	w.WriteHeader(http.StatusNoContent)
}

// final is the outcome that control was told, nil before.
func (c *channel) final() *tallyman.Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.facts {
		if f.Kind == tallyman.FactFinal {
			return f.Outcome
		}
	}
	return nil
}

// eventually waits for what other goroutines and processes do.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}
