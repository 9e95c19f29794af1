package service

import (
	"context"
	"encoding/json"

	"github.com/tallyman-dev/tallyman"
)

// previewer is a backend that can say what it would make.
type previewer interface {
	Preview(ctx context.Context, w tallyman.Assignment) (json.RawMessage, error)
}

// Preview is what a backend would make for a request's first attempt, as
// JSON: a Job. Nothing is created. The errors are those of Submit; Unsupported
// where attempts are no objects.
func (s *Service) Preview(ctx context.Context, req tallyman.Request) (json.RawMessage, error) {
	p, ok := s.backend.(previewer)
	if !ok {
		return nil, tallyman.Errorf(tallyman.Unsupported, "there is nothing to show: this server runs attempts as processes of its machine; ask one with --backend kube")
	}
	req = defaults(req)
	if err := s.checkRequest(req); err != nil {
		return nil, err
	}
	agent, err := s.agentFor(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := s.checkSpec(ctx, req, agent); err != nil {
		return nil, err
	}
	run := s.newRun(req, agent)
	return p.Preview(ctx, tallyman.Assignment{
		Run: run, Attempt: tallyman.Attempt{RunID: run.ID, Number: 1}, Agent: agent.Spec, Origin: agent.Origin,
		Prompt: req.Prompt[:min(len(req.Prompt), tallyman.MaxInline)], PromptSize: int64(len(req.Prompt)),
	})
}
