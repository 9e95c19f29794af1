package render

import (
	"bytes"
	"encoding/json"
	"strings"
)

// telling lists the arguments of tools that say most about a call, best first.
var telling = []string{
	"command", "cmd", "file_path", "filePath", "notebook_path", "pattern", "query", "url", "path",
	"description", "skill", "subject", "name", "prompt", "text", "message",
}

// argument picks the one argument of a tool's input that says most.
func argument(input json.RawMessage) string {
	best, rank := "", len(telling)+1
	for _, f := range topLevel(input) {
		text, ok := plainText(f.value)
		if !ok || text == "" {
			continue
		}
		if r := rankOf(f.key); r < rank {
			best, rank = text, r
		}
	}
	return OneLine(best, maxHead)
}

func rankOf(key string) int {
	for i, k := range telling {
		if k == key {
			return i
		}
	}
	return len(telling)
}

// Input writes a tool's input for people: one "key: value" a line, texts as
// they are, everything else as compact JSON.
func Input(input json.RawMessage) string {
	fields := topLevel(input)
	if len(fields) == 1 && fields[0].key == "" {
		text, ok := plainText(fields[0].value)
		if !ok {
			text = compact(fields[0].value)
		}
		return Clean(text)
	}
	var b strings.Builder
	for i, f := range fields {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(f.key)
		b.WriteByte(':')
		text, ok := plainText(f.value)
		switch {
		case !ok:
			b.WriteString(" " + compact(f.value))
		case strings.Contains(text, "\n"):
			b.WriteString("\n  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  "))
		default:
			b.WriteString(" " + text)
		}
	}
	return Clean(b.String())
}

type field struct {
	key   string
	value json.RawMessage
}

// topLevel returns the fields of a JSON object in their order. Anything else
// is one field without a key; what is not JSON is none.
func topLevel(raw json.RawMessage) []field {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || !json.Valid(raw) || string(raw) == "{}" || string(raw) == "null" {
		return nil
	}
	if raw[0] != '{' {
		return []field{{value: raw}}
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return nil
	}
	var fields []field
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return fields
		}
		name, _ := key.(string)
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return fields
		}
		fields = append(fields, field{name, value})
	}
	return fields
}

// plainText returns a JSON string, or a list of strings joined by spaces.
func plainText(raw json.RawMessage) (string, bool) {
	var s string
	if json.Unmarshal(raw, &s) == nil && len(raw) > 0 && raw[0] == '"' {
		return s, true
	}
	var list []string
	if len(raw) > 0 && raw[0] == '[' && json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		return strings.Join(list, " "), true
	}
	return "", false
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return string(raw)
	}
	return b.String()
}
