package fakemodel

import (
	"encoding/json"
	"fmt"
)

func parseResponses(body []byte) (*talk, *Fault) {
	var in struct {
		Model  string          `json:"model"`
		Stream bool            `json:"stream"`
		Input  json.RawMessage `json:"input"`
		Tools  []struct {
			Type string `json:"type"`
			Name string `json:"name"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, malformed("%v", err)
	}
	if in.Model == "" {
		return nil, malformed("Missing required parameter: 'model'.")
	}
	t := &talk{format: Responses, model: in.Model, stream: in.Stream}
	for _, tool := range in.Tools {
		t.tools = append(t.tools, tool.Name)
	}
	var text string
	if json.Unmarshal(in.Input, &text) == nil && text != "" {
		t.add(user, text)
		return t, nil
	}
	var items []struct {
		Type    string  `json:"type"`
		Role    string  `json:"role"`
		Content content `json:"content"`
		Output  content `json:"output"`
	}
	if err := json.Unmarshal(in.Input, &items); err != nil {
		return nil, malformed("Invalid type for 'input': expected a string or an array of input items.")
	}
	for _, it := range items {
		switch {
		case it.Type == "function_call_output" || it.Type == "custom_tool_call_output":
			t.add(tool, it.Output.text())
		case it.Role == "user":
			t.add(user, it.Content.text())
		case it.Role == "":
			t.add(model, "") // a call, or a thought
		case it.Role == "assistant":
			t.add(model, it.Content.text())
		}
	}
	if len(t.said) == 0 {
		return nil, malformed("Missing required parameter: 'input'.")
	}
	return t, nil
}

type responsesWire struct {
	model  string
	stop   string
	usage  *Usage
	id     string
	seq    int
	output []any // the finished items
}

func newResponsesWire(t *talk, r Reply) *responsesWire {
	return &responsesWire{model: t.model, stop: r.Stop, usage: r.Usage, id: newID("resp_"), output: []any{}}
}

// event makes the next event of the stream.
func (r *responsesWire) event(name string, fields map[string]any) frame {
	fields["sequence_number"] = r.seq
	r.seq++
	return typed(name, fields)
}

// response is the object that tells how far the answer is.
func (r *responsesWire) response(status string) map[string]any {
	m := map[string]any{
		"id": r.id, "object": "response", "created_at": now(), "model": r.model, "status": status,
		"output": r.output, "error": nil, "incomplete_details": nil, "usage": nil,
	}
	if status == "completed" || status == "incomplete" {
		input := r.usage.Input + r.usage.CacheRead + r.usage.CacheWrite
		m["usage"] = map[string]any{
			"input_tokens": input, "input_tokens_details": map[string]any{"cached_tokens": r.usage.CacheRead},
			"output_tokens": r.usage.Output, "output_tokens_details": map[string]any{"reasoning_tokens": 0},
			"total_tokens": input + r.usage.Output,
		}
	}
	if status == "incomplete" {
		m["incomplete_details"] = map[string]any{"reason": "max_output_tokens"}
	}
	return m
}

func (r *responsesWire) begin() []frame {
	return []frame{
		r.event("response.created", map[string]any{"response": r.response("in_progress")}),
		r.event("response.in_progress", map[string]any{"response": r.response("in_progress")}),
	}
}

// kind is how one kind of item is streamed.
type kind struct {
	prefix string         // of its id
	item   map[string]any // when it is finished
	open   map[string]any // the fields that differ before that
	part   string         // the name of its part's events: content_part or reasoning_summary_part; "" for none
	place  string         // what counts its parts
	value  map[string]any // the finished part
	field  string         // the part's field with the text
	delta  string         // the name of its text's events
	name   string         // the field that ends them
}

func kindOf(b Block) kind {
	text := b.Text + b.Thinking + b.Refusal
	switch {
	case b.Tool != nil:
		return kind{
			prefix: "fc_", delta: "response.function_call_arguments", name: "arguments",
			item: map[string]any{
				"type": "function_call", "call_id": newID("call_"), "name": b.Tool.Name, "arguments": string(b.Tool.raw),
			},
			open: map[string]any{"arguments": ""},
		}
	case b.Thinking != "":
		value := map[string]any{"type": "summary_text", "text": text}
		return kind{
			prefix: "rs_", delta: "response.reasoning_summary_text", name: "text",
			part: "reasoning_summary_part", place: "summary_index", value: value, field: "text",
			item: map[string]any{"type": "reasoning", "summary": []any{value}},
			open: map[string]any{"summary": []any{}},
		}
	}
	k := kind{
		prefix: "msg_", delta: "response.output_text", name: "text",
		part: "content_part", place: "content_index", field: "text",
		value: map[string]any{"type": "output_text", "text": text, "annotations": []any{}},
	}
	if b.Refusal != "" {
		k.delta, k.name, k.field = "response.refusal", "refusal", "refusal"
		k.value = map[string]any{"type": "refusal", "refusal": text}
	}
	k.item = map[string]any{"type": "message", "role": "assistant", "content": []any{k.value}}
	k.open = map[string]any{"content": []any{}}
	return k
}

func (r *responsesWire) block(b Block, pieces []string) []frame {
	k := kindOf(b)
	id, index := newID(k.prefix), len(r.output)
	k.item["id"], k.item["status"] = id, "completed"
	opened := with(with(k.item, map[string]any{"status": "in_progress"}), k.open)
	at := map[string]any{"item_id": id, "output_index": index}
	if k.part != "" {
		at[k.place] = 0
	}
	frames := []frame{r.event("response.output_item.added", map[string]any{"output_index": index, "item": opened})}
	if k.part != "" {
		empty := with(k.value, map[string]any{k.field: ""})
		frames = append(frames, r.event("response."+k.part+".added", with(at, map[string]any{"part": empty})))
	}
	for _, p := range pieces {
		f := r.event(k.delta+".delta", with(at, map[string]any{"delta": p}))
		f.piece = true
		frames = append(frames, f)
	}
	said := k.item["arguments"]
	if k.part != "" {
		said = k.value[k.field]
	}
	frames = append(frames, r.event(k.delta+".done", with(at, map[string]any{k.name: said})))
	if k.part != "" {
		frames = append(frames, r.event("response."+k.part+".done", with(at, map[string]any{"part": k.value})))
	}
	r.output = append(r.output, k.item)
	return append(frames, r.event("response.output_item.done", map[string]any{"output_index": index, "item": k.item}))
}

// with is a copy of m with other fields set.
func with(m, other map[string]any) map[string]any {
	c := make(map[string]any, len(m)+len(other))
	for _, from := range []map[string]any{m, other} {
		for k, v := range from {
			c[k] = v
		}
	}
	return c
}

func (r *responsesWire) fail(f *Fault) []frame {
	m := r.response("failed")
	msg := f.Message
	if msg == "" {
		msg = wordsFor(f.Status).message
	}
	code := openAICode(f)
	if code == nil {
		code = fmt.Sprintf("http_%d", f.Status)
	}
	m["error"] = map[string]any{"code": code, "message": msg}
	return []frame{r.event("response.failed", map[string]any{"response": m})}
}

func (r *responsesWire) ending() string {
	if r.stop == "max_tokens" || r.stop == "model_context_window_exceeded" {
		return "incomplete"
	}
	return "completed"
}

func (r *responsesWire) end() []frame {
	status := r.ending()
	return []frame{r.event("response."+status, map[string]any{"response": r.response(status)})}
}

func (r *responsesWire) whole(blocks []Block) any {
	for _, b := range blocks {
		k := kindOf(b)
		k.item["id"], k.item["status"] = newID(k.prefix), "completed"
		r.output = append(r.output, k.item)
	}
	return r.response(r.ending())
}
