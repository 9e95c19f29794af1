package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tallyman-dev/tallyman"
)

// connectFor connects; a detached run gets a server that stays.
func (c *command) connectFor(ctx context.Context, detach bool) (*session, error) {
	if !detach {
		return c.connect(ctx, admits)
	}
	cfg, _, err := c.config()
	if err != nil {
		return nil, err
	}
	if cfg.Server != "" {
		return c.connect(ctx, admits)
	}
	s := &session{c: c, cfg: cfg}
	s.useSocket(s.detached)
	c.session = s
	return s, s.detached(ctx)
}

// submitError gives what submit refuses its exit code: an unknown agent is a
// wrong word on the command line, not an unknown run.
func submitError(err error) error {
	if tallyman.CodeOf(err) == tallyman.NotFound {
		return &exitError{ExitUsage, err}
	}
	return err
}

// inline sends the agent as this command line finds it. Built-in agents work
// in the caller's folder.
func (c *command) inline(ctx context.Context, req *tallyman.Request, s *session, inCaller bool) error {
	if req.Inline == nil {
		a, err := c.catalog(s.cfg.Agents).Get(ctx, req.Namespace, req.Agent)
		if err != nil || a.Origin == tallyman.BuiltIn {
			if r, ok := s.resource(ctx, req); ok {
				wordsOf(req, r.Spec.Harness)
				return nil // the server has it
			}
		}
		if err != nil && req.Namespace != "" {
			return nil // the server knows what there is
		}
		if err != nil {
			return &exitError{ExitUsage, errors.Join(err, fileForAgent(req.Agent))}
		}
		req.Inline = &a
	}
	wordsOf(req, req.Inline.Spec.Harness)
	if inCaller && req.Inline.Origin == tallyman.BuiltIn {
		cwd := here()
		if cwd == "" {
			return usageError("agent %s works in the current folder, which is gone: change to one that is there, or name one with --workspace", req.Agent)
		}
		req.Workspace = &tallyman.Workspace{Path: cwd}
	}
	return nil
}

// fileForAgent tells whoever names a file where an agent's name belongs what
// to write.
func fileForAgent(name string) error {
	if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	return fmt.Errorf("%s is a file: name the agent in it, tallyman run --agents %[1]s NAME", name)
}

// wordsOf makes the words after -- the prompt, where a harness takes no
// command: there -- only says that no flags follow.
func wordsOf(req *tallyman.Request, harness string) {
	if harness != "exec" && len(req.Command) > 0 && req.Prompt == "" {
		req.Prompt, req.Command = strings.Join(req.Command, " "), nil
	}
}

// prepareRemote fits a request to a server elsewhere, whose agents it names.
func prepareRemote(ctx context.Context, req *tallyman.Request, s *session) error {
	if req.Inline != nil {
		return usageError("--harness %s without an agent file works over the socket only; use one of the server's agents", req.Agent)
	}
	if len(req.Command) == 0 {
		return nil
	}
	agents, err := s.Agents(ctx)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(agents, func(a tallyman.Agent) bool {
		return a.Name == req.Agent && a.Namespace == cmp.Or(req.Namespace, tallyman.DefaultNamespace)
	}); i >= 0 {
		wordsOf(req, agents[i].Spec.Harness)
	}
	return nil
}

// submit sends a request. unfit says that it could not be made: then only its
// key can bring a run, the one that it has brought before.
func (s *session) submit(ctx context.Context, req tallyman.Request, unfit error) (tallyman.Run, error) {
	if unfit == nil {
		return s.Submit(ctx, req)
	}
	if req.Key == "" || !s.local || req.Inline != nil {
		return tallyman.Run{}, unfit
	}
	// An agent without a harness can start nothing; of an inline agent the key
	// compares the name alone.
	req.Inline = &tallyman.Agent{Name: req.Agent}
	run, err := s.Submit(ctx, req)
	if tallyman.CodeOf(err) == tallyman.Conflict && len(req.Command) > 0 {
		wordsOf(&req, "") // the agent that is gone may have taken a prompt
		run, err = s.Submit(ctx, req)
	}
	switch {
	case err == nil:
		return run, nil
	case tallyman.CodeOf(err) == tallyman.Invalid: // the key has brought none
		return run, unfit
	default:
		return run, &exitError{exitCode(err), errors.Join(unfit, err)}
	}
}
