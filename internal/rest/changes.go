package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/auth"
)

// createdOutput is a run that a call brought; its status tells whether the
// call created it.
type createdOutput struct {
	Status int
	Body   tallyman.Run
}

type submitInput struct {
	Key string `header:"Idempotency-Key" doc:"the same key brings the same run"`
	rawBody
}

// objectOutput is an object of a cluster, as it is there.
type objectOutput struct{ Body json.RawMessage }

type rerunBody struct {
	Set map[string]string `json:"set,omitempty" doc:"prompt, model, agent, priority, limits by name, label.KEY, env.KEY"`
}

type rerunInput struct {
	RunPath
	rawBody
}

func (a *api) changes(h huma.API) {
	huma.Register(h, huma.Operation{
		OperationID: "submit-run", Method: http.MethodPost, Path: "/api/v1/runs", Tags: []string{"runs"},
		Summary: "Submit a run", DefaultStatus: http.StatusCreated, MaxBodyBytes: maxBody,
		Description: "201: the run was created. 200: the Idempotency-Key has brought this run before.",
		RequestBody: bodyOf[tallyman.Request](h), SkipValidateBody: true,
	}, func(ctx context.Context, in *submitInput) (*createdOutput, error) {
		o, err := a.submit(ctx, in)
		return o, a.refuse(ctx, err)
	})

	huma.Register(h, huma.Operation{
		OperationID: "preview-run", Method: http.MethodPost, Path: "/api/v1/preview", Tags: []string{"runs"},
		Summary: "What a submit would make in the cluster: a Job, or a Pod; nothing is created", MaxBodyBytes: maxBody,
		RequestBody: bodyOf[tallyman.Request](h), SkipValidateBody: true,
	}, func(ctx context.Context, in *submitInput) (*objectOutput, error) {
		req, err := a.requested(ctx, in)
		if err != nil {
			return nil, a.refuse(ctx, err)
		}
		object, err := a.src.Preview(ctx, req)
		return &objectOutput{object}, a.refuse(ctx, err)
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

	huma.Register(h, huma.Operation{
		OperationID: "rerun", Method: http.MethodPost, Path: "/api/v1/runs/{id}/rerun", Tags: []string{"runs"},
		Summary: "Submit a run's request again, with changes", DefaultStatus: http.StatusCreated, RequestBody: bodyOf[rerunBody](h), SkipValidateBody: true, MaxBodyBytes: maxBody,
	}, func(ctx context.Context, in *rerunInput) (*createdOutput, error) {
		var b rerunBody
		if err := decode(in.RawBody, &b); err != nil {
			return nil, a.refuse(ctx, err)
		}
		source := tallyman.SourceAPI
		if auth.IsOwner(ctx) {
			source = tallyman.SourceCLI
		}
		run, err := a.src.Rerun(ctx, in.ID, b.Set, source)
		return &createdOutput{http.StatusCreated, run}, a.refuse(ctx, err)
	})

	huma.Register(h, huma.Operation{
		OperationID: "delete-run", Method: http.MethodDelete, Path: "/api/v1/runs/{id}", Tags: []string{"runs"},
		Summary: "Remove an ended run with its events and artifacts", DefaultStatus: http.StatusNoContent,
	}, func(ctx context.Context, in *RunPath) (*struct{}, error) {
		return nil, a.refuse(ctx, a.src.Delete(ctx, in.ID))
	})
}

// requested is the request of a submit.
func (a *api) requested(ctx context.Context, in *submitInput) (req tallyman.Request, err error) {
	if err := decode(in.RawBody, &req); err != nil {
		return req, err
	}
	if in.Key != "" && req.Key != "" && in.Key != req.Key {
		return req, tallyman.Errorf(tallyman.Invalid, "the Idempotency-Key is %q, the body's key is %q: give one, or the same", in.Key, req.Key)
	}
	if in.Key != "" {
		req.Key = in.Key
	}
	return req, a.ownerOnly(ctx, &req)
}

func (a *api) submit(ctx context.Context, in *submitInput) (*createdOutput, error) {
	req, err := a.requested(ctx, in)
	if err != nil {
		return nil, err
	}
	run, created, err := a.src.Submit(ctx, req)
	o := &createdOutput{Status: http.StatusOK, Body: run}
	if created {
		o.Status = http.StatusCreated
	}
	return o, err
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
