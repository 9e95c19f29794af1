package tallyman

import "time"

// Active is an attempt whose slot is taken, with its run.
type Active struct {
	Run     Run
	Attempt Attempt
}

// Observation is what a backend knows about an attempt: its runner lives, or
// nothing of it is left, or, with neither, it was never started.
type Observation struct {
	Running bool
	Gone    bool
	Process string // how the runner's process ended, where that is known

	Final       *Outcome   // the journal's last word, nil without one
	FinalCursor uint64     // its cursor
	FinalAt     time.Time  // and its time
	Journal     string     // the journal's id
	Last        uint64     // its last good cursor
	JournalErr  string     // why it is not whole, "" when it is
	StartedAt   *time.Time // the agent had started, or may have
}

// Settlement is the verdict about the end of an attempt.
type Settlement struct {
	Reason  Reason
	Message string
	Outcome Outcome
	// FinalCursor is the last of the journal, 0 when there is none.
	FinalCursor uint64
	StartedAt   *time.Time // nil: the agent never started
	// FinalAt is when the runner said its last word, zero when it said none or
	// control has heard it: then it has held it against a stop already.
	FinalAt time.Time
}
