package tallyman

import (
	"encoding/json"
	"time"
)

// The runner channel: what a runner and a gateway say to each other. Paths
// are under /runner/v1/attempts/{id}/, id as AttemptRef writes it.
//
//	POST hello                    Hello → Welcome
//	POST control?epoch=           ControlReport → ControlAnswer; three times in a lease at least
//	POST events?from=             NDJSON, contiguous from that cursor; 409 EventsExpected on a gap
//	GET  commands?epoch=          server-sent events: StopOrder as "stop"; "superseded"
//	PUT  artifacts/{name}         ?digest=&size=&offset=; HEAD tells the offset to go on from
//	GET  files/{name}             "prompt"
//
// Every call carries the attempt's key as its bearer token. On one machine the
// runner has it from an inherited pipe. In a cluster its first hello carries
// its Pod's token instead, whose audience is TokenAudience, and the header
// Tallyman-Cluster the cluster's name where the server knows several; the
// welcome brings the key. Each side passes over fields that it does not know.

// Hello is the first word of a runner, and after each lost connection.
type Hello struct {
	JournalID  string `json:"journal_id"`
	LastCursor uint64 `json:"last_cursor"`       // the journal's last durable one
	Version    string `json:"version"`           // for the server's log
	Process    string `json:"process,omitempty"` // the runner's pid or Pod UID
}

// Proof is what the caller of a hello has shown to be: somebody who has the
// attempt's key, or a Pod of the attempt.
type Proof struct {
	Key string
	Pod string // its UID
}

// Welcome answers a hello.
type Welcome struct {
	Epoch        int64      `json:"epoch"`
	AttemptKey   string     `json:"attempt_key,omitempty"` // for who came with a token
	LeaseSeconds int        `json:"lease_seconds"`         // after so long without a report the connection counts as lost
	Spec         RunnerSpec `json:"spec"`
}

// RunnerSpec is everything that a runner needs to work an attempt.
type RunnerSpec struct {
	RunID     string `json:"run_id"`
	RunName   string `json:"run_name"`
	Namespace string `json:"namespace"`
	AgentName string `json:"agent_name"`
	Attempt   int    `json:"attempt"`

	Agent AgentSpec `json:"agent"` // limits as they apply, model as asked

	// Prompt is the prompt up to MaxInline; a longer one is files/prompt.
	Prompt     string `json:"prompt,omitempty"`
	PromptSize int64  `json:"prompt_size"`

	WorkDir string   `json:"work_dir"`       // absolute; the runner makes it where it is fresh
	Env     []EnvVar `json:"env,omitempty"`  // the whole environment; Mask marks secrets
	Home    string   `json:"home,omitempty"` // HOME of the harness

	// Notes are said at the start of the transcript: whose login is used …
	Notes []string `json:"notes,omitempty"`
	// Prices replaces entries of the built-in price table.
	Prices json.RawMessage `json:"prices,omitempty"`
	// Used is what earlier attempts used of the budget and tokens.
	Used Usage `json:"used"`
	// LastFailure is why the attempt before this one failed.
	LastFailure string `json:"last_failure,omitempty"`

	Grace        Duration `json:"grace"`         // TERM to KILL
	ResultGrace  Duration `json:"result_grace"`  // result to exit
	OrphanBudget Duration `json:"orphan_budget"` // without contact; 0: never gives up
	DrainBudget  Duration `json:"drain_budget"`  // for delivering the rest after the end
}

// FactKind names a fact that changes control state.
type FactKind string

// The facts.
const (
	FactStarted FactKind = "started" // the harness's process runs
	FactUsage   FactKind = "usage"   // totals of the attempt so far
	FactFirst   FactKind = "first"   // the harness has written its first line
	FactFinal   FactKind = "final"   // runner.ended is durable; nothing follows
)

// Fact is something durable in the journal that control must know.
type Fact struct {
	Cursor  uint64    `json:"cursor"`
	Kind    FactKind  `json:"kind"`
	At      time.Time `json:"at"`
	Usage   *Usage    `json:"usage,omitempty"`
	Outcome *Outcome  `json:"outcome,omitempty"`
}

// ControlReport carries facts, in order. An empty one is the heartbeat.
type ControlReport struct {
	Facts []Fact `json:"facts,omitempty"`
}

// ControlAnswer says that the facts of a report are durable, and what control
// wants.
type ControlAnswer struct {
	Stop *StopOrder `json:"stop,omitempty"`
}

// StopOrder tells a runner to end its harness.
type StopOrder struct {
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
}

// EventsExpected is the body of a 409 to events: the cursor to go on from.
type EventsExpected struct {
	Expected uint64 `json:"expected"`
}

// EventsAnswer acknowledges events that History has made durable.
type EventsAnswer struct {
	Next uint64 `json:"next"` // the cursor expected next
}

// Provisional heads a line among events that is only for who watches now: a
// text delta. It has no cursor, is never stored and never resumed.
const Provisional = `{"delta":`

// Delta is such a line.
type Delta struct {
	Delta  string    `json:"delta"`
	Type   EventType `json:"type"` // text or thinking
	Parent string    `json:"parent,omitempty"`
	Block  string    `json:"block,omitempty"` // which open block it adds to
	// After is the cursor of the event that it follows: where it belongs among
	// events that become durable a moment later.
	After uint64 `json:"after,omitempty"`
}

// ClusterHeader names the cluster whose token a hello carries.
const ClusterHeader = "Tallyman-Cluster"

// Bootstrap is what a runner knows before its first hello. A local one reads
// it from its inherited pipe, as JSON; one in a Pod has it from its command
// line and from what is mounted there.
type Bootstrap struct {
	Attempt string `json:"attempt"` // an AttemptRef
	Dir     string `json:"dir"`     // the attempt's folder: journal, home, tmp
	Socket  string `json:"socket"`  // the server's, on this machine
	Key     string `json:"key"`

	Server  string `json:"-"` // URL of a server elsewhere
	CA      string `json:"-"` // file with the authorities behind it, "": the system's
	Token   string `json:"-"` // file with the Pod's token, read anew for each hello
	Cluster string `json:"-"`
}
