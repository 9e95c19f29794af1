package harness

import (
	"strings"

	"github.com/tallyman-dev/tallyman"
)

// claudeParser reads the stream of one claude process.
type claudeParser struct {
	reader
	stderr stderrLines
	spent  claudeUsage
	tools  openTools
	blocks openBlocks

	options claudeOptions
	known   bool // a line of the protocol has come
	begun   bool // an init has come

	turn     int
	turnOpen bool
	messages map[string]string // the message that is being streamed, by parent

	servers      []mcpServer // of the newest init
	pluginErrors []string
	background   map[string]bool // tasks that go on by themselves
	queued       bool            // the last result said that another follows

	apiError   string // what the last assistant line of the turn said was wrong
	results    int
	last       claudeResult
	answer     string // the last result that answers the prompt
	structured []byte
}

type mcpServer struct{ name, status string }

// NewParser returns a parser for one claude process.
func (claude) NewParser(spec tallyman.RunnerSpec) Parser {
	// Invoke has told what is wrong with the options.
	options, _ := readClaudeOptions(spec.Agent)
	return &claudeParser{
		options:    options,
		spent:      claudeUsage{model: spec.Agent.Model, prices: prices{override: spec.Prices}},
		messages:   map[string]string{},
		background: map[string]bool{},
	}
}

// envelope is what tells a line's kind.
type envelope struct{ kind, subtype, parent, body []byte }

func (p *claudeParser) envelope() (e envelope) {
	for _, f := range p.scan.fields {
		switch string(f.key) {
		case "type":
			e.kind = f.value
		case "subtype":
			e.subtype = f.value
		case "parent_tool_use_id":
			e.parent = f.value
		case "message", "event":
			e.body = f.value
		}
	}
	return e
}

// Parse reads one line. Stream events give deltas and no events, but for the
// end of a message, which gives usage.
func (p *claudeParser) Parse(line []byte, out *Batch) {
	line = trimBreak(line)
	if len(line) == 0 {
		return
	}
	first := len(out.Events)
	object := p.read(line)
	e := p.envelope()
	if !object || !isString(e.kind) {
		out.Events = append(out.Events, p.stray())
		out.Events[first].Turn = p.turn
		p.keep(out, first)
		return
	}
	p.known = true
	kind, parent := inner(e.kind), inner(e.parent)
	switch kind {
	case "stream_event":
		p.streamEvent(e.body, parent, out)
		p.keep(out, first)
		return
	case "assistant":
		p.assistant(e.body, parent, out)
	case "user":
		p.user(e.body, parent, out)
	case "system":
		p.system(inner(e.subtype), out)
	case "result":
		p.result(out)
	case "keep_alive":
		return
	case "rate_limit_event":
		p.rateLimit(out)
	}
	if len(out.Events) == first {
		p.unknown(kind, inner(e.subtype), parent, out)
	}
	p.keep(out, first)
}

func trimBreak(line []byte) []byte {
	for len(line) > 0 && (line[len(line)-1] == '\r' || line[len(line)-1] == '\n') {
		line = line[:len(line)-1]
	}
	return line
}

// Stderr passes the line on.
func (p *claudeParser) Stderr(line []byte, out *Batch) { p.stderr.add(line, maxText, out) }

// Close ends what is open.
func (p *claudeParser) Close(out *Batch) {
	p.blocks.abandonAll(p.turn, out)
	p.tools.abandon(p.turn, out, func(string) bool { return true })
}

// Progress tells what is known so far.
func (p *claudeParser) Progress() Progress {
	usage := p.spent.total()
	return Progress{
		Usage:     usage,
		Turns:     usage.Turns,
		OpenTools: len(p.tools.calls),
		Result:    p.results > 0 && !p.turnOpen,
		More:      p.results > 0 && (p.turnOpen || p.queued || len(p.background) > 0),
		Fatal:     p.broken(),
	}
}

// event makes an event of the turn.
func (p *claudeParser) event(kind tallyman.EventType, parent string) tallyman.Event {
	return tallyman.Event{Type: kind, Turn: p.turn, Parent: parent}
}

// openTurn begins a turn unless one is open, and reports whether it did.
func (p *claudeParser) openTurn() bool {
	if p.turnOpen {
		return false
	}
	p.turn++
	p.turnOpen, p.queued, p.apiError = true, false, ""
	return true
}

// unknown keeps a line that this version knows nothing about.
func (p *claudeParser) unknown(kind, subtype, parent string, out *Batch) {
	e := p.event(tallyman.EventNotice, parent)
	e.Name = kind
	if subtype != "" {
		e.Name += "/" + subtype
	}
	for _, key := range []string{"content", "text", "message", "summary", "status"} {
		if e.Text = p.str(key); e.Text != "" {
			break
		}
	}
	out.Events = append(out.Events, e)
}

// assistant reads complete blocks of a message. A message comes as several
// lines, one per block.
func (p *claudeParser) assistant(message []byte, parent string, out *Batch) {
	var id, model, content, usage []byte
	for key, value := range fields(message) {
		switch string(key) {
		case "id":
			id = value
		case "model":
			model = value
		case "content":
			content = value
		case "usage":
			usage = value
		}
	}
	if parent == "" && p.openTurn() {
		out.Events = append(out.Events, p.event(tallyman.EventTurnStarted, ""))
	}
	p.spent.see(inner(id), inner(model), usage, parent == "")
	failure := p.str("error")
	if failure != "" {
		p.apiError = strings.Clone(failure)
	}
	if isString(content) {
		p.words(tallyman.EventText, content, parent, failure, out)
	}
	for block := range elements(content) {
		p.block(block, parent, failure, out)
	}
}

// words is a text or a thought; the text of a failed call is an error.
func (p *claudeParser) words(kind tallyman.EventType, value []byte, parent, failure string, out *Batch) {
	p.blocks.whole(parent, kind)
	e := p.event(kind, parent)
	e.Text = p.text.of(value)
	if failure != "" {
		e.Type, e.Name, e.Failed = tallyman.EventError, failure, true
	}
	out.Events = append(out.Events, e)
}

func (p *claudeParser) block(block []byte, parent, failure string, out *Batch) {
	var kind, words, id, name, input, toolID, content []byte
	failed := false
	for key, value := range fields(block) {
		switch string(key) {
		case "type":
			kind = value
		case "text", "thinking":
			words = value
		case "id":
			id = value
		case "name":
			name = value
		case "input":
			input = value
		case "tool_use_id":
			toolID = value
		case "content":
			content = value
		case "is_error":
			failed = string(value) == "true"
		}
	}
	switch kind := inner(kind); {
	case kind == "text":
		p.words(tallyman.EventText, words, parent, failure, out)
	case kind == "thinking":
		p.words(tallyman.EventThinking, words, parent, "", out)
	case kind == "redacted_thinking":
		e := p.event(tallyman.EventThinking, parent)
		e.Text = "[redacted]"
		out.Events = append(out.Events, e)
	case strings.HasSuffix(kind, "tool_use"):
		e := p.event(tallyman.EventToolStarted, parent)
		e.ToolID, e.Name, e.Data = p.text.of(id), p.text.of(name), data(input)
		p.tools.start(e.ToolID, e.Name, parent)
		out.Events = append(out.Events, e)
	case strings.HasSuffix(kind, "tool_result"):
		e := p.event(tallyman.EventToolFinished, parent)
		e.ToolID, e.Text, e.Failed = p.text.of(toolID), p.text.content(content), failed
		e.Name = p.tools.finish(e.ToolID)
		out.Events = append(out.Events, e)
	default:
		e := p.event(tallyman.EventNotice, parent)
		e.Name, e.Text = "block/"+kind, p.text.of(words)
		out.Events = append(out.Events, e)
	}
}

// user reads results of tools; other words of a user line are not the
// agent's, and are noted.
func (p *claudeParser) user(message []byte, parent string, out *Batch) {
	var content []byte
	for key, value := range fields(message) {
		if string(key) == "content" {
			content = value
		}
	}
	if isString(content) {
		p.said(content, parent, out)
	}
	for block := range elements(content) {
		switch words, ok := textBlock(block); {
		case isString(block):
			p.said(block, parent, out)
		case ok:
			p.said(words, parent, out)
		default:
			p.block(block, parent, "", out)
		}
	}
}

func textBlock(block []byte) (words []byte, ok bool) {
	for key, value := range fields(block) {
		switch string(key) {
		case "type":
			ok = inner(value) == "text"
		case "text":
			words = value
		}
	}
	return words, ok
}

func (p *claudeParser) said(words []byte, parent string, out *Batch) {
	e := p.event(tallyman.EventNotice, parent)
	e.Name, e.Text = "user", p.text.of(words)
	switch {
	case p.is("isReplay"):
		e.Name = "user/replay"
	case p.is("isSynthetic"):
		e.Name = "user/synthetic"
	}
	out.Events = append(out.Events, e)
}
