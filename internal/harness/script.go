package harness

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/tallyman-dev/tallyman"
)

// scriptHarness is the built-in agent that needs no model: it plays steps.
// Script is its program.
type scriptHarness struct{}

// checkScript looks at the steps, where the agent has them; else the prompt
// is the steps.
func checkScript(agent tallyman.AgentSpec) error {
	if len(agent.MCPServers) > 0 {
		return invalidSpec("harness script has no use for mcpServers")
	}
	for _, key := range slices.Sorted(maps.Keys(agent.Settings)) {
		if key != "steps" {
			return invalidSpec("settings.%s is unknown%s", key, didYouMean(key, []string{"steps"}))
		}
	}
	if steps, ok := agent.Settings["steps"]; ok {
		if _, err := readSteps(steps); err != nil {
			return invalidSpec("settings.%v", err)
		}
	}
	return nil
}

// CheckSteps returns what is wrong with a JSON list of steps, naming the step.
func CheckSteps(steps []byte) error {
	if _, err := readSteps(steps); err != nil {
		return invalidSpec("%v", err)
	}
	return nil
}

// Invoke runs this very program as `script FILE`; without steps in the
// settings as `script -`, which reads them from the prompt.
func (scriptHarness) Invoke(spec tallyman.RunnerSpec, dir string) (Invocation, error) {
	if err := checkScript(spec.Agent); err != nil {
		return Invocation{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return Invocation{}, withReason(tallyman.SetupFailed, tallyman.Errorf(tallyman.Internal, "find this program: %w", err))
	}
	inv := Invocation{PromptOnStdin: true, Files: map[string][]byte{}}
	file := "-"
	steps, ok := spec.Agent.Settings["steps"]
	switch {
	case !ok && spec.PromptSize == 0 && spec.Prompt == "":
		return Invocation{}, invalidSpec("harness script needs settings.steps, or a prompt that is a JSON list of steps")
	case ok:
		file = filepath.Join(dir, "script.json")
		inv.Files[file] = steps
	}
	inv.Argv = append(program(spec.Agent, self), "script", file)
	return inv, nil
}

// StopOrder asks the whole group once.
func (scriptHarness) StopOrder() []StopStep {
	return []StopStep{{Signal: syscall.SIGTERM, Group: true}}
}

// scriptLine is the protocol between Script and its parser: one JSON object a
// line, typed like events, and "delta".
type scriptLine struct {
	Type   string             `json:"type"`
	Of     tallyman.EventType `json:"of,omitempty"`    // delta: of a text or a thought
	Block  int                `json:"block,omitempty"` // delta
	Parent string             `json:"parent,omitempty"`
	ID     string             `json:"id,omitempty"`
	Name   string             `json:"name,omitempty"`
	Text   string             `json:"text,omitempty"`
	Failed bool               `json:"failed,omitempty"`
	Reason tallyman.Reason    `json:"reason,omitempty"` // result
	Usage  *scriptUsage       `json:"usage,omitempty"`  // totals so far
	Data   json.RawMessage    `json:"data,omitempty"`
}

type scriptUsage struct {
	InputTokens      int64    `json:"input_tokens,omitempty"`
	OutputTokens     int64    `json:"output_tokens,omitempty"`
	CacheReadTokens  int64    `json:"cache_read_tokens,omitempty"`
	CacheWriteTokens int64    `json:"cache_write_tokens,omitempty"`
	CostUSD          *float64 `json:"cost_usd,omitempty"`
}

// sane reports whether nothing is negative.
func (u scriptUsage) sane() bool {
	return min(u.InputTokens, u.OutputTokens, u.CacheReadTokens, u.CacheWriteTokens) >= 0 &&
		(u.CostUSD == nil || *u.CostUSD >= 0)
}

// scriptParser reads the lines of one script.
type scriptParser struct {
	reader
	stderr stderrLines
	tools  openTools
	blocks openBlocks

	model  string
	prices prices
	known  bool
	used   tallyman.Usage
	turn   int
	open   bool // a turn is open

	ended  bool // a result has come
	result scriptResult
}

type scriptResult struct {
	text   string
	failed bool
	reason tallyman.Reason
}

// NewParser returns a parser for one script.
func (scriptHarness) NewParser(spec tallyman.RunnerSpec) Parser {
	return &scriptParser{model: spec.Agent.Model}
}

// Parse reads one line.
func (p *scriptParser) Parse(line []byte, out *Batch) {
	line = trimBreak(line)
	if len(line) == 0 {
		return
	}
	first := len(out.Events)
	kind := ""
	if p.read(line) {
		kind = inner(p.get("type"))
	}
	switch kind {
	case "delta":
		of := tallyman.EventText
		if inner(p.get("of")) == string(tallyman.EventThinking) {
			of = tallyman.EventThinking
		}
		p.blocks.add(p.str("parent"), "", number(p.get("block")), of, p.str("text"), out)
		return
	case "result":
		p.end(out)
	case "usage":
		p.usage(out)
	default:
		if event := p.event(kind); event.Type != "" {
			p.begin(out)
			event.Turn = p.turn
			out.Events = append(out.Events, event)
		} else {
			out.Events = append(out.Events, p.stray())
			out.Events[first].Turn = p.turn
		}
	}
	p.known = p.known || kind != ""
	p.keep(out, first)
}

// event is what a line says, its type empty for a line of no known kind.
func (p *scriptParser) event(kind string) tallyman.Event {
	e := tallyman.Event{
		Type: tallyman.EventType(kind), Parent: p.str("parent"), ToolID: p.str("id"),
		Name: p.str("name"), Text: p.str("text"), Failed: p.is("failed"), Data: data(p.get("data")),
	}
	switch e.Type {
	case tallyman.EventText:
		p.blocks.whole(e.Parent, e.Type)
		if e.Parent == "" {
			p.used.Turns++
		}
	case tallyman.EventThinking:
		p.blocks.whole(e.Parent, e.Type)
	case tallyman.EventToolStarted:
		p.tools.start(e.ToolID, e.Name, e.Parent)
	case tallyman.EventToolFinished:
		e.Name = p.tools.finish(e.ToolID)
	case tallyman.EventSubtask, tallyman.EventNotice, tallyman.EventRetry, tallyman.EventHook, tallyman.EventError:
	default:
		return tallyman.Event{}
	}
	return e
}

// begin opens a turn where none is.
func (p *scriptParser) begin(out *Batch) {
	if p.open {
		return
	}
	p.open, p.ended = true, false
	p.turn++
	out.Events = append(out.Events, tallyman.Event{Type: tallyman.EventTurnStarted, Turn: p.turn})
}

func (p *scriptParser) usage(out *Batch) {
	var u scriptUsage
	if err := json.Unmarshal(p.get("usage"), &u); err != nil || !u.sane() {
		out.Events = append(out.Events, p.stray())
		return
	}
	p.used = tallyman.Usage{
		InputTokens: u.InputTokens, OutputTokens: u.OutputTokens,
		CacheReadTokens: u.CacheReadTokens, CacheWriteTokens: u.CacheWriteTokens,
		Turns: p.used.Turns, CostSource: tallyman.CostUnknown,
	}
	if u.CostUSD != nil {
		p.used.CostUSD, p.used.CostSource = *u.CostUSD, tallyman.CostHarness
	} else if usd, ok := p.prices.cost(p.model, p.used); ok {
		p.used.CostUSD, p.used.CostSource = usd, tallyman.CostEstimated
	}
	p.begin(out)
	used := p.used
	out.Events = append(out.Events, tallyman.Event{Type: tallyman.EventUsage, Turn: p.turn, Usage: &used})
}

func (p *scriptParser) end(out *Batch) {
	p.begin(out)
	text := p.str("text")
	p.result = scriptResult{text: string([]byte(text)), failed: p.is("failed"), reason: tallyman.Reason(p.str("reason"))}
	p.open, p.ended = false, true
	used := p.used
	out.Events = append(out.Events,
		tallyman.Event{Type: tallyman.EventUsage, Turn: p.turn, Usage: &used},
		tallyman.Event{Type: tallyman.EventTurnCompleted, Turn: p.turn, Failed: p.result.failed},
		tallyman.Event{Type: tallyman.EventResult, Turn: p.turn, Text: text, Failed: p.result.failed})
}

// Stderr passes the line on.
func (p *scriptParser) Stderr(line []byte, out *Batch) { p.stderr.add(line, maxText, out) }

// Close ends what is open.
func (p *scriptParser) Close(out *Batch) {
	p.blocks.abandonAll(p.turn, out)
	p.tools.abandon(p.turn, out, func(string) bool { return true })
}

// Progress tells what is known so far. A turn is what the script says once.
func (p *scriptParser) Progress() Progress {
	return Progress{Usage: p.used, Turns: p.used.Turns, OpenTools: len(p.tools.calls), Result: p.ended}
}

// Outcome follows the result; without one a script has failed, or has none.
func (p *scriptParser) Outcome(exit tallyman.Exit) tallyman.Outcome {
	o := ended(exit)
	o.Usage = p.used
	switch {
	case p.ended && p.result.reason.Valid():
		o.Reason, o.Message = p.result.reason, "the script says so"
		o.Result = p.result.text
	case p.ended && p.result.failed:
		o.Reason, o.Message = tallyman.AgentError, say("the script failed", firstWords(p.result.text))
	case p.ended:
		o.Reason, o.Result = tallyman.Completed, p.result.text
	case exit.Sent != "":
		o.Reason, o.Message = tallyman.NoResult, "the script was stopped before its result"
	case exit.Signal != "":
		o.Reason, o.Message = tallyman.AgentError, "the script was "+signalMessage(exit)
	case exit.Code != 0 && !p.known:
		o.Reason, o.Message = tallyman.SetupFailed, p.stderr.explain(fmt.Sprintf("the script did not start (exit code %d)", exit.Code))
	case exit.Code != 0:
		o.Reason, o.Message = tallyman.AgentError, p.stderr.explain(fmt.Sprintf("exit code %d", exit.Code))
	default:
		o.Reason, o.Message = tallyman.NoResult, "the script ended without a result"
	}
	if o.Reason == tallyman.Completed {
		o.Message = ""
	}
	return o
}
