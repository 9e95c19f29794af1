package render

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/tallyman-dev/tallyman"
)

const (
	maxHead  = 200     // characters of a head
	maxDepth = 12      // deeper sub-agents are shown at this depth
	maxCalls = 1 << 16 // calls remembered; beyond, the renderer starts to forget

	setupCall = "\x00setup" // set-up is told like a call, one step at a time
)

// Options say whose events a Renderer gets.
type Options struct {
	// Exec: the harness is exec, so that a text is a line of its output and
	// not prose.
	Exec bool
}

// Renderer makes lines of a run's events, given in order. It pairs the ends
// of calls with their beginnings and knows whose sub-agent an event is of.
// Given events from the middle of a run it does what it can. Not safe for
// concurrent use.
type Renderer struct {
	exec    bool
	attempt int
	calls   map[string]call
	said    string // the last text of the agent itself
}

type call struct {
	tool, arg string
	began     time.Time
	depth     int
	muted     bool
}

// New returns a Renderer that has seen nothing.
func New(o Options) *Renderer {
	return &Renderer{exec: o.Exec, calls: map[string]call{}}
}

// Event returns the lines that tell the event: mostly one, never none but for
// an empty text.
func (r *Renderer) Event(id tallyman.EventID, e tallyman.Event) []Line {
	var lines []Line
	if id.Attempt != r.attempt {
		if r.attempt != 0 || id.Attempt > 1 && e.Type == tallyman.EventRunnerStarted {
			lines = append(lines, Line{Kind: KindAttempt, Event: id, Time: e.Time, Head: attempt(id.Attempt, e), Muted: true})
		}
		r.attempt, r.said = id.Attempt, ""
		clear(r.calls)
	}
	parent := e.Parent
	if e.Type == tallyman.EventSubtask && parent == "" {
		parent = e.ToolID // what is told of a sub-agent belongs to the call that made it
	}
	line := Line{Event: id, Time: e.Time, Parent: parent, Depth: r.depth(parent), Partial: e.Partial, Failed: e.Failed}
	r.fill(&line, e)
	if line.Kind == KindText && line.Body == "" && line.Raw == nil && !r.exec {
		return lines
	}
	return append(lines, line)
}

func (r *Renderer) depth(parent string) int {
	if parent == "" {
		return 0
	}
	return min(r.calls[parent].depth+1, maxDepth)
}

func (r *Renderer) fill(l *Line, e tallyman.Event) {
	switch e.Type {
	case tallyman.EventText:
		l.Kind = KindText
		r.written(l, e)
		if e.Parent == "" {
			r.said = e.Text
		}
	case tallyman.EventAgentStderr:
		l.Kind = KindStderr
		r.written(l, e)
	case tallyman.EventThinking:
		l.Kind, l.Muted, l.Body = KindThinking, true, Clean(e.Text)
		l.Head = OneLine(e.Text, maxHead)
	case tallyman.EventToolStarted:
		r.begin(l, e.ToolID, call{tool: OneLine(e.Name, maxHead), arg: argument(e.Data), began: e.Time, depth: l.Depth})
		l.Body = Input(e.Data)
	case tallyman.EventSetupStarted:
		r.begin(l, setupCall, call{tool: "setup", arg: OneLine(e.Name, maxHead), began: e.Time, muted: true})
		l.Body = Clean(e.Text)
	case tallyman.EventToolOutput, tallyman.EventSetupOutput:
		l.Kind, l.Call, l.Body = KindOutput, callID(e), Clean(e.Text)
		l.Tool, l.Muted = r.calls[l.Call].tool, true
	case tallyman.EventToolFinished, tallyman.EventSetupFinished:
		r.end(l, e)
	case tallyman.EventResult:
		l.Kind, l.Head = KindResult, "result"
		if strings.TrimSpace(e.Text) != strings.TrimSpace(r.said) {
			l.Body = Clean(e.Text)
		}
	case tallyman.EventRunnerEnded:
		ended(l, e)
	default:
		remark(l, e)
	}
}

// written fills in what the harness wrote as text.
func (r *Renderer) written(l *Line, e tallyman.Event) {
	text := e.Text
	if r.exec {
		l.Raw = []byte(e.Text)
		switch {
		case len(e.RawB64) > 0:
			l.Raw = e.RawB64
		case e.RawCut != nil && e.Text == "":
			l.Raw = []byte(cutLine(e.RawCut))
		}
		text = string(l.Raw)
	}
	l.Body = Clean(text)
}

// cutLine writes what was kept of a line too long to keep.
func cutLine(c *tallyman.RawCut) string {
	left := c.Bytes - int64(len(c.Head)) - int64(len(c.Tail))
	return string(c.Head) + "\n… " + Bytes(max(left, 0)) + " not kept …\n" + string(c.Tail)
}

func (r *Renderer) begin(l *Line, id string, c call) {
	if len(r.calls) >= maxCalls {
		clear(r.calls)
	}
	r.calls[id] = c
	l.Kind, l.Call, l.Tool, l.Arg, l.Muted = KindCall, id, c.tool, c.arg, c.muted
	l.Head = joined(c.tool, c.arg)
}

func (r *Renderer) end(l *Line, e tallyman.Event) {
	id := callID(e)
	c, known := r.calls[id]
	if c.tool == "" {
		c.tool = OneLine(e.Name, maxHead)
	}
	l.Kind, l.Call, l.Tool, l.Arg = KindDone, id, c.tool, c.arg
	l.Muted = c.muted && !e.Failed
	l.Body = Clean(e.Text)
	took := ""
	if known && !c.began.IsZero() && !e.Time.Before(c.began) {
		l.Took = e.Time.Sub(c.began)
		took = Took(l.Took)
	}
	l.Head = joined(c.tool, c.arg, took, verdict(e.Failed))
	// A sub-agent may outlive its call: only what it needs stays.
	r.calls[id] = call{depth: l.Depth}
}

func callID(e tallyman.Event) string {
	if e.Type == tallyman.EventSetupOutput || e.Type == tallyman.EventSetupFinished {
		return setupCall
	}
	return e.ToolID
}

// attempt says which attempt begins, and why where its first event tells.
func attempt(n int, first tallyman.Event) string {
	var started struct {
		LastFailure string `json:"last_failure"`
	}
	head := "attempt " + Count(int64(n))
	if first.Type != tallyman.EventRunnerStarted || json.Unmarshal(first.Data, &started) != nil || started.LastFailure == "" {
		return head
	}
	return head + ", after " + OneLine(started.LastFailure, maxHead)
}

// ended tells the runner's last event.
func ended(l *Line, e tallyman.Event) {
	l.Kind = KindEnd
	var o tallyman.Outcome
	if json.Unmarshal(e.Data, &o) != nil {
		l.Head, l.Failed = "ended: outcome unknown", true
		return
	}
	switch {
	case o.Interrupted:
		l.Head = joined("interrupted", OneLine(o.Message, maxHead))
	case o.Reason == "":
		l.Head, l.Failed = joined("ended: outcome unknown", OneLine(o.Message, maxHead)), true
	default:
		l.Head = joined("ended: "+OneLine(Words(o.Reason), maxHead), OneLine(o.Message, maxHead))
		l.Failed = o.Reason.State() == tallyman.Failed
	}
	l.Muted = o.Reason == tallyman.Completed
}

// joined joins what there is by two spaces.
func joined(parts ...string) string {
	var there []string
	for _, p := range parts {
		if p != "" {
			there = append(there, p)
		}
	}
	return strings.Join(there, "  ")
}
