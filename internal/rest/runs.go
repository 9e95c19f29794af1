package rest

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tallyman-dev/tallyman"
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

type listInput struct {
	Namespace string   `query:"namespace" doc:"of agents in this namespace; all without it"`
	State     []string `query:"state,explode" doc:"any of these states; several may be given, or one list with commas"`
	Agent     string   `query:"agent" doc:"NAME, NAMESPACE/NAME, or NAMESPACE/ for all of those there"`
	Label     []string `query:"label,explode" doc:"key=value; several may be given, all must match"`
	Text      string   `query:"q" doc:"words in name, agent, labels or the beginning of the prompt"`
	Limit     int      `query:"limit" minimum:"1" maximum:"1000" default:"50"`
	Cursor    string   `query:"cursor"`
}

func (in *listInput) filter() (tallyman.Filter, error) {
	f := tallyman.Filter{Namespace: in.Namespace, Agent: in.Agent, Text: in.Text, Limit: in.Limit, After: in.Cursor, Labels: map[string]string{}}
	for _, s := range strings.FieldsFunc(strings.Join(in.State, ","), func(r rune) bool { return r == ',' }) {
		state := tallyman.State(s)
		if !state.Valid() {
			return f, tallyman.Errorf(tallyman.Invalid, "state %q does not exist; known are %s", s, strings.Join(tallyman.StateNames(), ", "))
		}
		f.States = append(f.States, state)
	}
	for _, l := range in.Label {
		k, v, ok := strings.Cut(l, "=")
		if !ok {
			return f, tallyman.Errorf(tallyman.Invalid, "label %q: write it KEY=VALUE", l)
		}
		f.Labels[k] = v
	}
	return f, nil
}

func (a *api) runs(h huma.API) {
	type listOutput struct{ Body Page }
	huma.Register(h, huma.Operation{
		OperationID: "list-runs", Method: http.MethodGet, Path: "/api/v1/runs", Tags: []string{"runs"},
		Summary: "List runs, the newest first",
	}, func(ctx context.Context, in *listInput) (*listOutput, error) {
		f, err := in.filter()
		if err != nil {
			return nil, a.refuse(ctx, err)
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
	}, func(ctx context.Context, in *RunPath) (o *attempts, err error) {
		o = &attempts{}
		o.Body.Items, err = ofRun(ctx, a, in.ID, Source.Attempts)
		return o, err
	})

	type timeline struct {
		Body struct {
			Items []tallyman.TimelineEntry `json:"items"`
		}
	}
	huma.Register(h, huma.Operation{
		OperationID: "get-timeline", Method: http.MethodGet, Path: "/api/v1/runs/{id}/timeline", Tags: []string{"runs"},
		Summary: "What the server decided and saw about a run",
	}, func(ctx context.Context, in *RunPath) (o *timeline, err error) {
		o = &timeline{}
		o.Body.Items, err = ofRun(ctx, a, in.ID, Source.Timeline)
		return o, err
	})
}

// ofRun reads a list of what there is of a run.
func ofRun[T any](ctx context.Context, a *api, id string, read func(src Source, ctx context.Context, runID string) ([]T, error)) ([]T, error) {
	run, err := a.src.Run(ctx, id)
	if err != nil {
		return nil, a.refuse(ctx, err)
	}
	items, err := read(a.src, ctx, run.ID)
	return list(items), a.refuse(ctx, err)
}
