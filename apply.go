package tallyman

import "time"

// TriggerKind is what happened to a run.
type TriggerKind string

// The triggers. Admitted and StopRequested are commands; the others are
// observations about one attempt.
const (
	TriggerAdmitted      TriggerKind = "admitted"
	TriggerAgentStarted  TriggerKind = "agent_started"
	TriggerEnded         TriggerKind = "ended"
	TriggerStopRequested TriggerKind = "stop_requested"
	TriggerWaiting       TriggerKind = "waiting"
)

// TriggerKinds lists every trigger, for tests that must know them all.
var TriggerKinds = []TriggerKind{TriggerAdmitted, TriggerAgentStarted, TriggerEnded, TriggerStopRequested, TriggerWaiting}

// Trigger asks a run to change.
type Trigger struct {
	Kind    TriggerKind
	At      time.Time
	Attempt int // which attempt it is about; Admitted: the run's attempt as it was read

	Reason  Reason     // StopRequested: the intent; Ended: why
	Message string     // StopRequested: who asked; Ended: one sentence
	RetryAt *time.Time // Ended: another attempt may start then; nil: none follows
	Outcome Outcome    // Ended: exit code, result, OOM kills
	Waiting *Waiting   // Waiting: what holds it back, nil: nothing
}

// Apply returns the run as it is after the trigger. A command that comes too
// late is refused with Conflict. An observation may be late: unless it is
// about the attempt in flight it changes nothing. The version is the same
// when nothing has changed.
func (r Run) Apply(t Trigger) (Run, error) {
	inFlight := t.Attempt == r.Attempt && (r.State == Starting || r.State == Running)
	switch t.Kind {
	case TriggerAdmitted:
		if r.State != Queued || t.Attempt != r.Attempt {
			return r, Errorf(Conflict, "run %s is %s in attempt %d: it cannot be admitted", r.Name, r.State, r.Attempt)
		}
		r.State, r.Attempt = Starting, r.Attempt+1
		r.Waiting, r.NotBefore, r.ExitCode, r.Message = nil, nil, nil, "" // the attempt before keeps its own

	case TriggerAgentStarted:
		if !inFlight || r.State == Running {
			return r, nil
		}
		r.State, r.Waiting = Running, nil
		if r.StartedAt == nil {
			r.StartedAt = &t.At
		}

	case TriggerEnded:
		if !inFlight {
			return r, nil
		}
		r.ExitCode, r.OOMKills = t.Outcome.ExitCode, r.OOMKills+t.Outcome.OOMKills
		if t.RetryAt != nil && r.StopRequestedAt == nil {
			r.State, r.NotBefore, r.Waiting = Queued, t.RetryAt, nil
			r.Message = t.Message
			break
		}
		r = r.end(t.Reason, t.Message, t.At)
		r.Result = t.Outcome.Result

	case TriggerStopRequested:
		switch {
		case r.State.Terminal(), r.StopRequestedAt != nil:
			return r, nil
		case r.State == Queued:
			r.StopReason, r.StopRequestedAt = t.Reason, &t.At
			r = r.end(t.Reason, t.Message, t.At)
		default:
			r.StopReason, r.StopRequestedAt, r.Message = t.Reason, &t.At, t.Message
		}

	case TriggerWaiting:
		if r.State != Queued && r.State != Starting || t.Attempt != r.Attempt || sameWait(r.Waiting, t.Waiting) {
			return r, nil
		}
		r.Waiting = t.Waiting

	default:
		return r, Errorf(Internal, "run %s: no such trigger: %q", r.Name, t.Kind)
	}
	r.Version++
	return r, nil
}

// end makes the run terminal. A reason outside the set is recorded as it is
// and counts as failed.
func (r Run) end(reason Reason, message string, at time.Time) Run {
	r.State, r.Reason, r.Message = reason.State(), reason, message
	r.EndedAt = &at
	r.Waiting, r.NotBefore = nil, nil
	return r
}

func sameWait(a, b *Waiting) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Reason == b.Reason && a.Detail == b.Detail
}
