// Package gateway serves the runner channel: hello, epochs, control, events,
// orders and artifacts. It is where runners' words enter; what they change is
// decided by the service.
package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// Limits of one call, in bytes.
const (
	maxHello   = 64 << 10
	maxControl = 64 << 20
	maxEvents  = 256 << 20
)

// Lease is how long a connection may be silent before it counts as lost.
const Lease = 30 * time.Second

const heartbeat = 15 * time.Second

// Control is what the gateway needs of the service.
type Control interface {
	// Greet answers a hello of who has proven to be of the attempt.
	Greet(ctx context.Context, ref tallyman.AttemptRef, p tallyman.Proof, h tallyman.Hello) (tallyman.Welcome, tallyman.HelloVerdict, error)
	// CheckKey returns the attempt when the key is its own.
	CheckKey(ctx context.Context, ref tallyman.AttemptRef, key string) (tallyman.Attempt, error)
	// Report takes facts; Stale when the epoch is not the newest.
	Report(ctx context.Context, ref tallyman.AttemptRef, epoch int64, r tallyman.ControlReport) (tallyman.ControlAnswer, error)
	// Prompt opens the whole prompt of a run.
	Prompt(ctx context.Context, runID string) (io.ReadCloser, int64, error)
	// Artifact records a file that is complete in the blob store.
	Artifact(ctx context.Context, a tallyman.Artifact) error
}

// History is where events go.
type History interface {
	Append(ctx context.Context, journal string, from uint64, lines [][]byte) (next uint64, err error)
	Provisional(journal string, line []byte)
}

// Blobs is where artifacts go.
type Blobs interface {
	Offset(ctx context.Context, digest string) (have int64, done bool, err error)
	Resume(ctx context.Context, digest string, size, offset int64, r io.Reader) (have int64, done bool, err error)
}

// Identity knows the Pods of a cluster by their tokens.
type Identity interface {
	// Identify returns the Pod whose token it is, if that is one of the
	// attempt. Unauthorized: it is no such token. Stale: it is not the
	// attempt's Pod. Unavailable: the cluster cannot be asked just now.
	Identify(ctx context.Context, ref tallyman.AttemptRef, token, cluster string) (pod string, err error)
}

// Gateway answers runners.
type Gateway struct {
	identity    Identity // nil: every hello brings the key
	control     Control
	history     History
	blobs       Blobs
	log         *slog.Logger
	maxArtifact int64
	conns       *connections
}

// New makes a gateway. maxArtifact bounds one file, in bytes.
func New(c Control, h History, b Blobs, maxArtifact int64, log *slog.Logger) *Gateway {
	return &Gateway{control: c, history: h, blobs: b, maxArtifact: maxArtifact, log: log, conns: newConnections(time.Now)}
}

// Trust lets Pods of a cluster say hello with their tokens. It is to be called
// before anything is served.
func (g *Gateway) Trust(i Identity) { g.identity = i }

// Routes adds the channel's paths to a mux.
func (g *Gateway) Routes(mux *http.ServeMux) {
	const base = "/runner/v1/attempts/{id}/"
	mux.HandleFunc("POST "+base+"hello", g.handle(g.hello))
	mux.HandleFunc("POST "+base+"control", g.handle(g.facts))
	mux.HandleFunc("POST "+base+"events", g.handle(g.events))
	mux.HandleFunc("GET "+base+"commands", g.handle(g.commands))
	mux.HandleFunc("GET "+base+"files/prompt", g.handle(g.prompt))
	mux.HandleFunc("HEAD "+base+"artifacts/{name...}", g.handle(g.artifactOffset))
	mux.HandleFunc("PUT "+base+"artifacts/{name...}", g.handle(g.artifact))
}

// call is one request of a runner.
type call struct {
	w   http.ResponseWriter
	r   *http.Request
	ref tallyman.AttemptRef
	key string
}

func (g *Gateway) handle(f func(call) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ref, err := tallyman.ParseAttemptRef(r.PathValue("id"))
		if err == nil {
			var key string
			if key, err = bearer(r); err == nil {
				err = f(call{w: w, r: r, ref: ref, key: key})
			}
		}
		if err != nil {
			g.refuse(w, r, err)
		}
	}
}

// bearer returns the one token of a request. None, or two, is refused before
// anything is looked up.
func bearer(r *http.Request) (string, error) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", tallyman.Errorf(tallyman.Unauthorized, "a runner sends one bearer token, this request has %d", len(values))
	}
	key, ok := strings.CutPrefix(values[0], "Bearer ")
	if !ok || key == "" {
		return "", tallyman.Errorf(tallyman.Unauthorized, "a runner sends its key as a bearer token")
	}
	return key, nil
}

// refuse writes a problem. Internal errors are logged whole and told flat.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, err error) {
	code := tallyman.CodeOf(err)
	text := err.Error()
	status := map[tallyman.Code]int{
		tallyman.Invalid: http.StatusBadRequest, tallyman.Unauthorized: http.StatusUnauthorized,
		tallyman.NotFound: http.StatusNotFound, tallyman.Conflict: http.StatusConflict,
		tallyman.Stale: http.StatusGone, tallyman.TooLarge: http.StatusRequestEntityTooLarge,
		tallyman.Unavailable: http.StatusServiceUnavailable,
	}[code]
	if status == 0 {
		if r.Context().Err() == nil {
			g.log.ErrorContext(r.Context(), "runner channel", "path", r.URL.Path, "err", err)
		}
		status, text = http.StatusServiceUnavailable, "internal error; the server's log has it"
	}
	writeJSON(w, status, map[string]any{"status": status, "title": http.StatusText(status), "detail": text})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		b, status = []byte(`{"detail":"internal error"}`), http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b) // a caller that has gone reads nothing
}

// readBody reads a body up to a limit, TooLarge above it.
func readBody(c call, limit int64, into *bytes.Buffer) error {
	if n := c.r.ContentLength; n > 0 && n <= limit && int(n)+bytes.MinRead > into.Cap() {
		*into = *bytes.NewBuffer(make([]byte, 0, int(n)+bytes.MinRead)) // Grow would double it
	}
	_, err := into.ReadFrom(http.MaxBytesReader(c.w, c.r.Body, limit))
	var big *http.MaxBytesError
	if errors.As(err, &big) {
		return tallyman.Errorf(tallyman.TooLarge, "the body is larger than %d bytes", limit)
	}
	if err != nil {
		return tallyman.Errorf(tallyman.Unavailable, "read the body: %w", err)
	}
	return nil
}

func decode(c call, limit int64, v any) error {
	var body bytes.Buffer
	if err := readBody(c, limit, &body); err != nil {
		return err
	}
	if err := json.Unmarshal(body.Bytes(), v); err != nil {
		return tallyman.Errorf(tallyman.Invalid, "the body is not what is expected here: %w", err)
	}
	return nil
}

// prove finds out what the caller of a hello has: the attempt's key, or the
// token of a Pod. A token has dots in it, a key has none.
func (g *Gateway) prove(c call) (tallyman.Proof, error) {
	if g.identity == nil || !strings.Contains(c.key, ".") {
		return tallyman.Proof{Key: c.key}, nil
	}
	clusters := c.r.Header.Values(tallyman.ClusterHeader)
	if len(clusters) > 1 {
		return tallyman.Proof{}, tallyman.Errorf(tallyman.Unauthorized, "a runner is of one cluster, this request names %d", len(clusters))
	}
	pod, err := g.identity.Identify(c.r.Context(), c.ref, c.key, strings.Join(clusters, ""))
	return tallyman.Proof{Pod: pod}, err
}

func (g *Gateway) hello(c call) error {
	var h tallyman.Hello
	if err := decode(c, maxHello, &h); err != nil {
		return err
	}
	if err := checkCursor(h.LastCursor); err != nil {
		return err
	}
	proof, err := g.prove(c)
	if err != nil {
		return err
	}
	w, verdict, err := g.control.Greet(c.r.Context(), c.ref, proof, h)
	if err != nil {
		return err
	}
	if w.AttemptKey != "" {
		c.key = w.AttemptKey
	}
	g.log.DebugContext(c.r.Context(), "hello", "attempt", c.ref.String(), "verdict", verdict,
		"epoch", w.Epoch, "journal", h.JournalID, "last", h.LastCursor, "version", h.Version, "process", h.Process)
	switch verdict {
	case tallyman.HelloWelcome:
		w.LeaseSeconds = int(Lease / time.Second)
		g.conns.open(c.ref, w.Epoch, h.JournalID, c.key)
		writeJSON(c.w, http.StatusOK, w)
		return nil
	case tallyman.HelloFinal:
		c.w.Header().Set("Tallyman-Final", "true")
		return tallyman.Errorf(tallyman.Stale, "attempt %s is final: its state takes nothing more", c.ref)
	case tallyman.HelloStale:
		return tallyman.Errorf(tallyman.Stale, "attempt %s: this is not the process that works it", c.ref)
	case tallyman.HelloMismatch:
		return tallyman.Errorf(tallyman.Conflict, "attempt %s has another journal than %s", c.ref, h.JournalID)
	case tallyman.HelloRegressed:
		return tallyman.Errorf(tallyman.Conflict, "journal %s ends at %d, more of it was seen before", h.JournalID, h.LastCursor)
	default:
		return fmt.Errorf("hello of %s: no answer for verdict %q", c.ref, verdict)
	}
}

// check returns the journal of the caller's attempt when the key is its own.
// A connection remembers it, so that a call costs no look into the store.
func (g *Gateway) check(c call) (journal string, err error) {
	if journal, ok := g.conns.check(c.ref, c.key); ok {
		return journal, nil
	}
	a, err := g.control.CheckKey(c.r.Context(), c.ref, c.key)
	return a.Journal, err
}

// checkCursor refuses what no journal reaches and no database holds.
func checkCursor(cursor uint64) error {
	if cursor > 1<<62 {
		return tallyman.Errorf(tallyman.Invalid, "%d is not the cursor of an event", cursor)
	}
	return nil
}

func epochOf(r *http.Request) (int64, error) {
	n, err := strconv.ParseInt(r.URL.Query().Get("epoch"), 10, 64)
	if err != nil || n < 1 {
		return 0, tallyman.Errorf(tallyman.Invalid, "epoch %q is not a positive number", r.URL.Query().Get("epoch"))
	}
	return n, nil
}

func (g *Gateway) facts(c call) error {
	epoch, err := epochOf(c.r)
	if err != nil {
		return err
	}
	if _, err := g.check(c); err != nil {
		return err
	}
	var report tallyman.ControlReport
	if err := decode(c, maxControl, &report); err != nil {
		return err
	}
	for _, f := range report.Facts {
		if err := checkCursor(f.Cursor); err != nil {
			return err
		}
	}
	answer, err := g.control.Report(c.r.Context(), c.ref, epoch, report)
	if err != nil {
		return err
	}
	g.conns.touch(c.ref, epoch)
	for _, f := range report.Facts {
		if f.Kind == tallyman.FactFinal {
			g.conns.close(c.ref)
		}
	}
	writeJSON(c.w, http.StatusOK, answer)
	return nil
}

func (g *Gateway) prompt(c call) error {
	if _, err := g.check(c); err != nil {
		return err
	}
	body, size, err := g.control.Prompt(c.r.Context(), c.ref.RunID)
	if err != nil {
		return err
	}
	defer body.Close()
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	c.w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	if _, err := io.Copy(c.w, body); err != nil {
		g.log.WarnContext(c.r.Context(), "sending a prompt", "attempt", c.ref.String(), "err", err)
	}
	return nil
}
