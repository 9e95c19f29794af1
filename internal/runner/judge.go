package runner

import (
	"fmt"

	"github.com/tallyman-dev/tallyman"
)

// judge puts our own knowledge over what the harness says: an intent of ours
// that came before the end is the reason; then memory; then the harness.
func judge(out tallyman.Outcome, exit tallyman.Exit, intent *order, interrupted bool, oomKills int) tallyman.Outcome {
	if exit.Signal == "" {
		code := exit.Code
		out.ExitCode = &code
	}
	out.Signal = exit.Signal
	out.OOMKills = max(0, oomKills)
	switch {
	case intent != nil:
		out.Reason, out.Message = intent.reason, intent.message
	case interrupted && out.Reason != tallyman.Completed:
		out.Reason, out.Interrupted = "", true
		out.Message = "the runner was told to end while the agent was at work"
	case oomKills > 0 && exit.Signal == "SIGKILL" && exit.Sent == "" && out.Reason != tallyman.Completed:
		out.Reason = tallyman.OOMKilled
		out.Message = fmt.Sprintf("the kernel killed the agent for memory (%d kills in its control group)", oomKills)
	default:
		// A counter that moved beside us is not proof that it was our agent.
		if exit.Signal != "SIGKILL" || exit.Sent != "" {
			out.OOMKills = 0
		}
	}
	if out.Reason == tallyman.Completed {
		return out
	}
	if out.Message == "" {
		out.Message = string(out.Reason)
	}
	return out
}
