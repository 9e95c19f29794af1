package runner

import (
	"fmt"

	"github.com/tallyman-dev/tallyman"
)

// memory is what the kernel has killed for memory while the agent was at work.
type memory struct {
	kills int
	own   bool // the control group holds nothing but this attempt
	any   bool // each kill counts, whatever the harness says: it cannot know
}

// judge puts our own knowledge over what the harness says: an intent of ours
// that came before the end is the reason; then memory; then the harness. What
// it achieved counts in an interruption only when its result was said before
// our signal: exit code 0 is also how a program ends that was told to.
func judge(out tallyman.Outcome, exit tallyman.Exit, how ending, oom memory) tallyman.Outcome {
	if exit.Signal == "" {
		code := exit.Code
		out.ExitCode = &code
	}
	out.Signal = exit.Signal
	// Where others share the group, a counter that moved is no proof that it
	// was our agent.
	if oom.own || exit.Signal == "SIGKILL" && exit.Sent != "SIGKILL" {
		out.OOMKills = max(0, oom.kills)
	}
	switch {
	case how.intent != nil:
		out.Reason, out.Message = how.intent.reason, how.intent.message
	case how.interrupted && (!how.said || out.Reason != tallyman.Completed):
		out.Reason, out.Interrupted = "", true
		out.Message = "the runner was told to end while the agent was at work"
	case out.OOMKills > 0 && exit.Sent == "" && (out.Reason != tallyman.Completed || oom.own && oom.any):
		out.Reason = tallyman.OOMKilled
		out.Message = fmt.Sprintf("the kernel killed the agent for memory (kills in its control group: %d)", out.OOMKills)
	}
	if out.Reason == tallyman.Completed {
		return out
	}
	if out.Message == "" {
		out.Message = string(out.Reason)
	}
	return out
}
