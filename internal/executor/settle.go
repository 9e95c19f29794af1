package executor

import (
	"fmt"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// Facts are what is known about an attempt whose processes may have ended.
type Facts struct {
	StopReason  tallyman.Reason // our recorded intent, "" without one
	StopAt      time.Time
	StopMessage string

	Final       *tallyman.Outcome // the runner's last event, nil when there is none
	FinalCursor uint64
	FinalAt     time.Time // of that event, zero when control heard of it from the runner

	Gone        bool   // its processes are known to be gone
	Last        uint64 // the last good cursor of its journal
	JournalErr  string // why the journal is not whole, "" when it is
	StartErr    string // why the backend could not start it
	StartReason tallyman.Reason
	Process     string            // how the runner's process ended: "signal: killed"
	Cause       *tallyman.Cause   // of the end, in the backend's words; nil without any
	Blocked     *tallyman.Blocked // what keeps it from starting; nil: nothing
	StartedAt   *time.Time        // the agent had started, or may have
	Late        string            // it was not started in time, and how long that is; "" otherwise
}

// Settle decides how an attempt ended; ok is false while it has not. The
// order is: our intent, if it came before the end; the runner's final event;
// what the backend knows; RunnerLost. Unknown is never success.
func Settle(f Facts) (s tallyman.Settlement, ok bool) {
	s.FinalCursor, s.FinalAt, s.StartedAt = f.FinalCursor, f.FinalAt, f.StartedAt
	if f.Final != nil {
		s.Outcome = *f.Final
	}
	switch {
	case f.StartErr != "":
		s.Reason, s.Message = f.StartReason, f.StartErr
		if f.StopReason != "" {
			s.Reason, s.Message = f.StopReason, f.StopMessage
		}
		return s, true

	case f.Final != nil && f.Final.Reason.Valid():
		// The runner knows whether a stop came before the end; it says so itself.
		s.Reason, s.Message = f.Final.Reason, f.Final.Message
		return s, true

	case f.Blocked != nil && (f.Blocked.Hopeless || f.Late != "") && f.StartedAt == nil:
		// Nothing has run, and nothing will: who ends it takes the rest away.
		blame(&s, f.Blocked.Cause)
		if f.StopReason != "" {
			s.Reason, s.Message = f.StopReason, f.StopMessage
		}

	case !f.Gone:
		return s, false

	case f.StopReason != "":
		s.Reason, s.Message = f.StopReason, f.StopMessage

	case f.Late != "" && f.StartedAt == nil && f.Cause != nil && f.Cause.Reason == tallyman.PodDeleted:
		// Who did not start in time is taken away by ourselves.
		s.Reason, s.Message = tallyman.StartTimeout, "the agent was not started within "+f.Late

	case f.Cause != nil:
		blame(&s, *f.Cause)

	case f.Final != nil && f.Final.Interrupted:
		s.Reason, s.Message = tallyman.RunnerLost, "the runner was ended from outside while the agent was at work"

	case f.Late != "" && f.StartedAt == nil:
		s.Reason, s.Message = tallyman.StartTimeout, "the agent was not started within "+f.Late

	case f.JournalErr != "":
		s.Reason, s.Message = tallyman.RunnerLost, "the runner is gone and its journal is damaged: "+f.JournalErr

	default:
		s.Reason, s.Message = tallyman.RunnerLost, "the runner is gone and left no outcome"
	}
	if s.Reason == tallyman.RunnerLost && f.Process != "" && f.Cause == nil {
		s.Message += fmt.Sprintf(" (%s)", f.Process)
	}
	if s.FinalCursor == 0 {
		s.FinalCursor = f.Last
	}
	s.Outcome.Reason = s.Reason
	return s, true
}

// blame takes over what the backend says of the end.
func blame(s *tallyman.Settlement, c tallyman.Cause) {
	s.Reason, s.Message = c.Reason, c.Message
	if s.Outcome.ExitCode == nil {
		s.Outcome.ExitCode, s.Outcome.Signal = c.ExitCode, c.Signal
	}
}
