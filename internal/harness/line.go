package harness

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/tallyman-dev/tallyman"
)

const (
	maxText = 1 << 20  // a longer text is cut; the raw line has it whole
	cutEnd  = 64 << 10 // what is kept at each end of something cut
)

// view is b as a string that shares its memory: events may share memory with
// the line they come from. What outlives the call must be cloned.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// cutText returns s, or head and tail of it when it is longer than limit.
func cutText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	head, tail := s[:cutEnd], s[len(s)-cutEnd:]
	for i := 0; i < utf8.UTFMax && !utf8.RuneStart(s[len(head)]); i++ {
		head = head[:len(head)-1]
	}
	for i := 0; i < utf8.UTFMax && !utf8.RuneStart(tail[0]); i++ {
		tail = tail[1:]
	}
	return head + cutMark(len(s)-len(head)-len(tail)) + tail
}

func cutMark(n int) string {
	return fmt.Sprintf("… [%d bytes cut; the raw line has them] …", n)
}

// setRaw keeps the line on the event: as JSON, as bytes, or as what is left
// of one that is too long.
func setRaw(e *tallyman.Event, line []byte, isJSON bool) {
	switch {
	case len(line) > tallyman.MaxRaw:
		e.RawCut = cutRaw(line)
	case isJSON:
		e.Raw = line
	default:
		e.RawB64 = line
	}
}

func cutRaw(line []byte) *tallyman.RawCut {
	sum := sha256.Sum256(line)
	return &tallyman.RawCut{
		Bytes:  int64(len(line)),
		SHA256: hex.EncodeToString(sum[:]),
		Head:   line[:cutEnd],
		Tail:   line[len(line)-cutEnd:],
	}
}

// plainEvent is a line that is text and nothing more. Its raw form is kept
// only where the text is not the line.
func plainEvent(kind tallyman.EventType, line []byte, limit int) tallyman.Event {
	e := tallyman.Event{Type: kind, Text: cutText(view(line), limit)}
	if len(e.Text) != len(line) || !utf8.Valid(line) {
		setRaw(&e, line, false)
	}
	return e
}

// stderrLines passes standard error on and remembers the last line that says
// something, for messages about a bad end.
type stderrLines struct{ last string }

func (s *stderrLines) add(line []byte, limit int, out *Batch) {
	out.Events = append(out.Events, plainEvent(tallyman.EventAgentStderr, line, limit))
	if text := firstWords(view(line)); text != "" {
		s.last = strings.Clone(text)
	}
}

// explain adds the last line of standard error to a message.
func (s *stderrLines) explain(message string) string {
	if s.last == "" {
		return message
	}
	return message + ": " + s.last
}

// firstWords returns the beginning of a text as part of one sentence: one
// line, no control characters, at most 300 bytes.
func firstWords(s string) string {
	const most = 300
	s = strings.TrimSpace(s[:min(len(s), 4*most)])
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	s = strings.TrimSpace(s)
	if len(s) <= most {
		return s
	}
	cut := most
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
