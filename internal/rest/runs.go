package rest

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/auth"
)

// RunPath names a run in a path.
type RunPath struct {
	ID string `path:"id" doc:"id, name, or a unique part of the id" maxLength:"128"`
}

type runOutput struct {
	Body tallyman.Run
}

// Page is a page of runs.
type Page struct {
	Items []tallyman.Run `json:"items"`
	Next  string         `json:"next" doc:"cursor of the next page, empty at the end"`
}

func (a *api) runs(h huma.API) {
	type listInput struct {
		Namespace string   `query:"namespace"`
		State     []string `query:"state,explode" doc:"any of these states; several may be given, or one list with commas"`
		Agent     string   `query:"agent"`
		Label     []string `query:"label,explode" doc:"key=value; several may be given, all must match"`
		Text      string   `query:"q" doc:"words in name, agent, labels or the beginning of the prompt"`
		Limit     int      `query:"limit" minimum:"1" maximum:"1000" default:"50"`
		Cursor    string   `query:"cursor"`
	}
	type listOutput struct{ Body Page }
	huma.Register(h, huma.Operation{
		OperationID: "list-runs", Method: http.MethodGet, Path: "/api/v1/runs", Tags: []string{"runs"},
		Summary: "List runs, the newest first",
	}, func(ctx context.Context, in *listInput) (*listOutput, error) {
		f := tallyman.Filter{Namespace: in.Namespace, Agent: in.Agent, Text: in.Text, Limit: in.Limit, After: in.Cursor, Labels: map[string]string{}}
		for _, s := range strings.FieldsFunc(strings.Join(in.State, ","), func(r rune) bool { return r == ',' }) {
			state := tallyman.State(s)
			if !state.Valid() {
				return nil, a.refuse(ctx, tallyman.Errorf(tallyman.Invalid, "state %q does not exist; known are %v", s, tallyman.States))
			}
			f.States = append(f.States, state)
		}
		for _, l := range in.Label {
			k, v, ok := strings.Cut(l, "=")
			if !ok {
				return nil, a.refuse(ctx, tallyman.Errorf(tallyman.Invalid, "label %q: write it KEY=VALUE", l))
			}
			f.Labels[k] = v
		}
		items, next, err := a.src.Runs(ctx, f)
		return &listOutput{Page{Items: list(items), Next: next}}, a.refuse(ctx, err)
	})

	huma.Register(h, huma.Operation{
		OperationID: "get-run", Method: http.MethodGet, Path: "/api/v1/runs/{id}", Tags: []string{"runs"},
		Summary: "A run, with its whole result",
	}, func(ctx context.Context, in *RunPath) (*runOutput, error) {
		run, err := a.src.Run(ctx, in.ID)
		return &runOutput{run}, a.refuse(ctx, err)
	})

	type attempts struct {
		Body struct {
			Items []tallyman.Attempt `json:"items"`
		}
	}
	huma.Register(h, huma.Operation{
		OperationID: "list-attempts", Method: http.MethodGet, Path: "/api/v1/runs/{id}/attempts", Tags: []string{"runs"},
		Summary: "The attempts of a run: why each ended, its last lines and times",
	}, func(ctx context.Context, in *RunPath) (*attempts, error) {
		o := &attempts{}
		run, err := a.src.Run(ctx, in.ID)
		if err == nil {
			o.Body.Items, err = a.src.Attempts(ctx, run.ID)
		}
		o.Body.Items = list(o.Body.Items)
		return o, a.refuse(ctx, err)
	})

	type timeline struct {
		Body struct {
			Items []tallyman.TimelineEntry `json:"items"`
		}
	}
	huma.Register(h, huma.Operation{
		OperationID: "get-timeline", Method: http.MethodGet, Path: "/api/v1/runs/{id}/timeline", Tags: []string{"runs"},
		Summary: "What the server decided and saw about a run",
	}, func(ctx context.Context, in *RunPath) (*timeline, error) {
		o := &timeline{}
		run, err := a.src.Run(ctx, in.ID)
		if err == nil {
			o.Body.Items, err = a.src.Timeline(ctx, run.ID)
		}
		o.Body.Items = list(o.Body.Items)
		return o, a.refuse(ctx, err)
	})
}

func (a *api) changes(h huma.API) {
	type submitInput struct {
		Key string `header:"Idempotency-Key" doc:"the same key brings the same run"`
		rawBody
	}
	type submitOutput struct {
		Status int
		Body   tallyman.Run
	}
	huma.Register(h, huma.Operation{
		OperationID: "submit-run", Method: http.MethodPost, Path: "/api/v1/runs", Tags: []string{"runs"},
		Summary: "Submit a run", DefaultStatus: http.StatusCreated, MaxBodyBytes: maxBody,
		Description: "201: the run was created. 200: the Idempotency-Key has brought this run before.",
		RequestBody: bodyOf[tallyman.Request](h), SkipValidateBody: true,
	}, func(ctx context.Context, in *submitInput) (*submitOutput, error) {
		var req tallyman.Request
		if err := decode(in.RawBody, &req); err != nil {
			return nil, a.refuse(ctx, err)
		}
		if in.Key != "" && req.Key != "" && in.Key != req.Key {
			return nil, a.refuse(ctx, tallyman.Errorf(tallyman.Invalid, "the Idempotency-Key is %q, the body's key is %q: give one, or the same", in.Key, req.Key))
		}
		if in.Key != "" {
			req.Key = in.Key
		}
		if err := oneNamespace(req.Namespace); err != nil {
			return nil, a.refuse(ctx, err)
		}
		if err := a.ownerOnly(ctx, &req); err != nil {
			return nil, a.refuse(ctx, err)
		}
		run, created, err := a.src.Submit(ctx, req)
		o := &submitOutput{Status: http.StatusOK, Body: run}
		if created {
			o.Status = http.StatusCreated
		}
		return o, a.refuse(ctx, err)
	})

	huma.Register(h, huma.Operation{
		OperationID: "stop-run", Method: http.MethodPost, Path: "/api/v1/runs/{id}/stop", Tags: []string{"runs"},
		Summary: "Ask a run to end; one that has ended stays as it is",
	}, func(ctx context.Context, in *RunPath) (*runOutput, error) {
		by := "the API"
		if auth.IsOwner(ctx) {
			by = "the command line"
		}
		run, err := a.src.Stop(ctx, in.ID, by)
		return &runOutput{run}, a.refuse(ctx, err)
	})

	type rerunBody struct {
		Set map[string]string `json:"set,omitempty" doc:"prompt, model, agent, priority, limits by name, label.KEY, env.KEY"`
	}
	type rerunInput struct {
		RunPath
		rawBody
	}
	type rerunOutput struct {
		Status int
		Body   tallyman.Run
	}
	huma.Register(h, huma.Operation{
		OperationID: "rerun", Method: http.MethodPost, Path: "/api/v1/runs/{id}/rerun", Tags: []string{"runs"},
		Summary: "Submit a run's request again, with changes", DefaultStatus: http.StatusCreated, RequestBody: bodyOf[rerunBody](h), SkipValidateBody: true, MaxBodyBytes: maxBody,
	}, func(ctx context.Context, in *rerunInput) (*rerunOutput, error) {
		var b rerunBody
		if err := decode(in.RawBody, &b); err != nil {
			return nil, a.refuse(ctx, err)
		}
		source := tallyman.SourceAPI
		if auth.IsOwner(ctx) {
			source = tallyman.SourceCLI
		}
		run, err := a.src.Rerun(ctx, in.ID, b.Set, source)
		return &rerunOutput{http.StatusCreated, run}, a.refuse(ctx, err)
	})

	huma.Register(h, huma.Operation{
		OperationID: "delete-run", Method: http.MethodDelete, Path: "/api/v1/runs/{id}", Tags: []string{"runs"},
		Summary: "Remove an ended run with its events and artifacts", DefaultStatus: http.StatusNoContent,
	}, func(ctx context.Context, in *RunPath) (*struct{}, error) {
		return nil, a.refuse(ctx, a.src.Delete(ctx, in.ID))
	})
}

// oneNamespace refuses a run where nobody would find it: names, counts and
// the dashboard of one machine know the default namespace alone.
func oneNamespace(namespace string) error {
	if namespace != "" && namespace != tallyman.DefaultNamespace {
		return tallyman.Errorf(tallyman.Invalid, "namespace %q: this version has only %q; leave the namespace out", namespace, tallyman.DefaultNamespace)
	}
	return nil
}

// ownerOnly refuses what only the owner, over the socket, may ask for.
func (a *api) ownerOnly(ctx context.Context, req *tallyman.Request) error {
	if auth.IsOwner(ctx) {
		return nil
	}
	if req.Inline != nil {
		return tallyman.Errorf(tallyman.Invalid, "inline: an agent comes with a submit over the socket only; put its file where the server looks for agents")
	}
	if req.Workspace != nil && strings.HasPrefix(req.Workspace.Path, "/") {
		return tallyman.Errorf(tallyman.Invalid, "workspace %s: a folder of the server's machine is named over the socket only, or in the agent's file", req.Workspace.Path)
	}
	req.Source = tallyman.SourceAPI
	return nil
}
