package service

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/fault"
	"github.com/tallyman-dev/tallyman/internal/store"
)

// Limits of a request.
const (
	MaxPrompt = 64 << 20 // bytes
	MaxKey    = 256
	maxLabels = 64
	maxLabel  = 1024 // bytes of a label's value
)

// Submit admits a request as a queued run. created is false when the key has
// brought an earlier run. Errors: Invalid, NotFound (the agent), Conflict (the
// key with another request); then nothing was created.
func (s *Service) Submit(ctx context.Context, req tallyman.Request) (run tallyman.Run, created bool, err error) {
	req = defaults(req)
	if err := s.checkRequest(req); err != nil {
		return run, false, err
	}
	if req.Key != "" {
		// The same key may come again when the agent's file is gone, and its
		// namespace is not this server's any more.
		if run, found, err := s.keyed(ctx, req); found || err != nil {
			return run, false, err
		}
	}
	agent, err := s.agentFor(ctx, req)
	if err != nil {
		return run, false, err
	}
	if err := s.checkSpec(ctx, req, agent); err != nil {
		return run, false, err
	}
	detail, err := s.detail(ctx, req, agent)
	if err != nil {
		return run, false, err
	}
	run = s.newRun(req, agent)
	err = s.store.InTx(ctx, func(tx *store.Tx) error {
		if req.Key != "" {
			row, err := tx.Key(scope(req), req.Key)
			switch {
			case err == nil:
				created = false
				run, err = s.firstOf(tx, row, req)
				return err
			case tallyman.CodeOf(err) != tallyman.NotFound:
				return err
			}
			row = store.KeyRow{Scope: scope(req), Key: req.Key, Digest: req.Digest(), RunID: run.ID, At: run.CreatedAt}
			if err := tx.PutKey(row); err != nil {
				return err
			}
		}
		created = true
		if err := tx.InsertRun(run, detail); err != nil {
			return err
		}
		err := tx.Timeline(run.ID, tallyman.TimelineEntry{At: run.CreatedAt, Kind: "queued", Message: "submitted by " + string(run.Source)})
		fault.Point(fault.SubmitCommitting)
		return err
	})
	if err != nil {
		return tallyman.Run{}, false, fmt.Errorf("submit a run of %s: %w", req.Agent, err)
	}
	fault.Point(fault.SubmitCommitted)
	if created {
		s.notices.tell(aboutQueue)
	}
	return run, created, nil
}

func defaults(req tallyman.Request) tallyman.Request {
	if req.Namespace == "" {
		req.Namespace, req.Agent = tallyman.ParseAgentName(req.Agent)
	}
	req.Namespace = cmp.Or(req.Namespace, tallyman.DefaultNamespace)
	if req.Source == "" {
		req.Source = tallyman.SourceAPI
	}
	if req.Agent == "" && req.Inline != nil {
		req.Agent = req.Inline.Name
	}
	return req
}

// checkNamespace refuses a run where nothing could make it.
func (s *Service) checkNamespace(namespace string) error {
	if namespace == tallyman.DefaultNamespace || slices.Contains(s.spaces, namespace) {
		return nil
	}
	if err := tallyman.ValidName("namespace", namespace); err != nil {
		return err
	}
	if len(s.spaces) == 0 {
		return tallyman.Errorf(tallyman.Invalid, "namespace %q: this server has only %q; leave the namespace out", namespace, tallyman.DefaultNamespace)
	}
	return tallyman.Errorf(tallyman.Invalid, "namespace %q: this server has %q and %s; start it with --namespaces for others",
		namespace, tallyman.DefaultNamespace, strings.Join(s.spaces, ", "))
}

func (s *Service) checkRequest(req tallyman.Request) error {
	if req.Agent == "" {
		return tallyman.Errorf(tallyman.Invalid, "the request names no agent")
	}
	if err := tallyman.ValidName("agent", req.Agent); err != nil {
		return err
	}
	if len(req.Prompt) > MaxPrompt {
		return tallyman.Errorf(tallyman.TooLarge, "the prompt has %d bytes, at most %d are taken", len(req.Prompt), MaxPrompt)
	}
	if len(req.Key) > MaxKey {
		return tallyman.Errorf(tallyman.Invalid, "the key has %d bytes, at most %d are taken", len(req.Key), MaxKey)
	}
	if len(req.Labels) > maxLabels {
		return tallyman.Errorf(tallyman.Invalid, "%d labels are more than the %d that a run may have", len(req.Labels), maxLabels)
	}
	for k, v := range req.Labels {
		if k == "" || len(k) > 253 || len(v) > maxLabel {
			return tallyman.Errorf(tallyman.Invalid, "label %.60q: a key has 1 to 253 bytes, a value at most %d", k, maxLabel)
		}
	}
	return nil
}

// keyed returns the run that the request's key has brought before.
func (s *Service) keyed(ctx context.Context, req tallyman.Request) (run tallyman.Run, found bool, err error) {
	err = s.store.InTx(ctx, func(tx *store.Tx) error {
		row, err := tx.Key(scope(req), req.Key)
		if tallyman.CodeOf(err) == tallyman.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		found = true
		run, err = s.firstOf(tx, row, req)
		return err
	})
	return run, found, err
}

func scope(req tallyman.Request) string { return store.KeyScope(req.Namespace, req.Source) }

// firstOf returns the run that a key stands for, as it is or as it last was.
func (s *Service) firstOf(tx *store.Tx, row store.KeyRow, req tallyman.Request) (run tallyman.Run, err error) {
	if row.Digest != req.Digest() {
		return run, tallyman.Errorf(tallyman.Conflict, "key %q stands for run %s, which had another request; use another key", req.Key, row.RunID)
	}
	run, err = tx.Run(row.RunID)
	if tallyman.CodeOf(err) == tallyman.NotFound && len(row.LastJSON) > 0 {
		return run, json.Unmarshal(row.LastJSON, &run)
	}
	return run, err
}

// agentFor is the agent as this request asks for it.
func (s *Service) agentFor(ctx context.Context, req tallyman.Request) (tallyman.Agent, error) {
	var a tallyman.Agent
	if err := s.checkNamespace(req.Namespace); err != nil {
		return a, err
	}
	if req.Inline != nil {
		a = *req.Inline
		a.Name = req.Agent
	} else {
		var err error
		if a, err = s.agents.Get(ctx, req.Namespace, req.Agent); err != nil {
			return a, err
		}
	}
	spec := a.Spec
	if len(req.Command) > 0 {
		if spec.Harness != "exec" {
			return a, tallyman.Errorf(tallyman.Invalid, "agent %s runs %s: only exec takes a command with the request", a.Name, spec.Harness)
		}
		spec.Command = req.Command
	}
	if req.Model != "" {
		spec.Model = req.Model
	}
	if req.Priority != nil {
		spec.Priority = *req.Priority
	}
	if req.Workspace != nil {
		spec.Workspace.Path = req.Workspace.Path
		spec.Workspace.Keep = spec.Workspace.Keep || req.Workspace.Keep
	}
	spec.Env = append(slices.Clone(spec.Env), req.Env...)
	spec.Outputs = append(slices.Clone(spec.Outputs), req.Outputs...)
	spec.Limits = req.Limits.Over(spec.Limits)
	if spec.Limits.Deadline == nil {
		d := tallyman.DefaultDeadline
		spec.Limits.Deadline = &d
	}
	if spec.Harness == "script" && len(spec.Settings["steps"]) == 0 {
		steps, err := s.checks.Steps([]byte(req.Prompt))
		if err != nil {
			return a, &tallyman.Error{Code: tallyman.Invalid, Reason: tallyman.InvalidSpec, Err: err,
				Message: fmt.Sprintf("agent %s has no steps, so the prompt must be a list of them: %v", a.Name, err)}
		}
		spec.Settings = maps.Clone(spec.Settings)
		if spec.Settings == nil {
			spec.Settings = map[string]json.RawMessage{}
		}
		spec.Settings["steps"] = steps
	}
	a.Spec = spec
	return a, nil
}

// checkSpec refuses what could not succeed, before anything is created.
func (s *Service) checkSpec(ctx context.Context, req tallyman.Request, a tallyman.Agent) error {
	if err := s.checks.Validate(a); err != nil {
		return &tallyman.Error{Code: tallyman.Invalid, Reason: tallyman.InvalidSpec, Message: err.Error(), Err: err}
	}
	if err := s.checks.Harness(a.Spec); err != nil {
		return err
	}
	spec := a.Spec
	invalid := func(format string, args ...any) error {
		return &tallyman.Error{Code: tallyman.Invalid, Reason: tallyman.InvalidSpec, Message: fmt.Sprintf(format, args...)}
	}
	if spec.Harness == "claude" && strings.TrimSpace(req.Prompt) == "" {
		return invalid("agent %s needs a prompt", a.Name)
	}
	if limit := s.checks.PromptLimit(spec.Harness); limit > 0 && int64(len(req.Prompt)) > limit && !spec.PromptFile {
		return invalid("the prompt has %d bytes, %s takes at most %d on standard input; "+
			"set promptFile: true in the agent's spec, and the prompt goes into a file in the workspace", len(req.Prompt), spec.Harness, limit)
	}
	if bare := spec.Runner == tallyman.RunnerBare; bare && len(req.Prompt) > tallyman.MaxInline {
		return invalid("the prompt has %d bytes; with runner: bare it is the variable TALLYMAN_PROMPT, which holds %d; "+
			"bring it as a file by podTemplate, or write another runner", len(req.Prompt), tallyman.MaxInline)
	} else if bare && strings.ContainsRune(req.Prompt, 0) {
		return invalid("the prompt has a zero byte; with runner: bare it is the variable TALLYMAN_PROMPT, which cannot hold one; write another runner")
	}
	if b := spec.Limits.BudgetUSD; b != nil && *b > 0 && spec.Harness == "exec" && (spec.Limits.MaxTokens == nil || *spec.Limits.MaxTokens == 0) {
		return invalid("budgetUSD: what harness exec spends is not known, so the budget could not be kept; set maxTokens too, or no budget")
	}
	if err := s.checks.Space(); err != nil {
		return err
	}
	return s.backend.Preflight(ctx, spec)
}

// detail is what goes beside the run's row.
func (s *Service) detail(ctx context.Context, req tallyman.Request, a tallyman.Agent) (store.Detail, error) {
	d := store.Detail{PromptSize: int64(len(req.Prompt))}
	var err error
	if d.Spec, err = json.Marshal(frozen{Agent: a.Spec, Origin: a.Origin}); err != nil {
		return d, fmt.Errorf("encode the spec: %w", err)
	}
	if len(req.Prompt) <= tallyman.MaxInline {
		d.Prompt = req.Prompt
	} else if d.PromptBlob, _, err = s.blobs.Put(ctx, strings.NewReader(req.Prompt)); err != nil {
		return d, fmt.Errorf("keep the prompt: %w", err)
	}
	req.Prompt = ""
	if d.Request, err = json.Marshal(req); err != nil {
		return d, fmt.Errorf("encode the request: %w", err)
	}
	return d, nil
}

func (s *Service) newRun(req tallyman.Request, a tallyman.Agent) tallyman.Run {
	id := s.newID()
	if req.Labels == nil {
		req.Labels = map[string]string{}
	}
	return tallyman.Run{
		ID: id, Name: tallyman.RunName(a.Name, id), Namespace: req.Namespace,
		Agent: a.Name, Harness: a.Spec.Harness, Model: a.Spec.Model,
		State: tallyman.Queued, Labels: req.Labels, Key: req.Key, Source: req.Source,
		Parent: req.Parent, Priority: a.Spec.Priority, CreatedAt: s.now(), Limits: a.Spec.Limits, Version: 1,
	}
}
