package fakemodel

import (
	"encoding/json"
	"net/http"
	"strings"
)

func parseGemini(r *http.Request, body []byte) (*talk, *Fault) {
	var in struct {
		Contents []struct {
			Role  string `json:"role"`
			Parts []struct {
				Text             string `json:"text"`
				FunctionResponse *struct {
					Response json.RawMessage `json:"response"`
				} `json:"functionResponse"`
			} `json:"parts"`
		} `json:"contents"`
		Tools []struct {
			FunctionDeclarations []struct {
				Name string `json:"name"`
			} `json:"functionDeclarations"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, malformed("Invalid JSON payload received. %v", err)
	}
	if len(in.Contents) == 0 {
		return nil, malformed("* GenerateContentRequest.contents: contents is not specified")
	}
	name, verb, _ := strings.Cut(r.PathValue("call"), ":")
	sse := r.URL.Query().Get("alt") == "sse"
	t := &talk{format: Gemini, model: name, stream: sse && verb == "streamGenerateContent"}
	t.list = !sse && verb == "streamGenerateContent"
	for _, tool := range in.Tools {
		for _, f := range tool.FunctionDeclarations {
			t.tools = append(t.tools, f.Name)
		}
	}
	for _, c := range in.Contents {
		if c.Role == "model" {
			t.add(model, "")
			continue
		}
		var said []string
		for _, p := range c.Parts {
			if p.FunctionResponse != nil {
				t.add(tool, string(p.FunctionResponse.Response))
				continue
			}
			said = append(said, p.Text)
		}
		t.add(user, strings.Join(said, "\n"))
	}
	return t, nil
}

type geminiWire struct {
	model string
	stop  string
	usage *Usage
	id    string
	list  bool
}

func newGeminiWire(t *talk, r Reply) *geminiWire {
	return &geminiWire{model: t.model, stop: r.Stop, usage: r.Usage, id: newID(""), list: t.list}
}

func (g *geminiWire) chunk(parts []any, finish string) map[string]any {
	candidate := map[string]any{"content": map[string]any{"role": "model", "parts": parts}, "index": 0}
	if finish != "" {
		candidate["finishReason"] = finish
	}
	prompt := g.usage.Input + g.usage.CacheRead + g.usage.CacheWrite
	return map[string]any{
		"candidates": []any{candidate}, "modelVersion": g.model, "responseId": g.id,
		"usageMetadata": map[string]any{
			"promptTokenCount": prompt, "cachedContentTokenCount": g.usage.CacheRead,
			"candidatesTokenCount": g.usage.Output, "totalTokenCount": prompt + g.usage.Output,
		},
	}
}

func (g *geminiWire) begin() []frame { return nil }

func (g *geminiWire) block(b Block, pieces []string) []frame {
	if b.Tool != nil {
		return []frame{{data: g.chunk([]any{geminiCall(b.Tool)}, ""), piece: true}}
	}
	var frames []frame
	for _, p := range pieces {
		frames = append(frames, frame{data: g.chunk([]any{geminiText(b, p)}, ""), piece: true})
	}
	return frames
}

func geminiCall(t *Tool) map[string]any {
	return map[string]any{"functionCall": map[string]any{"name": t.Name, "args": t.raw}}
}

func geminiText(b Block, text string) map[string]any {
	if b.Thinking != "" {
		return map[string]any{"text": text, "thought": true}
	}
	return map[string]any{"text": text}
}

func (g *geminiWire) fail(f *Fault) []frame { return []frame{{data: f.body(Gemini)}} }

func (g *geminiWire) finish() string {
	switch g.stop {
	case "max_tokens", "model_context_window_exceeded":
		return "MAX_TOKENS"
	case "refusal":
		return "SAFETY"
	default:
		return "STOP"
	}
}

func (g *geminiWire) end() []frame {
	return []frame{{data: g.chunk([]any{map[string]any{"text": ""}}, g.finish())}}
}

func (g *geminiWire) whole(blocks []Block) any {
	parts := []any{}
	for _, b := range blocks {
		if b.Tool != nil {
			parts = append(parts, geminiCall(b.Tool))
			continue
		}
		parts = append(parts, geminiText(b, b.Text+b.Thinking+b.Refusal))
	}
	chunk := g.chunk(parts, g.finish())
	if g.list {
		return []any{chunk}
	}
	return chunk
}
