package gateway_test

import (
	"bufio"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman/internal/gateway"
)

// inBubble is a gateway without sockets and stores, for a clock of its own.
func inBubble(t *testing.T) (*gateway.Gateway, func(method, path, body string) int) {
	g := gateway.New(quiet{}, swallow{}, nil, 1, slog.New(slog.DiscardHandler))
	mux := http.NewServeMux()
	g.Routes(mux)
	return g, func(method, path, body string) int {
		t.Helper()
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, request(method, path, body))
		return rec.Code
	}
}

func request(method, path, body string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer key")
	return r
}

// stream is the server's end of a connection that was taken from HTTP.
type stream struct {
	http.ResponseWriter

	mu       sync.Mutex
	written  strings.Builder
	ended    bool
	stalled  bool
	deadline time.Time
}

// hijack opens the stream of orders.
func hijack(t *testing.T, g *gateway.Gateway, path string) *stream {
	t.Helper()
	s := &stream{ResponseWriter: httptest.NewRecorder()}
	mux := http.NewServeMux()
	g.Routes(mux)
	mux.ServeHTTP(s, request(http.MethodGet, path, ""))
	if !strings.HasPrefix(s.text(), "HTTP/1.1 200 OK\r\n") {
		t.Fatalf("the stream begins with %q", s.text())
	}
	return s
}

// Hijack hands over the connection.
func (s *stream) Hijack() (net.Conn, *bufio.ReadWriter, error) { return conn{s}, nil, nil }

func (s *stream) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written.String()
}

func (s *stream) closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// stall makes the other end read nothing any more.
func (s *stream) stall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled = true
}

// conn is the stream as a connection.
type conn struct{ *stream }

func (c conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return nil
}

func (c conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	stalled, deadline := c.stalled, c.deadline
	c.mu.Unlock()
	if stalled {
		time.Sleep(time.Until(deadline))
		return 0, os.ErrDeadlineExceeded
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.written.Write(b)
}

func (c conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return nil
}

func (c conn) Read([]byte) (int, error)        { return 0, net.ErrClosed }
func (c conn) LocalAddr() net.Addr             { return nil }
func (c conn) RemoteAddr() net.Addr            { return nil }
func (c conn) SetDeadline(time.Time) error     { return nil }
func (c conn) SetReadDeadline(time.Time) error { return nil }
