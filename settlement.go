package tallyman

import (
	"context"
	"fmt"
	"time"
)

// Active is an attempt whose slot is taken, with its run.
type Active struct {
	Run     Run
	Attempt Attempt
}

// Assignment is what a backend needs to start an attempt.
type Assignment struct {
	Run     Run
	Attempt Attempt
	Agent   AgentSpec // as it was at submit, with what the request changed
	Origin  string    // where the agent came from
	// Prompt is the prompt up to MaxInline; PromptSize is that of the whole.
	Prompt     string
	PromptSize int64
	// NewKey makes the attempt's key, of which the server keeps a hash. Each
	// call makes another, and the last one counts.
	NewKey func(context.Context) (string, error)
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

	Deaf     bool      // no runner is there that could be told anything: not yet, or never
	Blocked  *Blocked  // why the agent has not started, nil when nothing holds it
	Cause    *Cause    // why it ended, nil when the backend does not know
	Evidence *Evidence // what a cluster says about it, nil without one
}

// Cause is why an attempt ended, in its backend's own words. A runner's final
// event says more, where there is one.
type Cause struct {
	Reason   Reason
	Message  string
	ExitCode *int
	Signal   string
}

// Blocked is what keeps an attempt from starting.
type Blocked struct {
	Cause               // of the end, if it stays so
	Wait     WaitReason // while it may still change, "" where no gate is meant
	Hopeless bool       // it cannot change by itself
}

// Evidence is what a cluster says about an attempt. It is kept with it, since
// its objects go.
type Evidence struct {
	Namespace   string           `json:"namespace,omitempty"` // of the Pod
	Pod         string           `json:"pod,omitempty"`
	Node        string           `json:"node,omitempty"`
	ScheduledAt *time.Time       `json:"scheduled_at,omitempty"`
	Containers  []ContainerState `json:"containers,omitempty"` // in the order in which they start
	Events      []ClusterEvent   `json:"events,omitempty"`     // warnings, the oldest first
}

// ContainerState is how a container is, or was when it was last seen.
type ContainerState struct {
	Name      string     `json:"name"`
	Kind      string     `json:"kind"`  // InitContainer, SidecarContainer or AgentContainer
	State     string     `json:"state"` // waiting, running or terminated
	Reason    string     `json:"reason,omitempty"`
	Message   string     `json:"message,omitempty"`
	ExitCode  *int       `json:"exit_code,omitempty"`
	Signal    int        `json:"signal,omitempty"`
	StartedAt *time.Time `json:"started_at,omitempty"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	Image     string     `json:"image,omitempty"`
	Digest    string     `json:"digest,omitempty"` // of the image that was run
	Output    string     `json:"output,omitempty"` // the last of what it printed, where no journal has it
}

// SidecarsKilled are the sidecars that were killed for memory. A nil Evidence
// has none.
func (e *Evidence) SidecarsKilled() (killed []ContainerState) {
	if e == nil {
		return nil
	}
	for _, c := range e.Containers {
		if c.Kind == SidecarContainer && c.Reason == "OOMKilled" {
			killed = append(killed, c)
		}
	}
	return killed
}

// Kinds of containers in a Pod.
const (
	InitContainer    = "init"
	SidecarContainer = "sidecar"
	AgentContainer   = "agent"
)

// Describe says in words how the container is.
func (c ContainerState) Describe() string {
	words := c.State
	if c.ExitCode != nil {
		words += fmt.Sprintf(" with exit code %d", *c.ExitCode)
	}
	if c.Reason != "" && c.Reason != "Completed" && c.Reason != "Error" {
		words += ", " + c.Reason
	}
	if _, ours := ParseLastWord(c.Message); c.Message != "" && !ours {
		words += ": " + c.Message
	}
	return words
}

// ClusterEvent is something that a cluster warned of.
type ClusterEvent struct {
	At      time.Time `json:"at"`
	Object  string    `json:"object"` // kind/name
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int       `json:"count,omitempty"`
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
	// Evidence is what a cluster says about it, nil without one.
	Evidence *Evidence
}
