package fakemodel

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// who said something in a conversation.
type who int

const (
	user who = iota
	model
	tool // what a tool answered
)

type entry struct {
	who  who
	text string
}

// talk is a request in no provider's words.
type talk struct {
	format Format
	model  string
	stream bool
	list   bool     // Gemini: the answer is a list of one, asked for as a stream without events
	tools  []string // offered
	said   []entry
}

// add appends what was said, without what the CLI injected for the model only.
// An entry is kept when nothing is left of it: it still parts two replies.
func (t *talk) add(w who, text string) {
	if w == user {
		text = withoutReminders(text)
	}
	t.said = append(t.said, entry{w, text})
}

func withoutReminders(s string) string {
	const opening, closing = "<system-reminder>", "</system-reminder>"
	if !strings.Contains(s, opening) {
		return strings.TrimSpace(s)
	}
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(s, opening)
		b.WriteString(before)
		if !ok {
			break
		}
		if _, s, ok = strings.Cut(rest, closing); !ok {
			break
		}
	}
	return strings.TrimSpace(b.String())
}

// last returns the place of the newest user text that fits, -1 if none does.
func (t *talk) last(fits func(string) bool) int {
	for i := len(t.said) - 1; i >= 0; i-- {
		if e := t.said[i]; e.who == user && e.text != "" && fits(e.text) {
			return i
		}
	}
	return -1
}

func (t *talk) prompt() string {
	if i := t.last(func(string) bool { return true }); i >= 0 {
		return t.said[i].text
	}
	return ""
}

// replies counts how often the model has answered after an entry. What it said
// in several entries in a row was one reply.
func (t *talk) replies(after int) int {
	n := 0
	for i := after + 1; i < len(t.said); i++ {
		if t.said[i].who == model && (i == 0 || t.said[i-1].who != model) {
			n++
		}
	}
	return n
}

// results returns what tools have answered since the model spoke last.
func (t *talk) results() (text string, any bool) {
	var parts []string
	for i := len(t.said) - 1; i >= 0 && t.said[i].who != model; i-- {
		if t.said[i].who == tool {
			parts = append(parts, t.said[i].text)
		}
	}
	slices.Reverse(parts)
	return strings.Join(parts, "\n"), len(parts) > 0
}

func (m Match) fits(t *talk) bool {
	prompt := t.prompt()
	results, any := t.results()
	switch {
	case m.Format != "" && m.Format != t.format,
		!strings.Contains(t.model, m.Model),
		!strings.Contains(prompt, m.Contains),
		!strings.Contains(results, m.Result),
		m.Matches != nil && !m.Matches.MatchString(prompt),
		m.ToolResult != nil && *m.ToolResult != any:
		return false
	}
	return m.Call == 0 || m.Call == 1+t.replies(t.last(func(string) bool { return true }))
}

// decide says how to answer. An error means that the prompt has a directive
// that cannot be read.
func (s *Server) decide(t *talk) (Reply, error) {
	for i, r := range s.script.Rules {
		if !r.Match.fits(t) {
			continue
		}
		scope := fmt.Sprintf("rule %d", i)
		answer := r.Reply
		if answer == nil {
			n := t.replies(t.last(func(string) bool { return true }))
			if n >= len(r.Turns) {
				continue
			}
			answer, scope = &r.Turns[n], fmt.Sprintf("rule %d turn %d", i, n)
		}
		if s.spend(scope, r.Times) {
			return s.finish(*answer, scope, t), nil
		}
	}
	if at := t.last(hasDirective); at >= 0 {
		text := t.said[at].text
		p, err := compile(text)
		if err != nil {
			return Reply{}, err
		}
		n := t.replies(at)
		if r, ok := p.at(n); ok {
			return s.finish(r, fmt.Sprintf("prompt %s reply %d", digest(text), n), t), nil
		}
	}
	return s.finish(Reply{}, "", t), nil
}

// finish makes a reply ready to send: blocks that depend on the request become
// plain ones, those that are used up go, and what is left unsaid is filled in.
// The scope names the reply, for counting how often blocks with times were used.
// The script's own slices stay as they are.
func (s *Server) finish(r Reply, scope string, t *talk) Reply {
	var blocks []Block
	speaks := false
	for i, b := range r.Blocks {
		switch {
		case b.Error != nil && !s.spend(fmt.Sprint(scope, " block ", i), b.Error.Times),
			b.Stall != nil && !s.spend(fmt.Sprint(scope, " block ", i), b.Stall.Times),
			b.Cut != nil && !s.spend(fmt.Sprint(scope, " block ", i), b.Cut.Times):
			continue
		case b.ToolResult:
			text, _ := t.results()
			b = Block{Text: cmp.Or(text, "There is no tool result.")}
		case b.Flood > 0:
			b = Block{Text: flood(b.Flood)}
		case b.Agent != nil:
			b = Block{Tool: b.Agent.call(t.tools)}
		case b.Tool != nil && b.Tool.raw == nil:
			b = Block{Tool: b.Tool.encoded()}
		}
		speaks = speaks || b.Stall == nil
		blocks = append(blocks, b)
	}
	if !speaks {
		blocks = append(blocks, Block{Text: repeat(t)})
	}
	r.Blocks = blocks
	r.Stop = cmp.Or(r.Stop, stopOf(blocks))
	if r.Usage == nil {
		r.Usage = s.usage()
	}
	return r
}

func (s *Server) usage() *Usage {
	if s.script.Usage != nil {
		return s.script.Usage
	}
	u := DefaultUsage
	return &u
}

func stopOf(blocks []Block) string {
	stop := "end_turn"
	for _, b := range blocks {
		if b.Refusal != "" {
			return "refusal"
		}
		if b.Tool != nil {
			stop = "tool_use"
		}
	}
	return stop
}

// encoded returns the call with its input as JSON.
func (t *Tool) encoded() *Tool {
	raw, err := json.Marshal(t.Input)
	if err != nil || t.Input == nil {
		raw = json.RawMessage("{}") // ParseScript has refused what cannot be encoded
	}
	return &Tool{Name: t.Name, raw: raw}
}

func (a *Agent) call(offered []string) *Tool {
	name := "Agent"
	if !slices.Contains(offered, name) && slices.Contains(offered, "Task") {
		name = "Task"
	}
	return (&Tool{Name: name, Input: map[string]any{
		"description":   cmp.Or(a.Description, "sub-agent"),
		"prompt":        a.Prompt,
		"subagent_type": "general-purpose",
	}}).encoded()
}

// repeat is the default answer: it says that there is no model here, and the
// end of what it was told.
func repeat(t *talk) string {
	const limit = 400
	tail := func(s string) string {
		if r := []rune(s[max(0, len(s)-4*limit-4):]); len(r) > limit {
			return "…" + string(r[len(r)-limit:])
		}
		return s
	}
	if results, any := t.results(); any {
		return "The scripted model has seen the tool's answer: " + tail(results)
	}
	return "The scripted model has read: " + tail(t.prompt())
}

// flood makes text of so many bytes, in lines that can be told apart.
func flood(n int) string {
	var b strings.Builder
	b.Grow(n + 64)
	for line := 1; b.Len() < n; line++ {
		fmt.Fprintf(&b, "line %d of a flood of text that says nothing\n", line)
	}
	return b.String()[:n]
}
