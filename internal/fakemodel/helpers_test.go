package fakemodel_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman/internal/fakemodel"
)

// server is a fake model on a loopback port.
type server struct {
	*httptest.Server
	fake *fakemodel.Server
	t    testing.TB
}

func serve(t testing.TB, s fakemodel.Script) *server {
	t.Helper()
	fake := fakemodel.New(s, nil)
	hs := httptest.NewUnstartedServer(fake)
	hs.Config.ErrorLog = nil
	hs.Start()
	t.Cleanup(hs.Close)
	return &server{hs, fake, t}
}

func mustParse(t testing.TB, script string) fakemodel.Script {
	t.Helper()
	s, err := fakemodel.ParseScript([]byte(script))
	if err != nil {
		t.Fatalf("parse the script: %v", err)
	}
	return s
}

// post sends a body and returns the response, whose body is read by the test.
func (s *server) post(path, body string) *http.Response {
	s.t.Helper()
	resp, err := http.Post(s.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatalf("POST %s: %v", path, err)
	}
	s.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// control posts to a control endpoint and returns the counts.
func (s *server) control(verb string) fakemodel.Stats {
	s.t.Helper()
	var st fakemodel.Stats
	resp := s.post("/control/"+verb, "")
	if err := json.NewDecoder(resp.Body).Decode(&st); err != nil {
		s.t.Fatalf("read the answer of %s: %v", verb, err)
	}
	return st
}

// eventually waits until the counts are as wanted.
func (s *server) eventually(what string, ok func(fakemodel.Stats) bool) {
	s.t.Helper()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if ok(s.fake.Stats()) {
			return
		}
	}
	s.t.Fatalf("never %s: %+v", what, s.fake.Stats())
}

func body(t testing.TB, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read the body: %v", err)
	}
	return string(b)
}

func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)
	return strings.TrimSpace(b.String())
}

// message is one of a conversation in Anthropic's format.
type message struct{ role, content string }

func said(text string) message     { return message{"user", quote(text)} }
func answered(text string) message { return message{"assistant", quote(text)} }

// called is a reply that called a tool, and its answer.
func called(result string) []message {
	return []message{
		{"assistant", `[{"type":"tool_use","id":"toolu_1","name":"Bash","input":{}}]`},
		{"user", `[{"type":"tool_result","tool_use_id":"toolu_1","content":` + quote(result) + `}]`},
	}
}

func request(stream bool, messages ...message) string {
	var list []string
	for _, m := range messages {
		list = append(list, fmt.Sprintf(`{"role":%q,"content":%s}`, m.role, m.content))
	}
	return fmt.Sprintf(`{"model":"claude-sonnet-4-5","max_tokens":100,"stream":%v,"messages":[%s]}`, stream, strings.Join(list, ","))
}

// answer is the whole answer to a conversation, in short: one line a block,
// then the stop reason; or the status and error of a refused call.
func (s *server) answer(messages ...message) string {
	s.t.Helper()
	resp := s.post("/v1/messages", request(false, messages...))
	var m struct {
		Content []struct {
			Type, Text, Thinking, Name string
			Input                      json.RawMessage
		}
		StopReason string `json:"stop_reason"`
		Error      struct{ Type, Message string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
		s.t.Fatalf("read the answer: %v", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Sprintf("%d %s: %s", resp.StatusCode, m.Error.Type, m.Error.Message)
	}
	var lines []string
	for _, c := range m.Content {
		line := c.Type + ": " + c.Text + c.Thinking
		if c.Type == "tool_use" {
			line = "tool " + c.Name + " " + string(c.Input)
		}
		lines = append(lines, line)
	}
	return strings.Join(append(lines, m.StopReason), "\n")
}
