package fakemodel

import (
	"encoding/json"
	"strings"
)

// content is what a message of Anthropic or OpenAI holds: a string, or parts.
type content []part

type part struct {
	Type    string  `json:"type"`
	Text    string  `json:"text"`
	Content content `json:"content"` // of a tool's answer
}

// UnmarshalJSON reads a string as one part of text, and an object as itself.
func (c *content) UnmarshalJSON(b []byte) error {
	switch b[0] {
	case '"':
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		*c = content{{Type: "text", Text: s}}
		return nil
	case '{':
		*c = content{{Type: "json", Text: string(b)}}
		return nil
	default:
		return json.Unmarshal(b, (*[]part)(c))
	}
}

func (c content) text() string {
	var parts []string
	for _, p := range c {
		if p.Text != "" {
			parts = append(parts, p.Text)
		}
	}
	return strings.Join(parts, "\n")
}

func parseAnthropic(body []byte) (*talk, *Fault) {
	var in struct {
		Model     string `json:"model"`
		MaxTokens *int64 `json:"max_tokens"`
		Stream    bool   `json:"stream"`
		Tools     []struct {
			Name string `json:"name"`
		} `json:"tools"`
		Messages []struct {
			Role    string  `json:"role"`
			Content content `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, malformed("%v", err)
	}
	switch {
	case in.Model == "":
		return nil, malformed("model: Field required")
	case in.MaxTokens == nil:
		return nil, malformed("max_tokens: Field required")
	case len(in.Messages) == 0:
		return nil, malformed("messages: at least one message is required")
	}
	t := &talk{format: Anthropic, model: in.Model, stream: in.Stream}
	for _, tool := range in.Tools {
		t.tools = append(t.tools, tool.Name)
	}
	for i, m := range in.Messages {
		switch m.Role {
		case "assistant":
			t.add(model, m.Content.text())
		case "user":
			t.addUser(m.Content)
		case "system": // a reminder by the client, not by its user
		default:
			return nil, malformed("messages.%d.role: %q is neither user nor assistant", i, m.Role)
		}
	}
	return t, nil
}

// addUser takes a user's message apart: tools' answers first, then its text.
func (t *talk) addUser(c content) {
	text := content{}
	for _, p := range c {
		if p.Type == "tool_result" {
			t.add(tool, p.Content.text())
			continue
		}
		text = append(text, p)
	}
	t.add(user, text.text())
}

type anthropicWire struct {
	model   string
	stop    string
	usage   *Usage
	id      string
	index   int
	greeted bool
}

func newAnthropicWire(t *talk, r Reply) *anthropicWire {
	return &anthropicWire{model: t.model, stop: r.Stop, usage: r.Usage, id: newID("msg_")}
}

func (a *anthropicWire) counts(output int64) map[string]any {
	return map[string]any{
		"input_tokens": a.usage.Input, "output_tokens": output,
		"cache_read_input_tokens": a.usage.CacheRead, "cache_creation_input_tokens": a.usage.CacheWrite,
	}
}

func (a *anthropicWire) message(content []any, stop any, output int64) map[string]any {
	return map[string]any{
		"id": a.id, "type": "message", "role": "assistant", "model": a.model, "content": content,
		"stop_reason": stop, "stop_sequence": nil, "usage": a.counts(output),
	}
}

// typed makes an event whose data repeats its name, as Anthropic's and
// OpenAI's do.
func typed(event string, fields map[string]any) frame {
	fields["type"] = event
	return frame{event: event, data: fields}
}

func (a *anthropicWire) begin() []frame {
	return []frame{typed("message_start", map[string]any{"message": a.message([]any{}, nil, 1)})}
}

func (a *anthropicWire) block(b Block, pieces []string) []frame {
	delta, field := "text_delta", "text"
	start := map[string]any{"type": "text", "text": ""}
	switch {
	case b.Thinking != "":
		delta, field = "thinking_delta", "thinking"
		start = map[string]any{"type": "thinking", "thinking": "", "signature": ""}
	case b.Tool != nil:
		delta, field = "input_json_delta", "partial_json"
		start = map[string]any{"type": "tool_use", "id": newID("toolu_"), "name": b.Tool.Name, "input": map[string]any{}}
	}
	frames := []frame{typed("content_block_start", map[string]any{"index": a.index, "content_block": start})}
	if !a.greeted {
		a.greeted = true
		frames = append(frames, typed("ping", map[string]any{}))
	}
	for _, p := range pieces {
		frames = append(frames, a.delta(map[string]any{"type": delta, field: p}, true))
	}
	if b.Thinking != "" {
		frames = append(frames, a.delta(map[string]any{"type": "signature_delta", "signature": signature}, false))
	}
	frames = append(frames, typed("content_block_stop", map[string]any{"index": a.index}))
	a.index++
	return frames
}

func (a *anthropicWire) delta(delta map[string]any, piece bool) frame {
	f := typed("content_block_delta", map[string]any{"index": a.index, "delta": delta})
	f.piece = piece
	return f
}

// signature stands for the proof that a thought is the model's own.
const signature = "c2NyaXB0ZWQ="

func (a *anthropicWire) fail(f *Fault) []frame {
	return []frame{{event: "error", data: f.body(Anthropic)}}
}

func (a *anthropicWire) end() []frame {
	return []frame{
		typed("message_delta", map[string]any{
			"delta": map[string]any{"stop_reason": a.stop, "stop_sequence": nil}, "usage": a.counts(a.usage.Output),
		}),
		typed("message_stop", map[string]any{}),
	}
}

func (a *anthropicWire) whole(blocks []Block) any {
	content := []any{}
	for _, b := range blocks {
		switch {
		case b.Thinking != "":
			content = append(content, map[string]any{"type": "thinking", "thinking": b.Thinking, "signature": signature})
		case b.Tool != nil:
			content = append(content, map[string]any{"type": "tool_use", "id": newID("toolu_"), "name": b.Tool.Name, "input": b.Tool.raw})
		default:
			content = append(content, map[string]any{"type": "text", "text": b.Text + b.Refusal})
		}
	}
	return a.message(content, a.stop, a.usage.Output)
}
