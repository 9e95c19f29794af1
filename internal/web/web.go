// Package web is the dashboard: pages rendered on the server, live by
// server-sent events, readable without JavaScript. It knows nothing of stores
// or services: a Source gives it what it shows and takes what it is asked.
package web

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/tallyman-dev/tallyman"
)

// Source is what the pages show and act upon. Its methods may be called
// concurrently. An error's code decides what the page answers.
type Source interface {
	// Runs returns a page of runs, newest first, and the After of the next
	// page, "" at the end. Their Waiting.Position need not be counted.
	Runs(ctx context.Context, f tallyman.Filter) (items []tallyman.Run, next string, err error)
	// Counts returns how many runs of each namespace are in each state.
	Counts(ctx context.Context) (map[string]map[tallyman.State]int, error)
	// Run returns a run by id or name.
	Run(ctx context.Context, id string) (tallyman.Run, error)
	// Attempts returns the attempts of a run in their order.
	Attempts(ctx context.Context, runID string) ([]tallyman.Attempt, error)
	Timeline(ctx context.Context, runID string) ([]tallyman.TimelineEntry, error)
	Artifacts(ctx context.Context, runID string) ([]tallyman.Artifact, error)
	Prompt(ctx context.Context, runID string) (string, error)
	// Command returns the command line of an exec run.
	Command(ctx context.Context, runID string) ([]string, error)

	// Events gives the stored events after an id, in order, to the end as it
	// is now. The line, one event's JSON, is valid until fn returns. An error
	// of fn ends it and is returned.
	Events(ctx context.Context, runID string, after tallyman.EventID, fn func(id tallyman.EventID, line []byte) error) error
	// Follow gives the events after an id, exactly once and in order, and
	// between them the deltas (a tallyman.Delta's JSON) of who speaks now. It
	// returns nil once the run's last event was given.
	Follow(ctx context.Context, runID string, after tallyman.EventID, fn func(id tallyman.EventID, line []byte, delta bool) error) error
	// WatchRuns notices that the list may have changed, until ctx ends.
	WatchRuns(ctx context.Context) <-chan struct{}

	Agents(ctx context.Context) ([]tallyman.Agent, error)
	Stop(ctx context.Context, id string) (tallyman.Run, error)
	// Rerun submits the run again with what set changes in its request.
	Rerun(ctx context.Context, id string, set map[string]string) (tallyman.Run, error)
	Submit(ctx context.Context, r tallyman.Request) (tallyman.Run, error)
	Delete(ctx context.Context, id string) error
	OpenArtifact(ctx context.Context, runID, name string) (io.ReadSeekCloser, tallyman.Artifact, error)
}

// Options are the surroundings of the pages.
type Options struct {
	// BasePath is the prefix that the pages live under, "" or like "/tallyman".
	// The handler expects it in the request's path.
	BasePath string
	Version  string
	Log      *slog.Logger // nil: nothing is logged
	// Token returns the session's CSRF token; Check refuses a POST that lacks
	// it in its form value CSRFField. Without Check every POST is refused.
	Token func(r *http.Request) string
	Check func(r *http.Request) error
}

// CSRFField is the form field that carries Options.Token.
const CSRFField = "csrf"

// maxForm bounds the body of a POST: a prompt above it goes through the API.
const maxForm = 12 << 20

type site struct {
	src    Source
	o      Options
	base   string
	log    *slog.Logger
	pages  *pages
	assets *assets
	cross  *http.CrossOriginProtection
}

// New returns the dashboard's handler.
func New(src Source, o Options) http.Handler {
	s := &site{src: src, o: o, base: strings.TrimRight(o.BasePath, "/"), log: o.Log, cross: http.NewCrossOriginProtection()}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.assets = loadAssets(s.base)
	s.pages = loadPages(s.base, s.assets)

	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.home)
	mux.HandleFunc("GET /runs", s.list)
	mux.HandleFunc("GET /runs/live", s.listLive)
	mux.HandleFunc("GET /runs/{id}", s.run)
	mux.HandleFunc("GET /runs/{id}/live", s.runLive)
	mux.HandleFunc("GET /runs/{id}/events", s.earlier)
	mux.HandleFunc("GET /runs/{id}/events/{event}", s.event)
	mux.HandleFunc("GET /runs/{id}/events.ndjson", s.rawEvents)
	mux.HandleFunc("GET /runs/{id}/transcript.txt", s.transcriptText)
	mux.HandleFunc("GET /runs/{id}/prompt", s.prompt)
	mux.HandleFunc("GET /runs/{id}/artifacts/{name...}", s.artifact)
	mux.HandleFunc("POST /runs/{id}/stop", s.stop)
	mux.HandleFunc("POST /runs/{id}/rerun", s.rerun)
	mux.HandleFunc("POST /runs/{id}/delete", s.remove)
	mux.HandleFunc("GET /new", s.newRun)
	mux.HandleFunc("POST /new", s.submit)
	mux.HandleFunc("GET /assets/{file}", s.assets.serve)
	mux.HandleFunc("/", s.nowhere)
	return http.StripPrefix(s.base, headers(mux))
}

// policy lets a page load and send only what is ours; nothing inline runs.
const policy = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

func (s *site) home(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, s.base+"/runs", http.StatusSeeOther)
}

func (s *site) nowhere(w http.ResponseWriter, r *http.Request) {
	s.fail(w, r, tallyman.Errorf(tallyman.NotFound, "there is no page %s", r.URL.Path))
}

// token returns the session's CSRF token, "" without one.
func (s *site) token(r *http.Request) string {
	if s.o.Token == nil {
		return ""
	}
	return s.o.Token(r)
}

var statuses = map[tallyman.Code]int{
	tallyman.Invalid: http.StatusBadRequest, tallyman.NotFound: http.StatusNotFound, tallyman.Conflict: http.StatusConflict,
	tallyman.Unauthorized: http.StatusUnauthorized, tallyman.TooLarge: http.StatusRequestEntityTooLarge,
	tallyman.Unavailable: http.StatusServiceUnavailable, tallyman.Stale: http.StatusConflict, tallyman.Unsupported: http.StatusNotImplemented,
}

// fail answers with a page that tells the error; what has no code is logged
// whole and told as an internal error.
func (s *site) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // nobody is there to read it
	}
	status, told := s.told(r, err)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	s.show(w, r, "error.html", s.page(r, http.StatusText(status), errorPage{
		Status: status, Text: http.StatusText(status), Message: told, Login: status == http.StatusUnauthorized,
	}))
}

// told returns the status and the sentence for an error.
func (s *site) told(r *http.Request, err error) (int, string) {
	status, known := statuses[tallyman.CodeOf(err)]
	if !known {
		s.log.ErrorContext(r.Context(), "answering", "method", r.Method, "path", r.URL.Path, "err", err)
		return http.StatusInternalServerError, "The server's log says more."
	}
	return status, err.Error()
}

type errorPage struct {
	Status        int
	Text, Message string
	Login         bool
}

// page is what every page's template is given.
type page struct {
	Title, Version, Token, Nav string
	Body                       any
}

func (s *site) page(r *http.Request, title string, body any) page {
	nav := "runs"
	if r.URL.Path == "/new" {
		nav = "new"
	}
	return page{Title: title, Version: s.o.Version, Token: s.token(r), Nav: nav, Body: body}
}

// show writes a page, or the error that kept it from being made.
func (s *site) show(w http.ResponseWriter, r *http.Request, name string, p page) {
	if err := s.pages.render(w, name, p); err != nil {
		s.log.ErrorContext(r.Context(), "writing page", "page", name, "err", err)
	}
}
