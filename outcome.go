package tallyman

import "encoding/json"

// Outcome is how an attempt ended as its runner saw it: the content of the
// journal's last event, runner.ended.
type Outcome struct {
	Reason   Reason `json:"reason,omitempty"`  // "" when interrupted: the server knows why, or nobody does
	Message  string `json:"message,omitempty"` // one sentence
	ExitCode *int   `json:"exit_code,omitempty"`
	Signal   string `json:"signal,omitempty"` // "killed", "terminated" …
	Result   string `json:"result,omitempty"`
	// ResultBlob names the whole result where the server keeps Result cut.
	ResultBlob string `json:"result_blob,omitempty"`
	// Structured is the result as JSON, where the agent was asked for that.
	Structured json.RawMessage `json:"structured,omitempty"`
	Usage      Usage           `json:"usage"`
	OOMKills   int             `json:"oom_kills,omitempty"`
	// Started tells whether the harness ran at all; before it, a retry is free.
	Started bool `json:"started"`
	// Interrupted: the runner itself was told to end and cannot say why.
	Interrupted bool   `json:"interrupted,omitempty"`
	StderrTail  string `json:"stderr_tail,omitempty"`
	OutputTail  string `json:"output_tail,omitempty"`
}

// Exit is how a harness's process ended.
type Exit struct {
	Code   int    // -1 when a signal ended it
	Signal string // its name, "" without one
	// Sent is the signal that we sent, "" when it ended by itself.
	Sent string
}
