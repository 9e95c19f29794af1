package cli

import (
	"context"
	"io"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/store"
)

// pages is the house as the dashboard sees it.
type pages struct{ *house }

func (p pages) Counts(ctx context.Context) (map[string]map[tallyman.State]int, error) {
	return p.store.Counts(ctx)
}

func (p pages) Prompt(ctx context.Context, id string) (string, error) {
	f, _, err := p.OpenPrompt(ctx, id)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return string(b), err
}

func (p pages) Command(ctx context.Context, id string) ([]string, error) {
	return p.service.Command(ctx, id)
}

func (p pages) Events(ctx context.Context, id string, after tallyman.EventID, fn func(tallyman.EventID, []byte) error) error {
	return p.house.Events(ctx, id, after, func(e tallyman.EventID, line []byte, _ bool) error { return fn(e, line) })
}

func (p pages) WatchRuns(ctx context.Context) <-chan struct{} { return p.Watch(ctx) }

func (p pages) Stop(ctx context.Context, id string) (tallyman.Run, error) {
	return p.house.Stop(ctx, id, "the dashboard")
}

func (p pages) Rerun(ctx context.Context, id string, set map[string]string) (tallyman.Run, error) {
	return p.house.Rerun(ctx, id, set, tallyman.SourceWeb)
}

func (p pages) Submit(ctx context.Context, r tallyman.Request) (tallyman.Run, error) {
	r.Source = tallyman.SourceWeb
	run, _, err := p.house.Submit(ctx, r)
	return run, err
}

// queue is the store as the scheduler reads it.
type queue struct{ *store.Store }

func (q queue) Load(ctx context.Context) (int, map[string]int, error) {
	l, err := q.Store.Load(ctx)
	return l.Total, l.ByAgent, err
}
