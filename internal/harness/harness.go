// Package harness knows the programs that are agents: how each is started,
// what the lines that it writes mean, how it is asked to stop, and what its
// end says about the work. It starts nothing itself; the runner does.
package harness

import (
	"strings"
	"syscall"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// Adapter knows one agent program.
type Adapter interface {
	// Invoke says how to start the program for spec. dir is a private folder
	// for files that the program is to read. An error is a *tallyman.Error
	// whose Reason is why the attempt ends.
	Invoke(spec tallyman.RunnerSpec, dir string) (Invocation, error)
	// NewParser returns a parser for one process of the program.
	NewParser(spec tallyman.RunnerSpec) Parser
	// StopOrder lists the signals to try in turn before KILL.
	StopOrder() []StopStep
}

// StopStep is one signal of a stop order.
type StopStep struct {
	Signal syscall.Signal
	Wait   time.Duration // for the process to end before the next step; 0: the grace of the spec
	Group  bool          // to the process group instead of the process alone
}

// Invocation is how a program is started.
type Invocation struct {
	Argv          []string
	Env           []tallyman.EnvVar // in addition to the environment of the spec
	PromptOnStdin bool              // otherwise standard input is empty
	Files         map[string][]byte // absolute path to content, written with mode 0600 before the start
}

// Parser turns what one process writes into events. It is not safe for use by
// several goroutines at once. What it appends to a batch may share memory
// with the line and with the parser, and is valid until its next call. Times
// of events are zero: the caller knows when the line came.
type Parser interface {
	// Parse reads one line of standard output, without its newline. It never
	// fails: what it does not know becomes a notice.
	Parse(line []byte, out *Batch)
	// Stderr reads one line of standard error, without its newline.
	Stderr(line []byte, out *Batch)
	// Close is called once, when the output has ended: blocks still open
	// become partial text, open tools end.
	Close(out *Batch)
	// Progress tells what is known so far. It is cheap: call it per line.
	Progress() Progress
	// Outcome says what the end means, as far as the program itself can tell;
	// the caller's own intent to stop it stands above that.
	Outcome(exit tallyman.Exit) tallyman.Outcome
}

// Batch collects what lines gave. Parsers append to it; the caller empties it.
type Batch struct {
	Events []tallyman.Event
	Deltas []tallyman.Delta
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	clear(b.Events)
	clear(b.Deltas)
	b.Events, b.Deltas = b.Events[:0], b.Deltas[:0]
}

// Progress is what a parser knows while the process runs.
type Progress struct {
	Usage     tallyman.Usage // totals of this process so far
	Turns     int
	OpenTools int
	Result    bool // the protocol's end message came, and nothing was begun after it
	More      bool // the harness said that more follows: queued turns, background work
	// Fatal is why going on cannot end well ("" mostly): a required MCP server
	// is not connected, a plugin is missing. The caller may stop the process
	// before it spends more; Outcome says the same.
	Fatal string
}

// claudePromptLimit is what claude reads from standard input at most.
const claudePromptLimit = 10_000_000

// PromptLimit returns how many bytes of prompt a harness reads from standard
// input; 0: no limit.
func PromptLimit(name string) int64 {
	if name == "claude" {
		return claudePromptLimit
	}
	return 0
}

// Names returns the names of all harnesses, those of later versions too.
func Names() []string {
	return []string{"claude", "codex", "exec", "gemini", "opencode", "script"}
}

// Lookup returns the adapter of a harness. A known name without an adapter is
// Unsupported, any other Invalid with the nearest name.
func Lookup(name string) (Adapter, error) {
	switch name {
	case "claude":
		return newClaude(), nil
	case "exec":
		return execHarness{}, nil
	case "script":
		return scriptHarness{}, nil
	case "codex", "gemini", "opencode":
		return nil, &tallyman.Error{
			Code: tallyman.Unsupported, Reason: tallyman.InvalidSpec,
			Message: "harness " + name + ": not in this version",
		}
	default:
		return nil, invalidSpec("harness %q is unknown%s", name, didYouMean(name, Names()))
	}
}

// Check returns what is wrong with the parts of an agent that only its
// harness understands: command, settings and MCP servers. It needs no
// machine: files and programs are not looked for.
func Check(agent tallyman.AgentSpec) error {
	switch agent.Harness {
	case "claude":
		_, err := readClaudeOptions(agent)
		return err
	case "exec":
		return checkExec(agent)
	case "script":
		return checkScript(agent)
	default:
		_, err := Lookup(agent.Harness)
		return err
	}
}

// invalidSpec is an error about what the agent says; it stays wrong until the
// agent is mended.
func invalidSpec(format string, args ...any) error {
	return withReason(tallyman.InvalidSpec, tallyman.Errorf(tallyman.Invalid, format, args...))
}

func withReason(reason tallyman.Reason, err error) error {
	if e, ok := err.(*tallyman.Error); ok {
		e.Reason = reason
	}
	return err
}

// didYouMean ends a sentence about an unknown word with the nearest known one
// and all of them.
func didYouMean(word string, known []string) string {
	best, least := "", len(word)/2+2
	for _, k := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ": use one of " + strings.Join(known, ", ")
	}
	return ": did you mean " + best + "? (" + strings.Join(known, ", ") + ")"
}

// distance is how many letters must be put in, taken out or changed.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
