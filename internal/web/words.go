package web

import (
	"cmp"
	"html/template"
	"regexp"
	"strings"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/render"
)

func funcs(base string, a *assets) template.FuncMap {
	return template.FuncMap{
		"agent": tallyman.AgentName,
		"asset": a.url,
		"base":  func() string { return base },
		"mark":  func(s tallyman.State) string { return marks[s] },
		"stamp": stamp,
		"since": func(t time.Time) string { return render.Took(time.Since(t)) },
		"count": func(n int) string { return render.Count(int64(n)) },
		"bytes": render.Bytes,
		"took":  render.Took,
		"said":  said,
		"words": func(r tallyman.Reason) string { return capital(render.Words(r)) },
	}
}

var marks = map[tallyman.State]string{
	tallyman.Queued: "◌", tallyman.Starting: "◔", tallyman.Running: "●", tallyman.Suspended: "❚❚",
	tallyman.Succeeded: "✓", tallyman.Failed: "✕", tallyman.Stopped: "■",
}

// stamp writes a time for machines, in the way <time datetime> wants it.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// capital begins a sentence.
func capital(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// stateWord is the word shown for a run's state.
func stateWord(r tallyman.Run) string {
	if r.StopRequestedAt != nil && !r.State.Terminal() {
		return "stopping"
	}
	return string(r.State)
}

// why says in one line what a list should tell of a run beside its state:
// what it waits for, why it ended, or how its result begins.
func why(r tallyman.Run) string {
	switch {
	case !r.State.Terminal() && r.Waiting != nil:
		return waitLine(r)
	case r.State == tallyman.Queued && r.Message != "":
		return "again: " + render.OneLine(r.Message, 160)
	case r.State == tallyman.Succeeded:
		return render.OneLine(r.Result, 160)
	case r.State.Terminal():
		words := capital(render.Words(r.Reason))
		if message := render.OneLine(r.Message, 160); message != "" && !strings.EqualFold(message, words) {
			return words + ": " + message
		}
		return words
	case r.Attempt > 1:
		return "attempt " + render.Count(int64(r.Attempt))
	case r.State == tallyman.Running && r.Usage.Turns > 0:
		return "turn " + render.Count(int64(r.Usage.Turns))
	default:
		return ""
	}
}

func waitLine(r tallyman.Run) string {
	w, line := r.Waiting, "Waits"
	if w.Reason == tallyman.Backoff && r.Message != "" {
		return line + " before it tries again: " + render.OneLine(r.Message, 160)
	}
	if w.Position > 0 {
		line += ", " + place(w.Position)
	}
	return line + ": " + cmp.Or(render.OneLine(w.Detail, 160), gateWords(w.Reason))
}

var moment = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z`)

// said is a sentence as HTML; a time in it is told in the viewer's zone.
func said(s string) template.HTML {
	return template.HTML(moment.ReplaceAllString(template.HTMLEscapeString(s), `<time datetime="${0}" data-clock>${0}</time>`))
}

func place(n int) string {
	if n == 1 {
		return "next in line"
	}
	return "number " + render.Count(int64(n)) + " in line"
}

var gates = map[tallyman.WaitReason]struct{ words, free string }{
	tallyman.AgentPaused:        {"its agent is paused", "It goes on when the agent is resumed."},
	tallyman.AgentCap:           {"its agent has as many runs as it may", "It starts when another run of this agent ends, or when concurrency.max of the agent is raised."},
	tallyman.GlobalCap:          {"the server has as many runs as it may", "It starts when another run ends, or when the server is started with a higher --max-running."},
	tallyman.ClusterCap:         {"the cluster has as many runs as it may", "It starts when another run on that cluster ends."},
	tallyman.ConcurrencyKey:     {"another run holds its concurrency key", "It starts when the run with the same key ends."},
	tallyman.Budget:             {"the budget is used up", "It starts when the budget is raised or its day is over (UTC)."},
	tallyman.Backoff:            {"a pause before the next attempt", "It starts by itself when the pause is over."},
	tallyman.CredentialCooldown: {"its credential is cooling down", "It starts by itself when the provider allows it again."},
	tallyman.Quota:              {"a quota is used up", "It starts when the quota is raised or others free their part."},
	tallyman.ClusterUnknown:     {"nobody serves its cluster", "It starts when a server that knows the cluster is there."},
	tallyman.Approval:           {"somebody must approve it", "It starts when it is approved."},
	tallyman.NoBackend:          {"there is nowhere to run it", "It starts when the backend can be reached again."},
	tallyman.PodPending:         {"the cluster has not started its agent", "It starts when the cluster can; what cannot heal ends it."},
}

func gateWords(r tallyman.WaitReason) string {
	if g, ok := gates[r]; ok {
		return g.words
	}
	return render.Words(r)
}

var classWords = map[tallyman.Class]string{
	tallyman.ClassAgent:    "The agent did its work and it was not enough.",
	tallyman.ClassProvider: "The model's provider refused or failed.",
	tallyman.ClassLimit:    "A limit of this run was reached.",
	tallyman.ClassInfra:    "The machinery failed, not the agent.",
	tallyman.ClassConfig:   "Something about the configuration must be mended first.",
}

var mending = map[tallyman.Reason]string{
	tallyman.DeadlineExceeded: "Give it longer with --deadline, or limits.deadline in the agent.",
	tallyman.IdleTimeout:      "Allow longer silence with --idle, or limits.idle in the agent.",
	tallyman.MaxTurns:         "Allow more turns with --max-turns, or limits.maxTurns in the agent.",
	tallyman.BudgetExceeded:   "Raise it with --budget-usd, or limits.budgetUSD in the agent.",
	tallyman.TokenLimit:       "Raise it with --max-tokens, or limits.maxTokens in the agent.",
	tallyman.AuthExpired:      "Renew the provider's key or log in again, then run it again.",
	tallyman.NoOutput:         "A declared output is missing: see outputs in the agent.",
	tallyman.OutputInvalid:    "An output does not satisfy its schema: see outputs in the agent.",
	tallyman.OOMKilled:        "It needs more memory, or must use less.",
	tallyman.RateLimited:      "The provider asks for patience: run it again later.",
	tallyman.Overloaded:       "The provider asks for patience: run it again later.",
	tallyman.ConfigMissing:    "Create what the message names, then run it again.",
	tallyman.SetupFailed:      "Mend what the message names, then run it again.",
	tallyman.InvalidSpec:      "Mend the agent as the message says, then run it again.",
}

// quote writes an argument as a shell reads it.
func quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@=,+", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
