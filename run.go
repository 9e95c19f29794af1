package tallyman

import (
	"encoding/json"
	"time"
)

// State is where a run is in its life; see the package documentation.
type State string

// The states.
const (
	Queued    State = "queued"
	Starting  State = "starting"
	Running   State = "running"
	Suspended State = "suspended"
	Succeeded State = "succeeded"
	Failed    State = "failed"
	Stopped   State = "stopped"
)

// States lists every state in the order of a run's life.
var States = []State{Queued, Starting, Running, Suspended, Succeeded, Failed, Stopped}

// Terminal reports whether the state never changes again.
func (s State) Terminal() bool { return s == Succeeded || s == Failed || s == Stopped }

// StateNames are the states as they are written.
func StateNames() []string {
	var names []string
	for _, s := range States {
		names = append(names, string(s))
	}
	return names
}

// Valid reports whether the state is one of States.
func (s State) Valid() bool {
	for _, known := range States {
		if s == known {
			return true
		}
	}
	return false
}

// Source is what turned an outside request into a run.
type Source string

// The sources.
const (
	SourceAPI     Source = "api"
	SourceCLI     Source = "cli"
	SourceWeb     Source = "web"
	SourceKafka   Source = "kafka"
	SourceVault   Source = "vault"
	SourceCron    Source = "cron"
	SourceWebhook Source = "webhook"
	SourceEval    Source = "eval"
)

// Door is what counts where the same thing may be asked for twice: api, cli
// and web are ways of one caller, and all count as api.
func (s Source) Door() Source {
	switch s {
	case SourceCLI, SourceWeb:
		return SourceAPI
	default:
		return s
	}
}

// DefaultNamespace is where everything lives that names no other.
const DefaultNamespace = "default"

// MaxInline is how large a prompt or result may be to live in a row; larger
// ones are blobs.
const MaxInline = 64 << 10

// Run is one request for work. Its JSON is what the API and -o json show.
type Run struct {
	ID        string            `json:"id"` // a ULID
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Agent     string            `json:"agent"`
	Harness   string            `json:"harness"`
	Model     string            `json:"model"`
	State     State             `json:"state"`
	Reason    Reason            `json:"reason"`
	Message   string            `json:"message"`
	Attempt   int               `json:"attempt"` // 0 before the first
	ExitCode  *int              `json:"exit_code"`
	Result    string            `json:"result"`
	Usage     Usage             `json:"usage"` // over all attempts
	OOMKills  int               `json:"oom_kills"`
	Waiting   *Waiting          `json:"waiting"`
	Labels    map[string]string `json:"labels"`
	Key       string            `json:"key"` // the idempotency key
	Source    Source            `json:"source"`
	Parent    string            `json:"parent"` // the run that this one repeats
	Priority  int               `json:"priority"`

	CreatedAt       time.Time  `json:"created_at"`
	StartedAt       *time.Time `json:"started_at"` // the first agent.started
	EndedAt         *time.Time `json:"ended_at"`
	StopRequestedAt *time.Time `json:"stop_requested_at,omitempty"`
	NotBefore       *time.Time `json:"not_before,omitempty"` // a retry waits until then

	Limits Limits `json:"limits"`

	// StopReason is the intent behind StopRequestedAt.
	StopReason Reason `json:"-"`
	// ResultBlob names the whole result when Result holds only its beginning.
	ResultBlob string `json:"-"`
	// Version counts changes; a write says which one it read.
	Version int64 `json:"-"`
}

// AgentKey names the run's agent across namespaces: NAMESPACE/NAME.
func (r Run) AgentKey() string { return AgentKey(r.Namespace, r.Agent) }

// AgentKey names an agent across namespaces: NAMESPACE/NAME.
func AgentKey(namespace, agent string) string { return namespace + "/" + agent }

// Waiting says what holds a run back that is queued or starting.
type Waiting struct {
	Reason   WaitReason `json:"reason"`
	Detail   string     `json:"detail"`
	Position int        `json:"position"` // 1 is next; counted when read
}

// Same reports whether both say the same, wherever in the queue. Nil is that
// nothing holds a run back.
func (w *Waiting) Same(other *Waiting) bool {
	if w == nil || other == nil {
		return w == other
	}
	return w.Reason == other.Reason && w.Detail == other.Detail
}

// Attempt is one execution of a run on a backend.
type Attempt struct {
	RunID  string `json:"run_id"`
	Number int    `json:"number"` // from 1

	Reason   Reason `json:"reason"` // "" while it lasts
	Message  string `json:"message"`
	ExitCode *int   `json:"exit_code"`
	Signal   string `json:"signal,omitempty"`
	Usage    Usage  `json:"usage"`
	OOMKills int    `json:"oom_kills"`
	Backend  string `json:"backend"`
	Process  string `json:"process,omitempty"` // what the backend calls it: a pid, a Pod

	QueuedAt    time.Time  `json:"queued_at"`
	AdmittedAt  time.Time  `json:"admitted_at"`
	StartedAt   *time.Time `json:"started_at"`     // agent.started
	FirstAt     *time.Time `json:"first_event_at"` // the agent's first event
	EndedAt     *time.Time `json:"ended_at"`
	LastContact *time.Time `json:"last_contact,omitempty"` // while its runner lives and is silent: since when

	StderrTail string `json:"stderr_tail,omitempty"` // last 50 lines
	OutputTail string `json:"output_tail,omitempty"` // last 50 lines

	Evidence *Evidence `json:"evidence,omitempty"` // what a cluster said about it

	Journal     string `json:"journal,omitempty"` // its id, once a runner has said hello
	LastCursor  uint64 `json:"last_cursor"`       // the highest that control has seen
	FinalCursor uint64 `json:"final_cursor"`      // the journal's last, 0 while unknown

	Epoch   int64    `json:"-"` // counts hellos
	KeyHash []byte   `json:"-"` // SHA-256 of the attempt key
	Final   *Outcome `json:"-"` // what the runner's last event said
	Gone    bool     `json:"-"` // its processes are known to be gone: the slot is free
	Object  string   `json:"-"` // what the backend has made for it, as it calls it; "" where it keeps none
	Owed    bool     `json:"-"` // gone, and History lacks events that its journal has
}

// Ref names an attempt.
func (a Attempt) Ref() AttemptRef { return AttemptRef{RunID: a.RunID, Number: a.Number} }

// TimelineEntry is something that the server decided or saw about a run.
type TimelineEntry struct {
	At      time.Time       `json:"at"`
	Attempt int             `json:"attempt,omitempty"`
	Kind    string          `json:"kind"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Artifact is a file that an attempt left behind.
type Artifact struct {
	RunID   string    `json:"run_id"`
	Attempt int       `json:"attempt"`
	Name    string    `json:"name"` // its path in the workspace
	Size    int64     `json:"size"`
	Digest  string    `json:"digest"` // sha256:…
	At      time.Time `json:"at"`
}
