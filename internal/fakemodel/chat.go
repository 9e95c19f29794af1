package fakemodel

import "encoding/json"

func parseChat(body []byte) (*talk, *Fault) {
	var in struct {
		Model  string `json:"model"`
		Stream bool   `json:"stream"`
		Tools  []struct {
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
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
		return nil, malformed("you must provide a model parameter")
	case len(in.Messages) == 0:
		return nil, malformed("[] is too short - 'messages'")
	}
	t := &talk{format: Chat, model: in.Model, stream: in.Stream}
	for _, tool := range in.Tools {
		t.tools = append(t.tools, tool.Function.Name)
	}
	for _, m := range in.Messages {
		switch m.Role {
		case "user":
			t.add(user, m.Content.text())
		case "assistant":
			t.add(model, m.Content.text())
		case "tool", "function":
			t.add(tool, m.Content.text())
		}
	}
	return t, nil
}

type chatWire struct {
	model string
	stop  string
	usage *Usage
	id    string
	calls int
}

func newChatWire(t *talk, r Reply) *chatWire {
	return &chatWire{model: t.model, stop: r.Stop, usage: r.Usage, id: newID("chatcmpl-")}
}

func (c *chatWire) object(kind string, choices []any) map[string]any {
	return map[string]any{"id": c.id, "object": kind, "created": now(), "model": c.model, "choices": choices}
}

func (c *chatWire) chunk(delta map[string]any, finish any, piece bool) frame {
	choice := map[string]any{"index": 0, "delta": delta, "finish_reason": finish}
	return frame{data: c.object("chat.completion.chunk", []any{choice}), piece: piece}
}

func (c *chatWire) begin() []frame {
	return []frame{c.chunk(map[string]any{"role": "assistant", "content": ""}, nil, false)}
}

func (c *chatWire) block(b Block, pieces []string) []frame {
	var frames []frame
	if b.Tool != nil {
		frames = append(frames, c.chunk(map[string]any{"tool_calls": []any{map[string]any{
			"index": c.calls, "id": newID("call_"), "type": "function",
			"function": map[string]any{"name": b.Tool.Name, "arguments": ""},
		}}}, nil, false))
	}
	for _, p := range pieces {
		delta := map[string]any{"content": p}
		switch {
		case b.Tool != nil:
			delta = map[string]any{"tool_calls": []any{map[string]any{
				"index": c.calls, "function": map[string]any{"arguments": p},
			}}}
		case b.Thinking != "":
			delta = map[string]any{"reasoning_content": p}
		case b.Refusal != "":
			delta = map[string]any{"refusal": p}
		}
		frames = append(frames, c.chunk(delta, nil, true))
	}
	if b.Tool != nil {
		c.calls++
	}
	return frames
}

func (c *chatWire) fail(f *Fault) []frame { return []frame{{data: f.body(Chat)}} }

func (c *chatWire) finish() string {
	switch c.stop {
	case "tool_use":
		return "tool_calls"
	case "max_tokens", "model_context_window_exceeded":
		return "length"
	default:
		return "stop"
	}
}

func (c *chatWire) counts() map[string]any {
	input := c.usage.Input + c.usage.CacheRead + c.usage.CacheWrite
	return map[string]any{
		"prompt_tokens": input, "completion_tokens": c.usage.Output, "total_tokens": input + c.usage.Output,
		"prompt_tokens_details": map[string]any{"cached_tokens": c.usage.CacheRead},
	}
}

// end tells the usage whether it was asked for or not: clients that did not
// ask ignore it.
func (c *chatWire) end() []frame {
	last := c.object("chat.completion.chunk", []any{})
	last["usage"] = c.counts()
	return []frame{c.chunk(map[string]any{}, c.finish(), false), {data: last}, {data: "[DONE]"}}
}

func (c *chatWire) whole(blocks []Block) any {
	m := map[string]any{"role": "assistant", "content": nil}
	var text, thought, refusal string
	var calls []any
	for _, b := range blocks {
		text, thought, refusal = text+b.Text, thought+b.Thinking, refusal+b.Refusal
		if b.Tool != nil {
			calls = append(calls, map[string]any{"id": newID("call_"), "type": "function",
				"function": map[string]any{"name": b.Tool.Name, "arguments": string(b.Tool.raw)}})
		}
	}
	for field, said := range map[string]string{"content": text, "reasoning_content": thought, "refusal": refusal} {
		if said != "" {
			m[field] = said
		}
	}
	if calls != nil {
		m["tool_calls"] = calls
	}
	o := c.object("chat.completion", []any{map[string]any{"index": 0, "message": m, "finish_reason": c.finish()}})
	o["usage"] = c.counts()
	return o
}
