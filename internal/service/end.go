package service

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/fault"
	"github.com/tallyman-dev/tallyman/internal/store"
)

// End ends an attempt, and with it the run unless the agent's retry policy
// gives it another. It changes nothing when the attempt has ended.
func (s *Service) End(ctx context.Context, ref tallyman.AttemptRef, e tallyman.Settlement) (tallyman.Run, error) {
	f, _, err := s.frozen(ctx, ref.RunID)
	if err != nil {
		return tallyman.Run{}, err
	}
	if e.Outcome, err = s.keepResult(ctx, e.Outcome); err != nil {
		return tallyman.Run{}, err
	}
	now := s.now()
	var run tallyman.Run
	ended := false
	err = s.store.InTx(ctx, func(tx *store.Tx) (err error) {
		run, ended, err = s.endIn(tx, ref, e, f.Agent.Retry, now)
		return err
	})
	if err != nil {
		return run, fmt.Errorf("end attempt %s: %w", ref, err)
	}
	fault.Point(fault.EndCommitted)
	if ended {
		s.ended(run)
	}
	s.notices.tell(aboutQueue | aboutAttempts)
	return run, nil
}

// endIn is End within a transaction. It reports whether the run has ended
// just now.
func (s *Service) endIn(tx *store.Tx, ref tallyman.AttemptRef, e tallyman.Settlement, retry tallyman.Retry, now time.Time) (run tallyman.Run, ended bool, err error) {
	if run, err = tx.Run(ref.RunID); err != nil {
		return run, false, err
	}
	a, earlier, err := attemptAndEarlier(tx, ref)
	if err != nil || a.EndedAt != nil {
		return run, false, err
	}
	was := run
	if a.StartedAt == nil && e.StartedAt != nil {
		if run, a, err = started(tx, run, a, *e.StartedAt); err != nil {
			return run, false, err
		}
	}
	e = against(e, run, a)
	at := now
	if !e.FinalAt.IsZero() && e.FinalAt.Before(now) {
		at = e.FinalAt.UTC().Truncate(time.Microsecond) // nobody was there to hear it
	}
	a = endAttempt(a, e, at)
	if err := tx.PutAttempt(a); err != nil {
		return run, false, err
	}
	t := tallyman.Trigger{Kind: tallyman.TriggerEnded, At: at, Attempt: ref.Number, Reason: e.Reason, Message: e.Message, Outcome: e.Outcome}
	if wait, again := retry.Next(tallyman.AttemptEnd{Reason: e.Reason, Started: a.StartedAt != nil}, earlier); again {
		next := now.Add(wait)
		t.RetryAt = &next
	}
	if run, err = run.Apply(t); err != nil {
		return run, false, err
	}
	if ended = run.State.Terminal(); ended {
		run.ResultBlob = e.Outcome.ResultBlob
	}
	if run, err = s.count(tx, run, was); err != nil {
		return run, false, err
	}
	err = tx.Timeline(run.ID, endEntry(run, ref, e, now))
	fault.Point(fault.EndCommitting)
	return run, ended, err
}

// attemptAndEarlier reads an attempt, and how those before it ended.
func attemptAndEarlier(tx *store.Tx, ref tallyman.AttemptRef) (a tallyman.Attempt, earlier []tallyman.AttemptEnd, err error) {
	attempts, err := tx.Attempts(ref.RunID)
	for _, x := range attempts {
		switch {
		case x.Number == ref.Number:
			a = x
		case x.Number < ref.Number:
			earlier = append(earlier, tallyman.AttemptEnd{Reason: x.Reason, Started: x.StartedAt != nil})
		}
	}
	return a, earlier, err
}

// against holds a verdict, which was made of what was known a moment ago,
// against what is true now: a final event that control has heard meanwhile, a
// stop that was asked before the work ended.
func against(e tallyman.Settlement, run tallyman.Run, a tallyman.Attempt) tallyman.Settlement {
	switch {
	case a.Final != nil && a.Final.Reason.Valid():
		if e.FinalCursor != a.FinalCursor {
			e.Outcome = *a.Final // the verdict was made without it
		}
		e.Reason, e.Message = a.Final.Reason, a.Final.Message
	case stopFirst(run, e.Reason, e.FinalAt):
		e.Reason, e.Message = run.StopReason, run.Message
	}
	return e
}

// stopFirst reports whether a stop was asked before an attempt's work ended,
// zero: nobody knows when. What the runner ended for a limit or by order
// stays as it says.
func stopFirst(run tallyman.Run, reason tallyman.Reason, at time.Time) bool {
	if run.StopRequestedAt == nil || reason.Class() == tallyman.ClassLimit || reason.Class() == tallyman.ClassUser {
		return false
	}
	return at.IsZero() || run.StopRequestedAt.Before(at)
}

func endAttempt(a tallyman.Attempt, e tallyman.Settlement, now time.Time) tallyman.Attempt {
	a.Reason, a.Message, a.EndedAt = e.Reason, e.Message, &now
	a.ExitCode, a.Signal, a.OOMKills = e.Outcome.ExitCode, e.Outcome.Signal, e.Outcome.OOMKills
	a.StderrTail, a.OutputTail = e.Outcome.StderrTail, e.Outcome.OutputTail
	if e.Outcome.Usage != (tallyman.Usage{}) {
		a.Usage = e.Outcome.Usage
	}
	a.FinalCursor = max(a.FinalCursor, e.FinalCursor)
	if e.Evidence != nil {
		a.Evidence = e.Evidence
	}
	return a
}

func endEntry(run tallyman.Run, ref tallyman.AttemptRef, e tallyman.Settlement, now time.Time) tallyman.TimelineEntry {
	entry := tallyman.TimelineEntry{At: now, Attempt: ref.Number, Kind: "ended", Message: string(e.Reason)}
	if e.Message != "" {
		entry.Message += ": " + e.Message
	}
	if run.State == tallyman.Queued && run.NotBefore != nil {
		entry.Kind = "retry"
		entry.Message += fmt.Sprintf("; attempt %d follows in %s", ref.Number+1, run.NotBefore.Sub(now).Round(time.Second))
	}
	return entry
}

// keepResult puts a result that is too large for a row into the blob store,
// and leaves its beginning.
func (s *Service) keepResult(ctx context.Context, out tallyman.Outcome) (tallyman.Outcome, error) {
	if len(out.Result) <= tallyman.MaxInline {
		return out, nil
	}
	blob, _, err := s.blobs.Put(ctx, strings.NewReader(out.Result))
	if err != nil {
		return out, fmt.Errorf("keep the result: %w", err)
	}
	out.Result, out.ResultBlob = strings.ToValidUTF8(out.Result[:tallyman.MaxInline], ""), blob
	return out, nil
}

// Gone frees the slot of an attempt whose processes are known to be gone. It
// is owed what its journal has and History does not, until Delivered. The
// evidence, nil without one, is the last there will be.
func (s *Service) Gone(ctx context.Context, ref tallyman.AttemptRef, owed bool, last *tallyman.Evidence) error {
	err := s.store.InTx(ctx, func(tx *store.Tx) error {
		a, err := tx.Attempt(ref)
		if err != nil {
			return err
		}
		told := a.Gone
		a.Gone, a.Owed = true, owed
		if last != nil && (last.Pod != "" || a.Evidence == nil) { // less than there was replaces nothing
			a.Evidence = last
		}
		if err := tx.PutAttempt(a); err != nil {
			return err
		}
		for _, c := range a.Evidence.SidecarsKilled() {
			if told {
				break
			}
			e := tallyman.TimelineEntry{At: s.now(), Attempt: ref.Number, Kind: "notice", Message: "sidecar " + c.Name + " was killed for memory"}
			if err := tx.Timeline(ref.RunID, e); err != nil {
				return err
			}
		}
		fault.Point(fault.GoneCommitting)
		return nil
	})
	if err != nil {
		return fmt.Errorf("free the slot of attempt %s: %w", ref, err)
	}
	fault.Point(fault.GoneCommitted)
	s.notices.tell(aboutQueue)
	return nil
}

// Delivered records that History has what an attempt was owed, or that there
// is nobody to get it from.
func (s *Service) Delivered(ctx context.Context, ref tallyman.AttemptRef) error {
	return s.amend(ctx, ref, func(a *tallyman.Attempt) { a.Owed = false })
}
