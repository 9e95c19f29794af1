package service

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/fault"
	"github.com/tallyman-dev/tallyman/internal/store"
)

// Admit starts an attempt of a queued run, if the caps leave room: they are
// counted and the attempt inserted in one transaction. Conflict: the run has
// moved, or there is no room any more.
func (s *Service) Admit(ctx context.Context, run tallyman.Run, global, perAgent int, backend string) (tallyman.Attempt, error) {
	now := s.now()
	var attempt tallyman.Attempt
	t := tallyman.Trigger{Kind: tallyman.TriggerAdmitted, At: now, Attempt: run.Attempt}
	_, err := s.change(ctx, run.ID, t, func(was, is tallyman.Run) *tallyman.TimelineEntry {
		return &tallyman.TimelineEntry{At: now, Attempt: is.Attempt, Kind: "admitted", Message: fmt.Sprintf("attempt %d on %s", is.Attempt, backend)}
	}, func(tx *store.Tx, was, is tallyman.Run) error {
		load, err := tx.Load()
		if err != nil {
			return err
		}
		if global > 0 && load.Total >= global || perAgent > 0 && load.ByAgent[run.AgentKey()] >= perAgent {
			return tallyman.Errorf(tallyman.Conflict, "run %s: the caps leave no room", run.Name)
		}
		attempt = tallyman.Attempt{RunID: run.ID, Number: is.Attempt, Backend: backend, QueuedAt: run.CreatedAt, AdmittedAt: now}
		if was.NotBefore != nil {
			attempt.QueuedAt = *was.NotBefore
		}
		err = tx.InsertAttempt(attempt)
		fault.Point(fault.AdmitCommitting)
		return err
	})
	if err != nil {
		return attempt, err
	}
	fault.Point(fault.AdmitCommitted)
	return attempt, nil
}

// AgentCap is how many attempts of a queued run's agent may run at once, 0:
// any number. The agent's file as it is now counts, not as it was at submit.
func (s *Service) AgentCap(ctx context.Context, run tallyman.Run) (int, error) {
	f, _, err := s.frozen(ctx, run.ID)
	if err != nil {
		return 0, err
	}
	limit := f.Agent.Concurrency.Max
	if now, err := s.agents.Get(ctx, run.Namespace, run.Agent); err == nil && now.Origin == f.Origin {
		limit = now.Spec.Concurrency.Max
	}
	if limit == nil {
		return 0, nil
	}
	return *limit, nil
}

// Wait records what holds a run back that is queued or starting; nil: nothing.
func (s *Service) Wait(ctx context.Context, run tallyman.Run, w *tallyman.Waiting) error {
	if run.Waiting.Same(w) {
		return nil
	}
	t := tallyman.Trigger{Kind: tallyman.TriggerWaiting, At: s.now(), Attempt: run.Attempt, Waiting: w}
	_, err := s.change(ctx, run.ID, t, func(was, is tallyman.Run) *tallyman.TimelineEntry {
		if w == nil || was.Waiting != nil && was.Waiting.Reason == w.Reason {
			return nil
		}
		return &tallyman.TimelineEntry{At: t.At, Attempt: run.Attempt, Kind: "waiting", Message: string(w.Reason) + ": " + w.Detail}
	}, nil)
	return err
}

// NewKey gives an attempt a new key, of which only a hash is kept.
func (s *Service) NewKey(ctx context.Context, ref tallyman.AttemptRef) (string, error) {
	key, hash := newKey()
	return key, s.amend(ctx, ref, func(a *tallyman.Attempt) { a.KeyHash = hash })
}

func newKey() (key string, hash []byte) {
	key = rand.Text()
	sum := sha256.Sum256([]byte(key))
	return key, sum[:]
}

// Assign is what a backend needs to start an attempt.
func (s *Service) Assign(ctx context.Context, a tallyman.Active) (tallyman.Assignment, error) {
	f, d, err := s.frozen(ctx, a.Run.ID)
	return tallyman.Assignment{
		Run: a.Run, Attempt: a.Attempt, Agent: f.Agent, Origin: f.Origin, Prompt: d.Prompt, PromptSize: d.PromptSize,
		NewKey: func(ctx context.Context) (string, error) { return s.NewKey(ctx, a.Attempt.Ref()) },
	}, err
}

// Made records what a backend has made for an attempt.
func (s *Service) Made(ctx context.Context, ref tallyman.AttemptRef, object string) error {
	return s.amend(ctx, ref, func(a *tallyman.Attempt) { a.Object = object })
}

// amend changes an attempt's row alone.
func (s *Service) amend(ctx context.Context, ref tallyman.AttemptRef, f func(*tallyman.Attempt)) error {
	err := s.store.InTx(ctx, func(tx *store.Tx) error {
		a, err := tx.Attempt(ref)
		if err != nil {
			return err
		}
		f(&a)
		return tx.PutAttempt(a)
	})
	if err != nil {
		return fmt.Errorf("change attempt %s: %w", ref, err)
	}
	return nil
}

// keyLife is how long an attempt's key is good after its end.
const keyLife = 24 * time.Hour

// CheckKey returns the attempt when the key is its own, and the attempt has
// not ended more than a day ago. An unknown attempt and a wrong key look the
// same.
func (s *Service) CheckKey(ctx context.Context, ref tallyman.AttemptRef, key string) (tallyman.Attempt, error) {
	a, err := s.store.Attempt(ctx, ref)
	if err != nil && tallyman.CodeOf(err) != tallyman.NotFound {
		return a, err
	}
	sum := sha256.Sum256([]byte(key))
	if err != nil || len(a.KeyHash) == 0 || subtle.ConstantTimeCompare(sum[:], a.KeyHash) != 1 {
		return tallyman.Attempt{}, tallyman.Errorf(tallyman.Unauthorized, "attempt %s: this is not its key", ref)
	}
	if a.EndedAt != nil && s.now().Sub(*a.EndedAt) > keyLife {
		return tallyman.Attempt{}, tallyman.Errorf(tallyman.Unauthorized, "attempt %s ended more than %s ago: its key is not good any more", ref, keyLife)
	}
	return a, nil
}

// Greet answers a runner's hello. On one machine the key proves that it comes
// from the process that the backend started: each start makes a new key and
// hands it over on a pipe that this process alone inherits. In a cluster the
// Pod has been recognised; the attempt's first one is its own, and gets a key.
func (s *Service) Greet(ctx context.Context, ref tallyman.AttemptRef, p tallyman.Proof, h tallyman.Hello) (w tallyman.Welcome, v tallyman.HelloVerdict, err error) {
	if p.Pod == "" {
		if _, err := s.CheckKey(ctx, ref, p.Key); err != nil {
			return w, v, err
		}
	} else {
		h.Process = p.Pod // what the runner says of itself proves nothing
	}
	var run tallyman.Run
	var attempt tallyman.Attempt
	err = s.store.InTx(ctx, func(tx *store.Tx) error {
		var err error
		if run, err = tx.Run(ref.RunID); err != nil {
			return err
		}
		a, err := tx.Attempt(ref)
		if err != nil {
			return err
		}
		sameProcess := p.Pod == "" || a.Process == "" || a.Process == p.Pod
		if attempt, v = run.Greet(a, h, sameProcess); v != tallyman.HelloWelcome {
			return nil
		}
		if p.Pod != "" {
			w.AttemptKey, attempt.KeyHash = newKey()
		}
		err = tx.PutAttempt(attempt)
		fault.Point(fault.GreetCommitting)
		return err
	})
	if err != nil {
		return w, v, fmt.Errorf("hello of %s: %w", ref, err)
	}
	fault.Point(fault.GreetCommitted)
	switch v {
	case tallyman.HelloWelcome:
	case tallyman.HelloMismatch, tallyman.HelloRegressed:
		_, err := s.End(ctx, ref, tallyman.Settlement{Reason: tallyman.JournalMismatch,
			Message: "the runner came with another journal, or with less of it, than was seen before"})
		return w, v, err
	default:
		return w, v, nil
	}
	w.Epoch = attempt.Epoch
	w.Spec, err = s.RunnerSpec(ctx, run, attempt)
	var e *tallyman.Error
	switch {
	case err == nil:
		return w, v, nil
	case attempt.StartedAt != nil:
		return w, v, nil // it has its spec: what it was made of may be gone by now
	case errors.As(err, &e) && e.Reason.Valid():
		_, err = s.End(ctx, ref, tallyman.Settlement{Reason: e.Reason, Message: e.Message})
		return w, tallyman.HelloFinal, err
	default:
		return w, v, err
	}
}

// RunnerSpec is what the runner of an attempt is told.
func (s *Service) RunnerSpec(ctx context.Context, run tallyman.Run, a tallyman.Attempt) (tallyman.RunnerSpec, error) {
	f, d, err := s.frozen(ctx, run.ID)
	if err != nil {
		return tallyman.RunnerSpec{}, err
	}
	spec := tallyman.RunnerSpec{
		RunID: run.ID, RunName: run.Name, Namespace: run.Namespace, AgentName: run.Agent, Attempt: a.Number,
		Agent: f.Agent, Prompt: d.Prompt, PromptSize: d.PromptSize, Prices: s.prices,
		Grace: s.timing.Grace, ResultGrace: s.timing.ResultGrace, OrphanBudget: s.timing.OrphanBudget, DrainBudget: s.timing.DrainBudget,
	}
	earlier, err := s.store.Attempts(ctx, run.ID)
	if err != nil {
		return spec, err
	}
	for _, e := range earlier {
		if e.Number < a.Number {
			spec.Used = spec.Used.Plus(e.Usage)
			spec.LastFailure = fmt.Sprintf("attempt %d ended with %s: %s", e.Number, e.Reason, e.Message)
		}
	}
	return s.backend.Spec(ctx, f.Origin, spec)
}

// Report takes a runner's facts. Facts about an attempt that is not in flight
// change no state; its usage is still counted.
func (s *Service) Report(ctx context.Context, ref tallyman.AttemptRef, epoch int64, r tallyman.ControlReport) (answer tallyman.ControlAnswer, err error) {
	if len(r.Facts) == 0 {
		return s.heartbeat(ctx, ref, epoch)
	}
	about := aboutRecord
	for i, f := range r.Facts {
		if f.Outcome == nil {
			continue
		}
		about = aboutAttempts // it can be settled
		kept, err := s.keepResult(ctx, *f.Outcome)
		if err != nil {
			return answer, err
		}
		r.Facts[i].Outcome = &kept
	}
	err = s.store.InTx(ctx, func(tx *store.Tx) error {
		a, err := tx.Attempt(ref)
		if err != nil {
			return err
		}
		if epoch != a.Epoch {
			return tallyman.Errorf(tallyman.Stale, "attempt %s: epoch %d took over from %d", ref, a.Epoch, epoch)
		}
		run, err := tx.Run(ref.RunID)
		if err != nil {
			return err
		}
		was := run
		for _, f := range r.Facts {
			if run, a, err = s.take(tx, run, a, f); err != nil {
				return err
			}
		}
		if err := tx.PutAttempt(a); err != nil {
			return err
		}
		if run, err = s.count(tx, run, was); err != nil {
			return err
		}
		answer = tallyman.ControlAnswer{Stop: stopOrder(run)}
		fault.Point(fault.ReportCommitting)
		return nil
	})
	if err != nil {
		return answer, fmt.Errorf("report of %s: %w", ref, err)
	}
	fault.Point(fault.ReportCommitted)
	s.notices.tell(about)
	return answer, nil
}

func (s *Service) heartbeat(ctx context.Context, ref tallyman.AttemptRef, epoch int64) (answer tallyman.ControlAnswer, err error) {
	a, err := s.store.Attempt(ctx, ref)
	if err != nil {
		return answer, err
	}
	if a.Epoch != epoch {
		return answer, tallyman.Errorf(tallyman.Stale, "attempt %s: epoch %d took over from %d", ref, a.Epoch, epoch)
	}
	run, err := s.store.Run(ctx, ref.RunID)
	return tallyman.ControlAnswer{Stop: stopOrder(run)}, err
}

func stopOrder(run tallyman.Run) *tallyman.StopOrder {
	if run.StopRequestedAt == nil || run.State.Terminal() {
		return nil
	}
	return &tallyman.StopOrder{Reason: run.StopReason, Message: run.Message}
}

// take applies one fact. A fact that was taken before changes nothing.
func (s *Service) take(tx *store.Tx, run tallyman.Run, a tallyman.Attempt, f tallyman.Fact) (tallyman.Run, tallyman.Attempt, error) {
	at := f.At.UTC().Truncate(time.Microsecond)
	switch f.Kind {
	case tallyman.FactStarted:
		var err error
		if run, a, err = started(tx, run, a, at); err != nil {
			return run, a, err
		}
	case tallyman.FactFirst:
		if a.FirstAt == nil {
			a.FirstAt = &at
		}
	case tallyman.FactUsage:
		// A runner's facts come in order: the epoch sees to it. Their cursors
		// may be behind, since hello has told the last one.
		if f.Usage != nil && a.Final == nil {
			a.Usage = *f.Usage
		}
	case tallyman.FactFinal:
		if f.Outcome == nil {
			return run, a, tallyman.Errorf(tallyman.Invalid, "attempt %s: a final fact without an outcome", a.Ref())
		}
		if a.Final == nil {
			out := *f.Outcome
			if out.Reason.Valid() && stopFirst(run, out.Reason, at) {
				out.Reason, out.Message = run.StopReason, run.Message
			}
			a.Final, a.FinalCursor = &out, f.Cursor
			a.Usage = out.Usage
		}
	default:
		// A newer runner may know facts that we do not: they change nothing here.
	}
	a.LastCursor = max(a.LastCursor, f.Cursor)
	return run, a, nil
}

// started records that the agent of an attempt has started.
func started(tx *store.Tx, run tallyman.Run, a tallyman.Attempt, at time.Time) (tallyman.Run, tallyman.Attempt, error) {
	if at.Before(a.AdmittedAt) {
		at = a.AdmittedAt // another machine's clock, or one that knows seconds only
	}
	if a.StartedAt == nil {
		a.StartedAt = &at
	}
	next, err := run.Apply(tallyman.Trigger{Kind: tallyman.TriggerAgentStarted, Attempt: a.Number, At: at})
	if err != nil {
		return run, a, err
	}
	if next.Version != run.Version {
		err = tx.Timeline(run.ID, tallyman.TimelineEntry{At: at, Attempt: a.Number, Kind: "started", Message: "the agent has started"})
	}
	return next, a, err
}

// count writes the run with the usage of all its attempts, when either moved.
func (s *Service) count(tx *store.Tx, run, was tallyman.Run) (tallyman.Run, error) {
	attempts, err := tx.Attempts(run.ID)
	if err != nil {
		return run, err
	}
	var total tallyman.Usage
	for _, a := range attempts {
		total = total.Plus(a.Usage)
	}
	if total == was.Usage && run.Version == was.Version {
		return run, nil
	}
	run.Usage = total
	run.Version = was.Version + 1
	return run, tx.PutRun(run, was.Version)
}

// Note adds what the server saw to a run's timeline.
func (s *Service) Note(ctx context.Context, ref tallyman.AttemptRef, kind, message string) error {
	e := tallyman.TimelineEntry{At: s.now(), Attempt: ref.Number, Kind: kind, Message: message}
	err := s.store.InTx(ctx, func(tx *store.Tx) error { return tx.Timeline(ref.RunID, e) })
	if err != nil {
		return fmt.Errorf("note %q about run %s: %w", kind, ref.RunID, err)
	}
	s.notices.tell(aboutRecord)
	return nil
}

// Silent records since when a living runner has not been heard of; nil: it is
// heard of again.
func (s *Service) Silent(ctx context.Context, ref tallyman.AttemptRef, since *time.Time) error {
	err := s.store.InTx(ctx, func(tx *store.Tx) error {
		a, err := tx.Attempt(ref)
		if err != nil {
			return err
		}
		a.LastContact = since
		e := tallyman.TimelineEntry{At: s.now(), Attempt: ref.Number, Kind: "contact back", Message: "the runner is heard of again"}
		if since != nil {
			e.Kind, e.Message = "contact lost", "the runner lives but has not been heard of since "+since.UTC().Format(time.RFC3339)
		}
		return errors.Join(tx.PutAttempt(a), tx.Timeline(ref.RunID, e))
	})
	if err != nil {
		return fmt.Errorf("note the silence of attempt %s: %w", ref, err)
	}
	s.notices.tell(aboutRecord)
	return nil
}
