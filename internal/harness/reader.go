package harness

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/tallyman-dev/tallyman"
)

// reader reads lines of a protocol whose lines are JSON objects. It holds one
// line at a time.
type reader struct {
	scan scanner
	text text

	line  []byte // as it came, to be kept
	clean []byte // the same JSON as valid UTF-8 without line breaks
	json  bool   // line may be kept as JSON
}

// read takes the next line and reports whether it is a JSON object.
func (r *reader) read(line []byte) bool {
	r.text.reset()
	r.line, r.clean, r.json = line, line, false
	utf := utf8.Valid(line)
	if !utf {
		r.clean = bytes.ToValidUTF8(line, []byte("\uFFFD"))
	}
	if !r.scan.valid(r.clean) {
		return false
	}
	if r.scan.broken {
		r.clean = unbroken(r.clean)
		r.scan.valid(r.clean)
		r.line = r.clean
	}
	r.json = utf
	return len(r.scan.fields) > 0
}

// unbroken puts blanks where JSON has line breaks; within strings it has none.
func unbroken(b []byte) []byte {
	return bytes.Map(func(c rune) rune {
		if c == '\n' || c == '\r' {
			return ' '
		}
		return c
	}, b)
}

// get returns the value of a field of the line, nil without it.
func (r *reader) get(key string) []byte {
	for _, f := range r.scan.fields {
		if string(f.key) == key {
			return f.value
		}
	}
	return nil
}

// is reports whether a field of the line is true.
func (r *reader) is(key string) bool { return string(r.get(key)) == "true" }

// str returns a field that is a string, decoded.
func (r *reader) str(key string) string { return r.text.of(r.get(key)) }

// keep puts the line on the first event that it gave.
func (r *reader) keep(out *Batch, first int) {
	if len(out.Events) > first {
		setRaw(&out.Events[first], r.line, r.json)
	}
}

// stray is what a line becomes that is not of the protocol.
func (r *reader) stray() tallyman.Event {
	return tallyman.Event{Type: tallyman.EventNotice, Name: "stdout", Text: cutText(view(r.line), maxText)}
}

// inner returns what stands between the quotes of a string without escapes,
// "" for any other value.
func inner(v []byte) string {
	if !isString(v) {
		return ""
	}
	return view(v[1 : len(v)-1])
}

// content returns what a message or a tool's result says: a string, or the
// texts of a list of blocks.
func (t *text) content(v []byte) string {
	if len(v) == 0 || v[0] != '[' {
		return t.of(v)
	}
	var parts []string
	for block := range elements(v) {
		var kind, words []byte
		for key, value := range fields(block) {
			switch string(key) {
			case "type":
				kind = value
			case "text":
				words = value
			}
		}
		switch {
		case isString(block):
			parts = append(parts, t.of(block))
		case isString(words):
			parts = append(parts, t.of(words))
		default:
			parts = append(parts, "["+inner(kind)+"]")
		}
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return cutText(strings.Join(parts, "\n"), maxText)
}

// data is a JSON value to be kept on an event, or a word about one that is
// too long; the raw line has that whole.
func data(v []byte) []byte {
	if len(v) > maxText {
		return []byte(`{"cut":true}`)
	}
	return v
}
