// Package mask keeps secrets out of what is written down. It knows the values,
// finds them in the forms in which programs pass them on (plain, JSON-escaped,
// URL-encoded, base64), and puts [NAME masked] in their place.
package mask

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unsafe"

	"github.com/tallyman-dev/tallyman"
)

// Secret is a value that must not be seen, and what to call it. A short value
// hides every place where its characters happen to stand: pass one below 8
// characters only if it was listed on purpose.
type Secret struct{ Name, Value string }

// Masker replaces secrets. It may be used by many goroutines. A nil Masker
// knows no secrets and returns everything as it is.
type Masker struct{ index *index }

// New makes a masker. Of two names for one value the first is shown. Without
// any value that is more than white space it returns nil.
func New(secrets []Secret) *Masker {
	seen := map[string]bool{}
	var all []pattern
	for _, s := range secrets {
		for _, text := range forms(s.Value) {
			if !seen[text] {
				seen[text] = true
				all = append(all, pattern{text: text, label: label(s.Name)})
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return &Masker{index: newIndex(all)}
}

// label is what stands for a secret. It needs no escaping anywhere in JSON.
func label(name string) string {
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("_-./", r):
			return r
		default:
			return '_'
		}
	}, name)
	return "[" + plain + " masked]"
}

// String masks text. Secrets that overlap become one label.
func (m *Masker) String(s string) string {
	if m == nil || !m.index.has(s) {
		return s
	}
	out, _ := m.render(nil, s, 0, len(s))
	return string(out)
}

// Bytes masks text. It returns b itself when there is nothing to mask, and
// never writes to it.
func (m *Masker) Bytes(b []byte) []byte {
	if m == nil || !m.index.has(view(b)) {
		return b
	}
	out, _ := m.render(nil, view(b), 0, len(b))
	return out
}

// JSON masks a JSON value on one line, which stays one: where a label cannot
// stand (across tokens, in a number) the value becomes a JSON string of its
// masked text. It returns raw itself when there is nothing to mask.
func (m *Masker) JSON(raw []byte) []byte {
	if m == nil {
		return raw
	}
	raw = m.escaped(raw)
	if !m.index.has(view(raw)) {
		return raw
	}
	masked := m.Bytes(raw)
	if json.Valid(masked) {
		return masked
	}
	return tallyman.AppendString(nil, view(masked))
}

// Event masks what an event says: Text, Name, Data and the raw line. Of a line
// that was cut, what the cuts left of a secret goes too.
func (m *Masker) Event(e *tallyman.Event) {
	if m == nil {
		return
	}
	e.Text = m.String(e.Text)
	e.Name = m.String(e.Name)
	e.Data = m.JSON(e.Data)
	e.Raw = m.JSON(e.Raw)
	e.RawB64 = m.Bytes(e.RawB64)
	if e.RawCut != nil {
		cut := *e.RawCut
		cut.Head = m.Bytes(m.dropPrefix(cut.Head))
		cut.Tail = m.Bytes(m.dropSuffix(cut.Tail))
		e.RawCut = &cut
	}
}

// minPart is how much of a secret at a cut is taken for one.
const minPart = 4

// dropPrefix replaces the end of head where that is the beginning of a secret.
func (m *Masker) dropPrefix(head []byte) []byte {
	at := m.index.hold(view(head))
	if len(head)-at < minPart {
		return head
	}
	return append(slices.Clip(head[:at]), "[masked]"...)
}

// dropSuffix replaces the beginning of tail where that is the end of a secret.
func (m *Masker) dropSuffix(tail []byte) []byte {
	longest := 0
	for _, p := range m.index.patterns {
		for n := min(len(p.text)-1, len(tail)); n >= minPart && n > longest; n-- {
			if p.text[len(p.text)-n:] == view(tail[:n]) {
				longest = n
			}
		}
	}
	if longest == 0 {
		return tail
	}
	return append([]byte("[masked]"), tail[longest:]...)
}

// render appends text up to limit with labels in place of the secrets that
// begin before it. The first covered bytes are part of a secret whose label
// has been given. It returns how far the last secret reaches.
func (m *Masker) render(dst []byte, text string, covered, limit int) ([]byte, int) {
	for from := 0; ; {
		s, ok := m.index.span(text, from, limit)
		if !ok {
			break
		}
		if s.start >= covered {
			dst = append(append(dst, text[covered:s.start]...), s.label...)
		}
		covered, from = max(covered, s.end), s.end
	}
	if covered < limit {
		dst = append(dst, text[covered:limit]...)
	}
	return dst, covered
}

// view is b as a string, for as long as nobody writes to b.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// escaped masks the strings of a JSON value that hold escapes, so that it does
// not matter which way a secret was escaped.
func (m *Masker) escaped(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	var out []byte
	text := make([]byte, 0, len(raw))
	last := 0
	for i := 0; i < len(raw); {
		quote := bytes.IndexByte(raw[i:], '"')
		if quote < 0 {
			break
		}
		start := i + quote
		end, plain := closing(raw, start+1)
		if !plain {
			text, end = unescape(text[:0], raw, start+1)
			if m.index.has(view(text)) {
				out = append(out, raw[last:start]...)
				masked, _ := m.render(nil, view(text), 0, len(text))
				out = tallyman.AppendString(out, view(masked))
				last = min(end+1, len(raw))
			}
		}
		i = end + 1
	}
	if last == 0 {
		return raw
	}
	return append(out, raw[last:]...)
}
