package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/store"
)

// change applies a trigger to a run in one transaction, with what belongs to
// it; the notice goes out after the commit. entry may be nil.
func (s *Service) change(ctx context.Context, runID string, t tallyman.Trigger, entry func(was, is tallyman.Run) *tallyman.TimelineEntry, more func(tx *store.Tx, was, is tallyman.Run) error) (is tallyman.Run, err error) {
	changed := false
	err = s.store.InTx(ctx, func(tx *store.Tx) error {
		was, err := tx.Run(runID)
		if err != nil {
			return err
		}
		if is, err = was.Apply(t); err != nil {
			return err
		}
		changed = is.Version != was.Version
		if changed {
			if err := tx.PutRun(is, was.Version); err != nil {
				return err
			}
			if e := entry(was, is); e != nil {
				if err := tx.Timeline(runID, *e); err != nil {
					return err
				}
			}
		}
		if more == nil {
			return nil
		}
		return more(tx, was, is)
	})
	if err != nil {
		return is, fmt.Errorf("%s of run %s: %w", t.Kind, runID, err)
	}
	if changed {
		if is.State.Terminal() {
			s.ended(is)
		}
		about := aboutQueue | aboutAttempts
		if t.Kind == tallyman.TriggerWaiting {
			about = aboutRecord
		}
		s.notices.tell(about)
	}
	return is, nil
}

// Stop asks a run to end. A queued run is stopped at once; a running one when
// its processes are gone. A run that has ended stays as it is.
func (s *Service) Stop(ctx context.Context, idOrName string, reason tallyman.Reason, by string) (tallyman.Run, error) {
	run, err := s.store.Run(ctx, idOrName)
	if err != nil {
		return run, err
	}
	t := tallyman.Trigger{Kind: tallyman.TriggerStopRequested, At: s.now(), Reason: reason, Message: "stopped by " + by}
	return s.change(ctx, run.ID, t, func(was, is tallyman.Run) *tallyman.TimelineEntry {
		kind := "stop requested"
		if is.State.Terminal() {
			kind = "ended"
		}
		return &tallyman.TimelineEntry{At: t.At, Attempt: is.Attempt, Kind: kind, Message: t.Message}
	}, nil)
}

// Rerun submits a run's request again. set changes it: prompt, model,
// priority, deadline …, label.KEY and env.KEY.
func (s *Service) Rerun(ctx context.Context, idOrName string, set map[string]string, source tallyman.Source) (tallyman.Run, error) {
	run, err := s.store.Run(ctx, idOrName)
	if err != nil {
		return run, err
	}
	req, err := s.request(ctx, run)
	if err != nil {
		return run, err
	}
	req.Key, req.Parent, req.Source = "", run.ID, source
	if err := edit(&req, set); err != nil {
		return run, err
	}
	again, _, err := s.Submit(ctx, req)
	return again, err
}

// request is what a run was asked with, prompt included.
func (s *Service) request(ctx context.Context, run tallyman.Run) (tallyman.Request, error) {
	var req tallyman.Request
	d, err := s.store.Detail(ctx, run.ID)
	if err != nil {
		return req, err
	}
	if err := json.Unmarshal(d.Request, &req); err != nil {
		return req, tallyman.Errorf(tallyman.Internal, "run %s: its stored request cannot be read: %w", run.ID, err)
	}
	body, _, err := s.Prompt(ctx, run.ID)
	if err != nil {
		return req, err
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	req.Prompt = string(b)
	return req, err
}

// edit changes a request by the words of rerun --set.
func edit(req *tallyman.Request, set map[string]string) error {
	plain := map[string]func(string) error{
		"prompt": func(v string) error { req.Prompt = v; return nil },
		"model":  func(v string) error { req.Model = v; return nil },
		"agent": func(v string) error {
			if v != tallyman.AgentName(req.Namespace, req.Agent) { // the same one stays as it was sent
				req.Inline = nil
				req.Namespace, req.Agent = tallyman.ParseAgentName(v)
			}
			return nil
		},
		"priority": func(v string) error { return json.Unmarshal([]byte(v), &req.Priority) },
	}
	limits := []string{"deadline", "idle", "tool", "maxTurns", "budgetUSD", "maxTokens"}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		value := set[key]
		name, isLabel := strings.CutPrefix(key, "label.")
		envName, isEnv := strings.CutPrefix(key, "env.")
		var err error
		switch {
		case plain[key] != nil:
			err = plain[key](value)
		case isLabel:
			req.Labels = maps.Clone(req.Labels)
			if req.Labels == nil {
				req.Labels = map[string]string{}
			}
			req.Labels[name] = value
		case isEnv:
			req.Env = append(slices.Clone(req.Env), tallyman.EnvVar{Name: envName, Value: value})
		case slices.Contains(limits, key):
			err = setLimit(&req.Limits, key, value)
		default:
			return tallyman.Errorf(tallyman.Invalid, "%q cannot be set; known are prompt, model, agent, priority, %s, label.KEY and env.KEY", key, strings.Join(limits, ", "))
		}
		if err != nil {
			return tallyman.Errorf(tallyman.Invalid, "set %s=%s: %w", key, value, err)
		}
	}
	return nil
}

func setLimit(l *tallyman.Limits, key, value string) error {
	var v any = json.RawMessage(value)
	if key == "deadline" || key == "idle" || key == "tool" {
		v = value
	}
	b, err := json.Marshal(map[string]any{key: v})
	if err != nil {
		return errors.New("this is not a number")
	}
	return json.Unmarshal(b, l)
}

// Delete removes an ended run with its attempts; its key keeps what it last
// was. drop is given the journals first, once nothing can refuse any more: a
// crash in between leaves a run that can be deleted again, and never events
// that belong to nothing. Conflict while the run, or a process of it, lives.
func (s *Service) Delete(ctx context.Context, idOrName string, drop func(ctx context.Context, journals []string) error) error {
	run, err := s.store.Run(ctx, idOrName)
	if err != nil {
		return err
	}
	attempts, err := s.store.Attempts(ctx, run.ID)
	if err != nil {
		return err
	}
	// Both stay true for ever.
	if run.State.Terminal() && slices.ContainsFunc(attempts, func(a tallyman.Attempt) bool { return !a.Gone }) {
		return tallyman.Errorf(tallyman.Conflict, "run %s has ended, but what it started or told is not all settled: ask again in a moment", run.Name)
	}
	if !run.State.Terminal() {
		return tallyman.Errorf(tallyman.Conflict, "run %s is %s: stop it, and remove it when it has ended", run.Name, run.State)
	}
	if run, err = s.Whole(ctx, run); err != nil {
		return err
	}
	last, err := json.Marshal(run)
	if err != nil {
		return fmt.Errorf("encode run %s: %w", run.ID, err)
	}
	var journals []string
	for _, a := range attempts {
		if a.Journal != "" {
			journals = append(journals, a.Journal)
		}
	}
	if err := drop(ctx, journals); err != nil {
		return err
	}
	err = s.store.InTx(ctx, func(tx *store.Tx) error {
		if err := keepLast(tx, run, last); err != nil {
			return err
		}
		return tx.DeleteRun(run.ID)
	})
	if err != nil {
		return fmt.Errorf("delete run %s: %w", run.ID, err)
	}
	s.notices.tell(aboutQueue | aboutAttempts)
	return nil
}

// keepLast gives the key of a run that goes what the run last was.
func keepLast(tx *store.Tx, run tallyman.Run, last []byte) error {
	if run.Key == "" {
		return nil
	}
	row, err := tx.Key(store.KeyScope(run.Namespace, run.Source), run.Key)
	if tallyman.CodeOf(err) == tallyman.NotFound || err == nil && row.RunID != run.ID {
		return nil
	}
	if err != nil {
		return err
	}
	row.LastJSON = last
	return tx.PutKey(row)
}

// Whole returns the run with its whole result.
func (s *Service) Whole(ctx context.Context, run tallyman.Run) (tallyman.Run, error) {
	if run.ResultBlob == "" {
		return run, nil
	}
	f, _, err := s.blobs.Open(ctx, run.ResultBlob)
	if err != nil {
		return run, fmt.Errorf("open the result of run %s: %w", run.ID, err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return run, fmt.Errorf("read the result of run %s: %w", run.ID, err)
	}
	run.Result = string(b)
	return run, nil
}

// Command returns the command line that a run's agent has of its own.
func (s *Service) Command(ctx context.Context, runID string) ([]string, error) {
	f, _, err := s.frozen(ctx, runID)
	return f.Agent.Command, err
}

// Prompt opens the whole prompt of a run.
func (s *Service) Prompt(ctx context.Context, runID string) (io.ReadCloser, int64, error) {
	d, err := s.store.Detail(ctx, runID)
	if err != nil {
		return nil, 0, err
	}
	if d.PromptBlob == "" {
		return io.NopCloser(strings.NewReader(d.Prompt)), int64(len(d.Prompt)), nil
	}
	f, size, err := s.blobs.Open(ctx, d.PromptBlob)
	if err != nil {
		return nil, 0, fmt.Errorf("open the prompt of run %s: %w", runID, err)
	}
	return f, size, nil
}
