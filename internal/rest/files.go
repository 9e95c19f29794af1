package rest

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"io"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tallyman-dev/tallyman"
)

type fileInput struct {
	RunPath
	Name string `query:"name" required:"true" doc:"its path in the workspace"`
}

// bytesOf describes an answer that is no JSON.
func bytesOf(what, contentType string) map[string]*huma.Response {
	return map[string]*huma.Response{"200": {Description: what, Content: map[string]*huma.MediaType{contentType: {}}}}
}

func (a *api) files(h huma.API) {
	type artifacts struct {
		Body struct {
			Items []tallyman.Artifact `json:"items"`
		}
	}
	huma.Register(h, huma.Operation{
		OperationID: "list-artifacts", Method: http.MethodGet, Path: "/api/v1/runs/{id}/artifacts", Tags: []string{"artifacts"},
		Summary: "The files that a run left",
	}, func(ctx context.Context, in *RunPath) (o *artifacts, err error) {
		o = &artifacts{}
		o.Body.Items, err = ofRun(ctx, a, in.ID, Source.Artifacts)
		return o, err
	})

	huma.Register(h, huma.Operation{
		OperationID: "get-artifact", Method: http.MethodGet, Path: "/api/v1/runs/{id}/artifact", Tags: []string{"artifacts"},
		Summary: "The bytes of a file that a run left", Responses: bytesOf("the file", "application/octet-stream"),
	}, func(ctx context.Context, in *fileInput) (*huma.StreamResponse, error) {
		o, err := a.artifact(ctx, in)
		return o, a.refuse(ctx, err)
	})

	huma.Register(h, huma.Operation{
		OperationID: "get-prompt", Method: http.MethodGet, Path: "/api/v1/runs/{id}/prompt", Tags: []string{"runs"},
		Summary: "The whole prompt of a run, as text", Responses: bytesOf("the prompt", "text/plain"),
	}, func(ctx context.Context, in *RunPath) (*huma.StreamResponse, error) {
		o, err := a.prompt(ctx, in)
		return o, a.refuse(ctx, err)
	})
}

func (a *api) artifact(ctx context.Context, in *fileInput) (*huma.StreamResponse, error) {
	run, err := a.src.Run(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	f, art, err := a.src.OpenArtifact(ctx, run.ID, in.Name)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		hc.SetHeader("Content-Type", "application/octet-stream")
		hc.SetHeader("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(art.Name)}))
		if sum, err := hex.DecodeString(strings.TrimPrefix(art.Digest, "sha256:")); err == nil {
			hc.SetHeader("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum)+":") // as RFC 9530 has it
		}
		a.pour(hc, f, art.Size, "artifact", "run", run.ID, "name", art.Name)
	}}, nil
}

func (a *api) prompt(ctx context.Context, in *RunPath) (*huma.StreamResponse, error) {
	run, err := a.src.Run(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	body, size, err := a.src.OpenPrompt(ctx, run.ID)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		hc.SetHeader("Content-Type", "text/plain; charset=utf-8")
		a.pour(hc, body, size, "prompt", "run", run.ID)
	}}, nil
}

// pour answers with a file's bytes and closes it. An answer that breaks off
// is logged, with what it was about.
func (a *api) pour(hc huma.Context, f io.ReadCloser, size int64, what string, about ...any) {
	defer f.Close()
	hc.SetHeader("Content-Length", strconv.FormatInt(size, 10))
	hc.SetHeader("X-Content-Type-Options", "nosniff")
	hc.SetStatus(http.StatusOK)
	if _, err := io.Copy(hc.BodyWriter(), f); err != nil && hc.Context().Err() == nil {
		a.log.WarnContext(hc.Context(), "sending "+what, append(about, "err", err)...)
	}
}
