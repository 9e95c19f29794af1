// Package rest is the HTTP API: OpenAPI 3.1 from the Go types, problems as
// RFC 9457 has them, pages by cursor, and streams of events.
package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/auth"
)

// Source is what the API shows and changes.
type Source interface {
	Runs(ctx context.Context, f tallyman.Filter) (items []tallyman.Run, next string, err error)
	Run(ctx context.Context, id string) (tallyman.Run, error)
	Attempts(ctx context.Context, runID string) ([]tallyman.Attempt, error)
	Timeline(ctx context.Context, runID string) ([]tallyman.TimelineEntry, error)
	Artifacts(ctx context.Context, runID string) ([]tallyman.Artifact, error)
	OpenArtifact(ctx context.Context, runID, name string) (io.ReadSeekCloser, tallyman.Artifact, error)
	OpenPrompt(ctx context.Context, runID string) (io.ReadCloser, int64, error)
	Agents(ctx context.Context) ([]tallyman.Agent, error)

	Submit(ctx context.Context, r tallyman.Request) (run tallyman.Run, created bool, err error)
	Preview(ctx context.Context, r tallyman.Request) (json.RawMessage, error)
	Stop(ctx context.Context, id, by string) (tallyman.Run, error)
	Rerun(ctx context.Context, id string, set map[string]string, source tallyman.Source) (tallyman.Run, error)
	Delete(ctx context.Context, id string) error
	Prune(ctx context.Context, p tallyman.PruneRequest) (tallyman.PruneResult, error)

	Events(ctx context.Context, runID string, after tallyman.EventID, fn func(id tallyman.EventID, line []byte, delta bool) error) error
	Follow(ctx context.Context, runID string, after tallyman.EventID, fn func(id tallyman.EventID, line []byte, delta bool) error) error
	Watch(ctx context.Context) <-chan struct{}
}

// maxBody bounds a submit: a prompt of 64 MiB, escaped at its worst.
const maxBody = 400 << 20

type api struct {
	src  Source
	info func() tallyman.Info
	auth *auth.Auth
	log  *slog.Logger
}

// Routes adds the API to a mux, under /api/v1, and its description.
func Routes(mux *http.ServeMux, src Source, info func() tallyman.Info, a *auth.Auth, log *slog.Logger) {
	config := huma.DefaultConfig("tallyman", info().Version)
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "/openapi", "", ""
	config.CreateHooks = nil                   // no $schema in answers
	config.RejectUnknownQueryParameters = true // a mistyped filter must not list everything
	config.Info.Description = "Runs AI agents' work and tells the truth about it."
	registry := config.Components.Schemas
	registry.RegisterTypeAlias(reflect.TypeFor[tallyman.Workspace](), reflect.TypeFor[any]())
	registry.RegisterTypeAlias(reflect.TypeFor[json.RawMessage](), reflect.TypeFor[any]())
	h := &api{src: src, info: info, auth: a, log: log}
	humaAPI := humago.New(mux, config)
	humaAPI.UseMiddleware(func(hc huma.Context, next func(huma.Context)) {
		if u := hc.URL(); !readable(u.RawQuery) {
			_ = huma.WriteErr(humaAPI, hc, http.StatusBadRequest, "the query cannot be read: write % as %25 and ; as %3B") // a caller that has gone reads nothing
			return
		}
		next(hc)
	})
	h.runs(humaAPI)
	h.changes(humaAPI)
	h.streams(humaAPI)
	h.files(humaAPI)
	h.server(humaAPI)
	describe(humaAPI.OpenAPI())
	mux.HandleFunc("/api/", nowhere)
}

// describe adds to the description what cannot be read off the types.
func describe(doc *huma.OpenAPI) {
	run := doc.Components.Schemas.Map()["Run"]
	run.Properties["labels"].Nullable = true
	run.Properties["waiting"] = &huma.Schema{AnyOf: []*huma.Schema{run.Properties["waiting"], {Type: "null"}}}
	for _, path := range doc.Paths {
		for _, op := range []*huma.Operation{path.Post, path.Put, path.Patch, path.Delete} {
			if op == nil || op.RequestBody == nil {
				continue
			}
			if schema, ok := op.RequestBody.Extensions[bodySchema].(*huma.Schema); ok {
				op.RequestBody.Extensions = nil
				op.RequestBody.Content = map[string]*huma.MediaType{"application/json": {Schema: schema}}
			}
		}
	}
	doc.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer", Description: "the token in DATA/token, or of --token-file"}}
	doc.Security = []map[string][]string{{"token": {}}}
	submit := doc.Paths["/api/v1/runs"].Post
	submit.Responses["200"] = &huma.Response{Description: "the Idempotency-Key has brought this run before", Content: submit.Responses["201"].Content}
}

// readable reports whether all of a query is taken: net/http drops what it
// cannot read, and a filter that is dropped lists everything.
func readable(query string) bool {
	_, err := url.ParseQuery(query)
	return err == nil
}

// nowhere answers calls that do not exist.
func nowhere(w http.ResponseWriter, r *http.Request) {
	b, err := json.Marshal(problem(http.StatusNotFound, r.Method+" "+r.URL.Path+" is no call of this API; /openapi.json lists them all"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write(b) // a caller that has gone reads nothing
}

// huma asks this variable for its errors, and has no other way: it is set
// once, before anything is served.
func init() { huma.NewError = problem }

// problem makes huma's own errors ours: a body or parameter that does not fit
// is a bad request.
func problem(status int, msg string, errs ...error) huma.StatusError {
	if status == http.StatusUnprocessableEntity {
		status = http.StatusBadRequest
	}
	p := &Problem{Code: tallyman.Invalid}
	p.Status, p.Title, p.Detail = status, http.StatusText(status), msg
	switch {
	case status == http.StatusNotFound:
		p.Code = tallyman.NotFound
	case status == http.StatusRequestEntityTooLarge:
		p.Code = tallyman.TooLarge
	case status >= http.StatusInternalServerError:
		p.Code = tallyman.Internal
	}
	for _, err := range errs {
		if err == nil {
			continue
		}
		if d, ok := err.(huma.ErrorDetailer); ok {
			p.Errors = append(p.Errors, d.ErrorDetail())
		} else {
			p.Errors = append(p.Errors, &huma.ErrorDetail{Message: err.Error()})
		}
	}
	return p
}

// Problem is an error as the API tells it.
type Problem struct {
	huma.ErrorModel
	Code   tallyman.Code   `json:"code"`
	Reason tallyman.Reason `json:"reason,omitempty"`
}

var statuses = map[tallyman.Code]int{
	tallyman.Invalid: http.StatusBadRequest, tallyman.NotFound: http.StatusNotFound,
	tallyman.Conflict: http.StatusConflict, tallyman.Unauthorized: http.StatusForbidden,
	tallyman.TooLarge: http.StatusRequestEntityTooLarge, tallyman.Unavailable: http.StatusServiceUnavailable,
	tallyman.Stale: http.StatusGone, tallyman.Unsupported: http.StatusBadRequest,
}

// flat is all that callers are told of an error without a code.
const flat = "internal error; the server's log has it"

// refuse turns an error of ours into a problem. What has no code is logged
// whole and told flat.
func (a *api) refuse(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	code := tallyman.CodeOf(err)
	status, known := statuses[code]
	text := err.Error()
	if !known {
		if ctx.Err() == nil {
			a.log.ErrorContext(ctx, "API", "err", err)
			status, text = http.StatusInternalServerError, flat
		} else { // the caller has gone, or we have to
			code, status, text = tallyman.Unavailable, http.StatusServiceUnavailable, "the server is ending; ask again"
		}
	}
	p := &Problem{Code: code}
	p.Status, p.Title, p.Detail = status, http.StatusText(status), text
	var e *tallyman.Error
	if errors.As(err, &e) {
		p.Reason = e.Reason
	}
	return p
}

// decode reads a JSON body strictly.
func decode(body []byte, v any) error {
	if !utf8.Valid(body) {
		return tallyman.Errorf(tallyman.Invalid, "the body is not UTF-8, as JSON must be")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return explain(body, v, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return tallyman.Errorf(tallyman.Invalid, "the body goes on after its JSON object")
	}
	return nil
}

func (a *api) server(h huma.API) {
	type out struct{ Body tallyman.Info }
	huma.Register(h, huma.Operation{
		OperationID: "get-info", Method: http.MethodGet, Path: "/api/v1/info", Tags: []string{"server"},
		Summary: "The server: version, data folder, caps",
	}, func(ctx context.Context, _ *struct{}) (*out, error) { return &out{a.info()}, nil })

	type link struct {
		Body struct {
			URL string `json:"url" doc:"opens the dashboard, once, within 15 minutes"`
		}
	}
	huma.Register(h, huma.Operation{
		OperationID: "create-login-link", Method: http.MethodPost, Path: "/api/v1/login-link", Tags: []string{"server"},
		Summary: "A link that logs one browser in, once",
	}, func(ctx context.Context, _ *struct{}) (*link, error) {
		url := a.info().URL
		if url == "" {
			return nil, a.refuse(ctx, tallyman.Errorf(tallyman.Unsupported, "this server has no dashboard: it listens on its socket only; start tallyman up"))
		}
		l := &link{}
		l.Body.URL = url + "/login?code=" + a.auth.LoginCode()
		return l, nil
	})

	type agents struct {
		Body struct {
			Items []tallyman.Agent `json:"items"`
		}
	}
	huma.Register(h, huma.Operation{
		OperationID: "list-agents", Method: http.MethodGet, Path: "/api/v1/agents", Tags: []string{"agents"},
		Summary: "The agents that the server knows",
	}, func(ctx context.Context, _ *struct{}) (*agents, error) {
		items, err := a.src.Agents(ctx)
		o := &agents{}
		o.Body.Items = list(items)
		return o, a.refuse(ctx, err)
	})

	type prune struct{ Body tallyman.PruneResult }
	huma.Register(h, huma.Operation{
		OperationID: "prune", Method: http.MethodPost, Path: "/api/v1/prune", Tags: []string{"server"},
		Summary: "Remove ended runs that are older than an age", RequestBody: bodyOf[tallyman.PruneRequest](h), SkipValidateBody: true, MaxBodyBytes: 1 << 20,
	}, func(ctx context.Context, in *rawBody) (*prune, error) {
		var given struct {
			Age    *tallyman.Duration `json:"age"`
			DryRun bool               `json:"dry_run"`
		}
		if err := decode(in.RawBody, &given); err != nil {
			return nil, a.refuse(ctx, err)
		}
		if given.Age == nil {
			return nil, a.refuse(ctx, tallyman.Errorf(tallyman.Invalid, "age is missing: write it like 720h; 0s removes every ended run"))
		}
		r, err := a.src.Prune(ctx, tallyman.PruneRequest{Age: *given.Age, DryRun: given.DryRun})
		return &prune{r}, a.refuse(ctx, err)
	})
}

// list is never null in JSON.
func list[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

// rawBody is a body that we decode ourselves, strictly: decode tells line and
// nearest name, huma's validation would not.
type rawBody struct {
	RawBody []byte `contentType:"application/json"`
}

// bodySchema is where a body's schema is while huma makes bytes of it.
const bodySchema = "x-schema"

// bodyOf describes a JSON body of type T, for describe.
func bodyOf[T any](h huma.API) *huma.RequestBody {
	schema := h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
	return &huma.RequestBody{Required: true, Extensions: map[string]any{bodySchema: schema}}
}
