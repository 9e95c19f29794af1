//go:build linux

package contract_test

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/client"
)

// server is `tallyman up` in a place.
type server struct {
	*started
	url, token string
	api        *client.Client // over TCP
	own        *client.Client // over the socket
}

// up starts a server and waits until it says that it serves.
func (p *place) up(args ...string) *server {
	p.t.Helper()
	s := &server{started: p.start("", append([]string{"up", "--listen", "127.0.0.1:0"}, args...)...)}
	p.eventually("the server serves", func() bool {
		select {
		case <-s.done:
			p.t.Fatalf("the server ended: %s", s.wait())
		default:
		}
		_, rest, ok := strings.Cut(s.out.String(), "http://")
		s.url, _, _ = strings.Cut(rest, "/login")
		return ok && strings.Contains(rest, "/api/v1")
	})
	s.url = "http://" + s.url
	token, err := os.ReadFile(p.data("token"))
	if err != nil {
		p.t.Fatal(err)
	}
	s.token = strings.TrimSpace(string(token))
	if s.api, err = client.New(s.url, s.token); err != nil {
		p.t.Fatal(err)
	}
	s.own = client.NewSocket(p.data("run", "tallyman.sock"))
	p.t.Cleanup(func() {
		s.api.Close()
		s.own.Close()
		s.drain()
		_ = s.cmd.Process.Kill()
		<-s.done
	})
	return s
}

// drain lets runners deliver what they have: a run's end is known before that,
// and without a server they would hold on to it.
func (s *server) drain() {
	for until := time.Now().Add(15 * time.Second); s.p.runner() != 0 && !s.p.t.Failed() && time.Now().Before(until); {
		select {
		case <-s.done:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// kill ends the server as a power cut would.
func (s *server) kill() {
	s.p.t.Helper()
	s.signal(syscall.SIGKILL)
	<-s.done
}

// submit submits over the socket.
func (s *server) submit(r tallyman.Request) tallyman.Run {
	s.p.t.Helper()
	run, err := s.own.Submit(s.p.t.Context(), r)
	if err != nil {
		s.p.t.Fatalf("submit: %v", err)
	}
	return run
}

// get asks the API for a path with the token and returns status and body.
func (s *server) get(path string) (int, string) {
	s.p.t.Helper()
	return s.http(http.MethodGet, path, "", nil)
}

func (s *server) http(method, path, body string, header map[string]string) (int, string) {
	s.p.t.Helper()
	req, err := http.NewRequestWithContext(s.p.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.p.t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		s.p.t.Fatal(err)
	}
	return resp.StatusCode, b.String()
}

// until polls a run over the socket until it is as wanted.
func (s *server) until(id, what string, ok func(tallyman.Run) bool) tallyman.Run {
	s.p.t.Helper()
	var run tallyman.Run
	s.p.eventually(what, func() bool {
		ctx, cancel := context.WithTimeout(s.p.t.Context(), 5*time.Second)
		defer cancel()
		var err error
		run, err = s.own.Run(ctx, id)
		return err == nil && ok(run)
	})
	return run
}

func (s *server) ended(id string) tallyman.Run {
	s.p.t.Helper()
	return s.until(id, "run "+id+" has ended", func(r tallyman.Run) bool { return r.State.Terminal() })
}

func (s *server) running(id string) tallyman.Run {
	s.p.t.Helper()
	return s.until(id, "run "+id+" is running", func(r tallyman.Run) bool { return r.State == tallyman.Running })
}

// ended polls a run by the command line until it is over.
func (p *place) ended(id string) tallyman.Run {
	p.t.Helper()
	var run tallyman.Run
	p.eventually("run "+id+" has ended", func() bool {
		run = p.show(id)
		return run.State.Terminal()
	})
	return run
}
