package render

import (
	"strconv"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// Summary returns the block that closes `tallyman run`: a label and its value
// a line, in plain text. Of a run that has not ended it tells what is known.
func Summary(run tallyman.Run) []string {
	var lines []string
	add := func(label, value string) {
		if value != "" {
			lines = append(lines, label+"          "[len(label):]+value)
		}
	}
	outcome := string(run.State)
	if run.Reason != "" {
		outcome += " (" + OneLine(string(run.Reason), maxHead) + ")"
	}
	add("outcome", outcome)
	add("message", OneLine(run.Message, 1000))
	if run.ExitCode != nil && *run.ExitCode != 0 {
		add("exit code", strconv.Itoa(*run.ExitCode))
	}
	if run.OOMKills > 0 {
		add("OOM kills", strconv.Itoa(run.OOMKills))
	}
	if run.Attempt > 1 {
		add("attempts", strconv.Itoa(run.Attempt))
	}
	if run.Harness != "exec" { // which has no model
		add("turns", strconv.Itoa(run.Usage.Turns))
		add("tokens", Tokens(run.Usage))
		add("cost", costWithSource(run.Usage))
	}
	add("duration", Took(RunTook(run, time.Now())))
	return lines
}

func costWithSource(u tallyman.Usage) string {
	if u.CostSource != tallyman.CostHarness && u.CostSource != tallyman.CostEstimated {
		if u.Tokens() == 0 {
			return "none"
		}
		return "unknown"
	}
	return Cost(u.CostUSD) + ", " + CostSource(u.CostSource)
}

// RunTook is how long a run has worked: from its first start to its end, or
// to now while it works. It is 0 before the start, and when now is zero and
// the run has not ended.
func RunTook(run tallyman.Run, now time.Time) time.Duration {
	if run.StartedAt == nil {
		return 0
	}
	end := now
	if run.EndedAt != nil {
		end = *run.EndedAt
	}
	return max(end.Sub(*run.StartedAt), 0)
}
