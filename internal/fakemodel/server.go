package fakemodel

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

// MaxRequest is the largest request body, in bytes; larger ones get status 413.
const MaxRequest = 64 << 20

// Server answers model calls. It is an http.Handler and may be used
// concurrently; it starts nothing of its own and needs no closing.
type Server struct {
	script Script
	log    *slog.Logger
	mux    *http.ServeMux

	mu       sync.Mutex
	stats    Stats
	held     bool
	waiting  int
	released chan struct{} // closed, and replaced, by each release
	open     map[*call]struct{}
	used     map[string]int // how often what has times was used
	requests []*Request
}

// New makes a server that answers as the script says, which must be one that
// ParseScript accepts. A nil logger logs nothing.
func New(script Script, log *slog.Logger) *Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		script: script, log: log, mux: http.NewServeMux(),
		released: make(chan struct{}),
		open:     map[*call]struct{}{},
	}
	s.reset()
	s.routes()
	return s
}

// ServeHTTP answers one request. It breaks the connection, by panicking with
// http.ErrAbortHandler, where the script or /control/abort says so.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) routes() {
	s.mux.HandleFunc("POST /v1/messages", s.generate(Anthropic))
	s.mux.HandleFunc("POST /v1/messages/count_tokens", s.countTokens(Anthropic))
	s.mux.HandleFunc("POST /v1/responses", s.generate(Responses))
	s.mux.HandleFunc("POST /v1/chat/completions", s.generate(Chat))
	s.mux.HandleFunc("POST /v1beta/models/{call}", s.gemini)
	s.mux.HandleFunc("GET /v1/models", s.models)
	s.mux.HandleFunc("GET /v1beta/models", s.geminiModels)
	s.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "tallyman fakemodel: a scripted model server\n")
	})
	s.controlRoutes()
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		f := Anthropic
		if strings.HasPrefix(r.URL.Path, "/v1beta/") {
			f = Gemini
		}
		writeFault(w, f, &Fault{Status: http.StatusNotFound, Message: "no such endpoint: " + r.Method + " " + r.URL.Path})
	})
}

// call is one model call under way.
type call struct {
	format  Format
	cancel  context.CancelCauseFunc
	request *Request // shared with the list of requests, under the server's lock
}

// The causes for which a call ends early.
var (
	errAborted = errors.New("aborted by /control/abort")
	errCut     = errors.New("cut by the script")
)

// gemini routes the one path that names the model and what to do with it.
func (s *Server) gemini(w http.ResponseWriter, r *http.Request) {
	_, verb, _ := strings.Cut(r.PathValue("call"), ":")
	switch verb {
	case "generateContent", "streamGenerateContent":
		s.generate(Gemini)(w, r)
	case "countTokens":
		s.countTokens(Gemini)(w, r)
	default:
		writeFault(w, Gemini, &Fault{Status: http.StatusNotFound, Message: fmt.Sprintf("no such method: %q", verb)})
	}
}

// generate answers model calls of one format.
func (s *Server) generate(f Format) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		c := s.begin(f, r, cancel)
		err := s.answer(ctx, w, r, c)
		if errors.Is(context.Cause(ctx), errAborted) && err != nil {
			err = errAborted
		}
		s.end(c, err)
		if errors.Is(err, errAborted) || errors.Is(err, errCut) {
			panic(http.ErrAbortHandler)
		}
	}
}

// answer reads the request and plays the reply. Its error says that the call
// did not come to its end.
func (s *Server) answer(ctx context.Context, w http.ResponseWriter, r *http.Request, c *call) error {
	body, fault, err := readBody(w, r)
	if err != nil {
		return err
	}
	var t *talk
	if fault == nil {
		t, fault = parse(c.format, r, body)
	}
	if fault != nil {
		s.note(c, nil, len(body))
		return s.refuse(w, c, fault)
	}
	s.note(c, t, len(body))
	reply, err := s.decide(t)
	if err != nil {
		return s.refuse(w, c, &Fault{Status: http.StatusBadRequest, Message: err.Error()})
	}
	p := &player{server: s, call: c, w: w, out: http.NewResponseController(w), talk: t, reply: reply}
	return p.play(ctx)
}

// readBody reads the whole body. A fault is the client's, to be told; an error
// means that the client is gone.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *Fault, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxRequest))
	if err == nil {
		return body, nil, nil
	}
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		msg := fmt.Sprintf("the request is larger than %d bytes", tooLarge.Limit)
		return nil, &Fault{Status: http.StatusRequestEntityTooLarge, Message: msg}, nil
	}
	return nil, nil, fmt.Errorf("read request: %w", err)
}

// refuse answers a call with an error instead of a reply.
func (s *Server) refuse(w http.ResponseWriter, c *call, f *Fault) error {
	s.status(c, f.Status)
	writeFault(w, c.format, f)
	return nil
}

func (s *Server) countTokens(f Format) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, fault, err := readBody(w, r)
		switch {
		case err != nil:
			return
		case fault == nil && !json.Valid(body):
			fault = malformed("the body is not valid JSON")
		}
		if fault != nil {
			writeFault(w, f, fault)
			return
		}
		name := "input_tokens"
		if f == Gemini {
			name = "totalTokens"
		}
		writeJSON(w, http.StatusOK, map[string]int{name: len(body)/4 + 1})
	}
}

// malformed is a fault for a request that makes no sense.
func malformed(format string, args ...any) *Fault {
	return &Fault{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}
}

// list returns the models that the script names, or one.
func (s *Server) list() []string {
	if len(s.script.Models) > 0 {
		return s.script.Models
	}
	return []string{"fake-model"}
}

// models answers in a shape that is both Anthropic's and OpenAI's.
func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	names := s.list()
	data := make([]map[string]any, 0, len(names))
	for _, n := range names {
		data = append(data, map[string]any{
			"type": "model", "object": "model", "id": n, "display_name": n,
			"created_at": "2026-01-01T00:00:00Z", "created": 1767225600, "owned_by": "tallyman",
		})
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"object": "list", "data": data, "has_more": false, "first_id": names[0], "last_id": names[len(names)-1],
	})
}

func (s *Server) geminiModels(w http.ResponseWriter, _ *http.Request) {
	data := []map[string]any{}
	for _, n := range s.list() {
		data = append(data, map[string]any{
			"name": "models/" + n, "displayName": n,
			"supportedGenerationMethods": []string{"generateContent", "countTokens"},
		})
	}
	writeJSON(w, http.StatusOK, map[string]any{"models": data})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // nobody is left to be told that the client went
}

// newID makes an id like the provider's, unique over all servers.
func newID(prefix string) string { return prefix + rand.Text()[:20] }

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// now is the time in whole seconds, as some formats tell it.
func now() int64 { return time.Now().Unix() }
