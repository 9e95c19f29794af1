package harness

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/tallyman-dev/tallyman"
)

// claudeResult is what a result line says about the end of its turn.
type claudeResult struct {
	subtype   string
	stop      string // why the model stopped
	terminal  string // why the turn ended
	startup   string // why nothing could begin
	failed    bool
	apiStatus int
	turns     int64
	words     string // the beginning of its text, or of its errors
}

// result reads the end of a turn. There may be several: the last one tells
// the outcome, the last that is not about a background task the answer.
func (p *claudeParser) result(out *Batch) {
	line := view(p.clean)
	get := func(path string) string { return strings.Clone(gjson.Get(line, path).String()) }
	text := p.str("result")
	r := claudeResult{
		subtype: get("subtype"), stop: get("stop_reason"), terminal: get("terminal_reason"),
		startup: get("startup_failure_reason"), failed: p.is("is_error"),
		apiStatus: int(count(gjson.Get(line, "api_error_status"))), turns: count(gjson.Get(line, "num_turns")),
	}
	r.words = firstWords(text)
	if r.words == "" {
		r.words = firstWords(get("errors.0"))
	}
	r.words = strings.Clone(r.words)
	ofTask := gjson.Get(line, "origin.kind").String() == "task-notification"
	if p.turn == 0 {
		p.turn = 1
	}
	p.last, p.results, p.turnOpen = r, p.results+1, false
	p.queued = count(gjson.Get(line, "queued_turn_count")) > 0
	if !ofTask && r.good() {
		p.answer = strings.Clone(text)
	}
	if v := p.get("structured_output"); len(v) > 0 && string(v) != "null" {
		p.structured = slices.Clone(v)
	}
	p.spent.settle(line)
	p.endTurn(r, text, ofTask, out)
}

// endTurn tells what a result means: blocks and tools of the main agent that
// are still open have no end of their own, then totals, the turn, the result.
func (p *claudeParser) endTurn(r claudeResult, text string, ofTask bool, out *Batch) {
	p.blocks.abandon(p.turn, "", out)
	p.tools.abandon(p.turn, out, func(parent string) bool { return parent == "" })

	total := p.spent.total()
	usage := p.event(tallyman.EventUsage, "")
	usage.Usage = &total

	done := p.event(tallyman.EventTurnCompleted, "")
	done.Failed = !r.good()
	done.Data = r.data(int(gjson.GetBytes(p.clean, "permission_denials.#").Int()))

	result := p.event(tallyman.EventResult, "")
	result.Text, result.Failed, result.Data = text, !r.good(), data(p.get("structured_output"))
	if text == "" {
		result.Text = r.words
	}
	if ofTask {
		result.Name = "task-notification"
	}
	out.Events = append(out.Events, usage, done, result)
}

// good reports whether the turn itself went well: it says so and took a step.
func (r claudeResult) good() bool { return r.subtype == "success" && !r.failed && r.turns > 0 }

func (r claudeResult) data(denials int) []byte {
	b := fmt.Appendf(nil, `{"num_turns":%d`, r.turns)
	for _, kv := range [][2]string{
		{"subtype", r.subtype}, {"stop_reason", r.stop}, {"terminal_reason", r.terminal},
	} {
		if kv[1] != "" {
			b = tallyman.AppendString(fmt.Appendf(b, `,%q:`, kv[0]), kv[1])
		}
	}
	if r.apiStatus != 0 {
		b = fmt.Appendf(b, `,"api_error_status":%d`, r.apiStatus)
	}
	if denials > 0 {
		b = fmt.Appendf(b, `,"permission_denials":%d`, denials)
	}
	return append(b, '}')
}

// broken says what of the set-up is not as the agent needs it, "" if nothing.
func (p *claudeParser) broken() string {
	if len(p.options.PluginDirs) > 0 && len(p.pluginErrors) > 0 {
		return "a plugin could not be loaded: " + p.pluginErrors[0]
	}
	if !p.begun {
		return ""
	}
	for _, name := range p.options.required {
		i := slices.IndexFunc(p.servers, func(s mcpServer) bool { return s.name == name })
		switch {
		case i < 0:
			return fmt.Sprintf("the required MCP server %s was not started", name)
		case p.servers[i].status != "connected":
			return fmt.Sprintf("the required MCP server %s is not connected: %s", name, p.servers[i].status)
		}
	}
	return ""
}

// Outcome follows the result, and the exit only when there is none: claude
// exits 0 after an interrupt and 1 after good work.
func (p *claudeParser) Outcome(exit tallyman.Exit) tallyman.Outcome {
	o := ended(exit)
	o.Usage = p.spent.total()
	if why := p.broken(); why != "" {
		o.Reason, o.Message = tallyman.SetupFailed, why
		return o
	}
	if p.results == 0 || p.turnOpen {
		o.Reason, o.Message = p.withoutResult(exit)
		return o
	}
	o.Reason, o.Message = p.verdict()
	if o.Reason == tallyman.Completed || o.Reason == tallyman.NoOutput {
		o.Result, o.Structured = p.answer, p.structured
	}
	if o.Reason == tallyman.Completed && exit.Sent == "" && (exit.Signal != "" || exit.Code != 0) {
		o.Message = p.stderr.explain("claude ended badly after its result: " + exitWords(exit))
	}
	return o
}

func exitWords(exit tallyman.Exit) string {
	if exit.Signal != "" {
		return "signal " + exit.Signal
	}
	return fmt.Sprintf("exit code %d", exit.Code)
}

// verdict classifies the last result, from its fields and not from its words.
func (p *claudeParser) verdict() (tallyman.Reason, string) {
	r := p.last
	switch {
	case r.stop == "refusal":
		return tallyman.RefusedByModel, say("the model refused", r.words)
	case r.subtype == "error_max_turns", r.terminal == "max_turns":
		return tallyman.MaxTurns, say("claude stopped at its limit of turns", r.words)
	case r.subtype == "error_max_budget_usd", r.terminal == "budget_exhausted":
		return tallyman.BudgetExceeded, say("claude stopped at its budget", r.words)
	case r.subtype == "error_max_structured_output_retries", r.terminal == "structured_output_retry_exhausted":
		return tallyman.NoOutput, say("no output that fits the JSON schema", r.words)
	case r.terminal == "prompt_too_long":
		return tallyman.TokenLimit, say("the prompt is longer than the model's context", r.words)
	case r.startup != "":
		return tallyman.SetupFailed, say("claude could not start ("+r.startup+")", r.words)
	case r.failed && (r.apiStatus != 0 || p.apiError != ""):
		return apiReason(r.apiStatus, p.apiError), say(apiWords(r.apiStatus, p.apiError), r.words)
	case r.subtype == "error_during_execution" && r.turns == 0 && !p.answered():
		return tallyman.SetupFailed, say("claude could not start", p.stderr.explain(r.words))
	case r.failed && r.subtype == "success":
		return tallyman.ProviderError, say("the call of the model failed", r.words)
	case r.failed || r.subtype != "success":
		return tallyman.AgentError, say("claude ended with "+r.subtype, r.words)
	case r.turns == 0:
		return tallyman.SetupFailed, say("claude took the prompt as a command and did no work", r.words)
	case len(p.options.JSONSchema) > 0 && p.structured == nil:
		return tallyman.NoOutput, "the agent gave no output for its JSON schema"
	default:
		return tallyman.Completed, ""
	}
}

// answered reports whether the model was ever called.
func (p *claudeParser) answered() bool { return len(p.spent.messages) > 0 }

// withoutResult is for a process that ended in mid turn.
func (p *claudeParser) withoutResult(exit tallyman.Exit) (tallyman.Reason, string) {
	switch {
	case exit.Sent != "":
		return tallyman.NoResult, "claude was stopped before it wrote a result"
	case exit.Signal != "":
		return tallyman.AgentError, p.stderr.explain("claude was " + signalMessage(exit))
	case p.apiError != "":
		return apiReason(0, p.apiError), p.stderr.explain("the call of the model failed (" + p.apiError + ") and claude wrote no result")
	case !p.known && exit.Code != 0:
		return tallyman.SetupFailed, p.stderr.explain(fmt.Sprintf("claude did not start (exit code %d)", exit.Code))
	default:
		return tallyman.NoResult, p.stderr.explain(fmt.Sprintf("claude ended without a result (exit code %d)", exit.Code))
	}
}

// apiReason maps the status of the provider's answer, or the word that claude
// has for it.
func apiReason(status int, word string) tallyman.Reason {
	switch status {
	case 401, 403:
		return tallyman.AuthExpired
	case 429:
		return tallyman.RateLimited
	case 529:
		return tallyman.Overloaded
	case 0:
	default:
		return tallyman.ProviderError
	}
	switch word {
	case "authentication_failed", "oauth_org_not_allowed", "account_on_hold", "verification_required", "cloud_credential_error":
		return tallyman.AuthExpired
	case "rate_limit":
		return tallyman.RateLimited
	case "overloaded":
		return tallyman.Overloaded
	default:
		return tallyman.ProviderError
	}
}

func apiWords(status int, word string) string {
	switch {
	case status == 0:
		return "the call of the model failed (" + word + ")"
	case word == "":
		return fmt.Sprintf("the model's provider answered %d", status)
	default:
		return fmt.Sprintf("the model's provider answered %d (%s)", status, word)
	}
}

func say(what, words string) string {
	if words == "" {
		return what
	}
	return what + ": " + words
}
