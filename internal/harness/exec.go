package harness

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/tallyman-dev/tallyman"
)

// execHarness runs any command: its output is the transcript, its exit code
// the outcome.
type execHarness struct{}

func checkExec(agent tallyman.AgentSpec) error {
	switch {
	case len(agent.Command) == 0 && agent.Runner == tallyman.RunnerBare: // the image has one
	case len(agent.Command) == 0 || agent.Command[0] == "":
		return invalidSpec("harness exec needs a command")
	case len(agent.MCPServers) > 0:
		return invalidSpec("harness exec has no use for mcpServers")
	}
	for key := range agent.Settings {
		return invalidSpec("settings.%s: harness exec has no settings", key)
	}
	return nil
}

// Invoke runs the agent's command as it is written.
func (execHarness) Invoke(spec tallyman.RunnerSpec, _ string) (Invocation, error) {
	if err := checkExec(spec.Agent); err != nil {
		return Invocation{}, err
	}
	return Invocation{Argv: slices.Clone(spec.Agent.Command), PromptOnStdin: spec.PromptSize > 0}, nil
}

// NewParser returns a parser that takes every line as text.
func (execHarness) NewParser(tallyman.RunnerSpec) Parser { return &execParser{} }

// StopOrder asks the whole group once.
func (execHarness) StopOrder() []StopStep {
	return []StopStep{{Signal: syscall.SIGTERM, Group: true}}
}

type execParser struct{ stderr stderrLines }

// Parse gives one text event per line. The text is the line; raw forms are
// added only where text cannot hold it.
func (*execParser) Parse(line []byte, out *Batch) {
	out.Events = append(out.Events, plainEvent(tallyman.EventText, line, tallyman.MaxRaw))
}

func (p *execParser) Stderr(line []byte, out *Batch) { p.stderr.add(line, tallyman.MaxRaw, out) }

func (*execParser) Close(*Batch) {}

func (*execParser) Progress() Progress { return Progress{} }

// Outcome is Completed for exit code 0 and for nothing else.
func (p *execParser) Outcome(exit tallyman.Exit) tallyman.Outcome {
	o := ended(exit)
	switch {
	case exit.Signal != "":
		o.Reason, o.Message = tallyman.AgentError, signalMessage(exit)
	case exit.Code != 0:
		o.Reason, o.Message = tallyman.AgentError, p.stderr.explain(fmt.Sprintf("exit code %d", exit.Code))
	default:
		o.Reason = tallyman.Completed
	}
	return o
}

// ended is the outcome of a process that ran, its reason still open.
func ended(exit tallyman.Exit) tallyman.Outcome {
	o := tallyman.Outcome{Started: true, Signal: exit.Signal}
	if exit.Signal == "" {
		o.ExitCode = &exit.Code
	}
	return o
}

func signalMessage(exit tallyman.Exit) string {
	if exit.Sent != "" {
		return fmt.Sprintf("ended by the signal that the runner sent (%s)", exit.Sent)
	}
	return fmt.Sprintf("ended by a signal that the runner did not send: %s", exit.Signal)
}
