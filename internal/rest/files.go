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

func (a *api) files(h huma.API) {
	type artifacts struct {
		Body struct {
			Items []tallyman.Artifact `json:"items"`
		}
	}
	huma.Register(h, huma.Operation{
		OperationID: "list-artifacts", Method: http.MethodGet, Path: "/api/v1/runs/{id}/artifacts", Tags: []string{"artifacts"},
		Summary: "The files that a run left",
	}, func(ctx context.Context, in *RunPath) (*artifacts, error) {
		o := &artifacts{}
		run, err := a.src.Run(ctx, in.ID)
		if err == nil {
			o.Body.Items, err = a.src.Artifacts(ctx, run.ID)
		}
		o.Body.Items = list(o.Body.Items)
		return o, a.refuse(ctx, err)
	})

	type fileInput struct {
		RunPath
		Name string `query:"name" required:"true" doc:"its path in the workspace"`
	}
	huma.Register(h, huma.Operation{
		OperationID: "get-artifact", Method: http.MethodGet, Path: "/api/v1/runs/{id}/artifact", Tags: []string{"artifacts"},
		Summary:   "The bytes of a file that a run left",
		Responses: map[string]*huma.Response{"200": {Description: "the file", Content: map[string]*huma.MediaType{"application/octet-stream": {}}}},
	}, func(ctx context.Context, in *fileInput) (*huma.StreamResponse, error) {
		run, err := a.src.Run(ctx, in.ID)
		if err != nil {
			return nil, a.refuse(ctx, err)
		}
		f, art, err := a.src.OpenArtifact(ctx, run.ID, in.Name)
		if err != nil {
			return nil, a.refuse(ctx, err)
		}
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			defer f.Close()
			hc.SetHeader("Content-Type", "application/octet-stream")
			hc.SetHeader("Content-Length", strconv.FormatInt(art.Size, 10))
			hc.SetHeader("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(art.Name)}))
			hc.SetHeader("X-Content-Type-Options", "nosniff")
			if sum, err := hex.DecodeString(strings.TrimPrefix(art.Digest, "sha256:")); err == nil {
				hc.SetHeader("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum)+":") // as RFC 9530 has it
			}
			hc.SetStatus(http.StatusOK)
			if _, err := io.Copy(hc.BodyWriter(), f); err != nil && hc.Context().Err() == nil {
				a.log.WarnContext(hc.Context(), "sending an artifact", "run", run.ID, "name", art.Name, "err", err)
			}
		}}, nil
	})

	huma.Register(h, huma.Operation{
		OperationID: "get-prompt", Method: http.MethodGet, Path: "/api/v1/runs/{id}/prompt", Tags: []string{"runs"},
		Summary:   "The whole prompt of a run, as text",
		Responses: map[string]*huma.Response{"200": {Description: "the prompt", Content: map[string]*huma.MediaType{"text/plain": {}}}},
	}, func(ctx context.Context, in *RunPath) (*huma.StreamResponse, error) {
		run, err := a.src.Run(ctx, in.ID)
		if err != nil {
			return nil, a.refuse(ctx, err)
		}
		body, size, err := a.src.OpenPrompt(ctx, run.ID)
		if err != nil {
			return nil, a.refuse(ctx, err)
		}
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			defer body.Close()
			hc.SetHeader("Content-Type", "text/plain; charset=utf-8")
			hc.SetHeader("X-Content-Type-Options", "nosniff")
			hc.SetHeader("Content-Length", strconv.FormatInt(size, 10))
			hc.SetStatus(http.StatusOK)
			if _, err := io.Copy(hc.BodyWriter(), body); err != nil && hc.Context().Err() == nil {
				a.log.WarnContext(hc.Context(), "sending a prompt", "run", run.ID, "err", err)
			}
		}}, nil
	})
}
