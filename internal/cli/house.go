package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/blob"
	"github.com/tallyman-dev/tallyman/internal/catalog"
	"github.com/tallyman-dev/tallyman/internal/history"
	"github.com/tallyman-dev/tallyman/internal/local"
	"github.com/tallyman-dev/tallyman/internal/service"
	"github.com/tallyman-dev/tallyman/internal/store"
)

// house joins the rooms for those who only look and ask: the API and the
// pages.
type house struct {
	service    *service.Service
	transcript *service.Transcript
	store      *store.Store
	history    *history.History
	blobs      *blob.Folder
	backend    Backend
	local      *local.Backend // nil where attempts are no processes of this machine
	agents     *catalog.Catalog
	attempts   string                      // the folder of the attempts
	settle     func(context.Context) error // one look at what has ended
	asked      atomic.Bool                 // for a run, since this server is there
	badAgents  sync.Map                    // what was said of agents that cannot be read
	log        *slog.Logger
}

func (h *house) Runs(ctx context.Context, f tallyman.Filter) ([]tallyman.Run, string, error) {
	f, err := f.Split()
	if err != nil {
		return nil, "", err
	}
	return h.store.Runs(ctx, store.Filter{
		Namespace: f.Namespace, States: f.States, Agent: f.Agent, Labels: f.Labels,
		Text: f.Text, Limit: f.Limit, After: f.After,
	})
}

func (h *house) Run(ctx context.Context, id string) (tallyman.Run, error) {
	run, err := h.store.Run(ctx, id)
	if err != nil {
		return run, err
	}
	return h.service.Whole(ctx, run)
}

func (h *house) Attempts(ctx context.Context, id string) ([]tallyman.Attempt, error) {
	return h.store.Attempts(ctx, id)
}

func (h *house) Timeline(ctx context.Context, id string) ([]tallyman.TimelineEntry, error) {
	return h.store.Timeline(ctx, id)
}

// Artifacts returns the newest of each name.
func (h *house) Artifacts(ctx context.Context, id string) ([]tallyman.Artifact, error) {
	all, err := h.store.Artifacts(ctx, id)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b tallyman.Artifact) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return b.Attempt - a.Attempt
	})
	return slices.CompactFunc(all, func(a, b tallyman.Artifact) bool { return a.Name == b.Name }), nil
}

func (h *house) OpenArtifact(ctx context.Context, id, name string) (io.ReadSeekCloser, tallyman.Artifact, error) {
	all, err := h.Artifacts(ctx, id)
	if err != nil {
		return nil, tallyman.Artifact{}, err
	}
	for _, a := range all {
		if a.Name == name {
			f, _, err := h.blobs.Open(ctx, a.Digest)
			return f, a, err
		}
	}
	return nil, tallyman.Artifact{}, tallyman.Errorf(tallyman.NotFound, "run %s has no artifact %q", id, name)
}

func (h *house) OpenPrompt(ctx context.Context, id string) (io.ReadCloser, int64, error) {
	return h.service.Prompt(ctx, id)
}

func (h *house) Agents(ctx context.Context) ([]tallyman.Agent, error) {
	agents, errs := h.agents.List(ctx)
	for _, err := range errs {
		if _, told := h.badAgents.LoadOrStore(err.Error(), true); !told {
			h.log.WarnContext(ctx, "reading agents", "err", err)
		}
	}
	return agents, nil
}

func (h *house) Preview(ctx context.Context, r tallyman.Request) (json.RawMessage, error) {
	return h.service.Preview(ctx, r)
}

func (h *house) Submit(ctx context.Context, r tallyman.Request) (tallyman.Run, bool, error) {
	h.asked.Store(true)
	return h.service.Submit(ctx, r)
}

func (h *house) Stop(ctx context.Context, id, by string) (tallyman.Run, error) {
	return h.service.Stop(ctx, id, tallyman.ReasonStopped, by)
}

func (h *house) Rerun(ctx context.Context, id string, set map[string]string, source tallyman.Source) (tallyman.Run, error) {
	h.asked.Store(true)
	return h.service.Rerun(ctx, id, set, source)
}

func (h *house) Events(ctx context.Context, id string, after tallyman.EventID, fn func(tallyman.EventID, []byte, bool) error) error {
	return h.transcript.Events(ctx, id, after, fn)
}

func (h *house) Follow(ctx context.Context, id string, after tallyman.EventID, fn func(tallyman.EventID, []byte, bool) error) error {
	err := h.transcript.Follow(ctx, id, after, fn)
	if missing := new(service.MissingError); errors.As(err, &missing) {
		return tallyman.Errorf(tallyman.Internal, "%w", err) // with a code, its words are told
	}
	return err
}

func (h *house) Watch(ctx context.Context) <-chan struct{} {
	c, end := h.service.Changed()
	context.AfterFunc(ctx, end)
	return c
}
