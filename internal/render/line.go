package render

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// Kind says what a line is.
type Kind string

// The kinds. A call is told by one KindCall, any number of KindOutput and one
// KindDone with the same Line.Call; set-up steps are told so too.
const (
	KindText     Kind = "text"     // what the agent said, in Body
	KindThinking Kind = "thinking" // what it thought, in Body
	KindCall     Kind = "call"     // a tool call begins; Body is its input
	KindOutput   Kind = "output"   // what a call has put out so far, a piece in Body
	KindDone     Kind = "done"     // a tool call ended; Body is its output
	KindSubtask  Kind = "subtask"  // news of a sub-agent
	KindStderr   Kind = "stderr"   // a line of the agent's standard error
	KindNotice   Kind = "notice"   // something worth knowing
	KindError    Kind = "error"    // something went wrong
	KindArtifact Kind = "artifact" // a file was kept
	KindResult   Kind = "result"   // Body is the result, "" when it repeats the last text
	KindEnd      Kind = "end"      // the attempt's outcome as its runner saw it
	KindAttempt  Kind = "attempt"  // another attempt begins
	KindMark     Kind = "mark"     // the bookkeeping between: turns, usage, processes
)

// Line is one thing to show: at most one line of text in Head, any number in
// Body. Nothing in it but Raw can steer a terminal.
type Line struct {
	Kind   Kind
	Event  tallyman.EventID
	Time   time.Time
	Depth  int    // how many sub-agents deep
	Parent string // the call whose sub-agent it belongs to

	Call string        // which call: the tool_id
	Tool string        // the tool's name
	Arg  string        // the argument that matters
	Took time.Duration // KindDone: how long, 0 when that is not known

	Head string
	Body string

	Failed  bool
	Muted   bool
	Partial bool // the block was open when the stream ended

	// Raw is the line exactly as an exec harness wrote it, without its newline.
	Raw []byte
}

// Decode reads the JSON of one event.
func Decode(line []byte) (tallyman.Event, error) {
	var e tallyman.Event
	if err := json.Unmarshal(line, &e); err != nil {
		return tallyman.Event{}, fmt.Errorf("read event: %w", err)
	}
	return e, nil
}
