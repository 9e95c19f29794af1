package harness

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math/bits"
)

// maxDepth is how deep JSON may be nested; a deeper line is taken as text.
const maxDepth = 1024

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// stringEnd returns the index of the first byte at or after i that a JSON
// string cannot hold as it is: a quote, a backslash, a control character; or
// len(b). It looks at eight bytes at once.
func stringEnd(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		stop := (quote-ones)&^quote | (slash-ones)&^slash | (w-ones*' ')&^w
		if stop &= highs; stop != 0 {
			return i + bits.TrailingZeros64(stop)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < ' ' {
			return i
		}
	}
	return i
}

// skipString returns the index after the string whose opening quote is at
// i-1, and whether it is a good one.
func skipString(b []byte, i int) (int, bool) {
	for {
		i = stringEnd(b, i)
		if i >= len(b) || b[i] < ' ' {
			return i, false
		}
		if b[i] == '"' {
			return i + 1, true
		}
		i++
		if i >= len(b) {
			return i, false
		}
		switch b[i] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			i++
		case 'u':
			if i+5 > len(b) || hex4(b[i+1:]) < 0 {
				return i, false
			}
			i += 5
		default:
			return i, false
		}
	}
}

// hex4 reads four hexadecimal digits, -1 when they are none.
func hex4(b []byte) rune {
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func skipSpace(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return i
}

// field is one member of an object: its key as it is written, without the
// quotes, and its value.
type field struct{ key, value []byte }

// scanner checks lines of JSON. It keeps the fields of the last object that
// it was given, so that one pass over the line does both.
type scanner struct {
	fields []field
	start  int                   // of the value of the last field
	broken bool                  // there are line breaks between its tokens
	open   [maxDepth / 64]uint64 // one bit per level: 1 for an object
}

// valid reports whether b is one JSON value. fields are those of b if it is
// an object, else none. Bytes above 0x7f are taken as they are.
func (s *scanner) valid(b []byte) bool {
	s.fields, s.broken = s.fields[:0], false
	depth, i := 0, s.space(b, 0)
	for {
		// A value begins at i.
		next, closed, ok := s.begin(b, i, depth)
		if !ok {
			return false
		}
		if !closed {
			depth++
			i = next
			continue
		}
		i = s.space(b, next)
		s.finish(b, next, depth)
		// A value has ended: at the top it is the whole, else a comma or the
		// end of what holds it follows.
		for depth > 0 && i < len(b) && b[i] == s.closer(depth) {
			depth--
			s.finish(b, i+1, depth)
			i = s.space(b, i+1)
		}
		if depth == 0 {
			return i == len(b)
		}
		if i >= len(b) || b[i] != ',' {
			return false
		}
		i = s.space(b, i+1)
		if s.isObject(depth) {
			if i, ok = s.key(b, i, depth); !ok {
				return false
			}
		}
	}
}

// begin reads the value at i. One that is complete (a scalar, something
// empty) comes back closed, with the index after it; else next is where the
// first value inside begins.
func (s *scanner) begin(b []byte, i, depth int) (next int, closed, ok bool) {
	if i >= len(b) {
		return i, false, false
	}
	switch c := b[i]; c {
	case '"':
		next, ok = skipString(b, i+1)
		return next, true, ok
	case '{', '[':
		if depth+1 >= maxDepth {
			return i, false, false
		}
		s.push(depth+1, c == '{')
		i = s.space(b, i+1)
		if i < len(b) && b[i] == s.closer(depth+1) {
			return i + 1, true, true
		}
		if c == '{' {
			i, ok = s.key(b, i, depth+1)
			return i, false, ok
		}
		return i, false, true
	case 't':
		return i + 4, true, bytes.HasPrefix(b[i:], []byte("true"))
	case 'f':
		return i + 5, true, bytes.HasPrefix(b[i:], []byte("false"))
	case 'n':
		return i + 4, true, bytes.HasPrefix(b[i:], []byte("null"))
	default:
		next, ok = skipNumber(b, i)
		return next, true, ok
	}
}

// key reads a key and its colon and returns where the value begins.
func (s *scanner) key(b []byte, i, depth int) (int, bool) {
	if i >= len(b) || b[i] != '"' {
		return i, false
	}
	end, ok := skipString(b, i+1)
	if !ok {
		return end, false
	}
	colon := s.space(b, end)
	if colon >= len(b) || b[colon] != ':' {
		return colon, false
	}
	value := s.space(b, colon+1)
	if depth == 1 {
		s.fields = append(s.fields, field{key: b[i+1 : end-1]})
		s.start = value
	}
	return value, true
}

// finish notes where the value of the last field ends.
func (s *scanner) finish(b []byte, end, depth int) {
	if depth == 1 && s.isObject(1) {
		s.fields[len(s.fields)-1].value = b[s.start:end]
	}
}

func (s *scanner) push(depth int, object bool) {
	bit := uint64(1) << (depth % 64)
	s.open[depth/64] &^= bit
	if object {
		s.open[depth/64] |= bit
	}
}

func (s *scanner) isObject(depth int) bool { return s.open[depth/64]>>(depth%64)&1 == 1 }

func (s *scanner) closer(depth int) byte {
	if s.isObject(depth) {
		return '}'
	}
	return ']'
}

func (s *scanner) space(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		if b[i] == '\n' || b[i] == '\r' {
			s.broken = true
		}
		i++
	}
	return i
}

func skipNumber(b []byte, i int) (int, bool) {
	if i < len(b) && b[i] == '-' {
		i++
	}
	whole := skipDigits(b, i)
	if whole == i || b[i] == '0' && whole > i+1 {
		return i, false
	}
	i = whole
	if i < len(b) && b[i] == '.' {
		frac := skipDigits(b, i+1)
		if frac == i+1 {
			return i, false
		}
		i = frac
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		exp := skipDigits(b, i)
		return exp, exp > i
	}
	return i, true
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	return i
}

// passString is skipString in JSON known to be valid: it looks for quotes
// only, which is several times as fast.
func passString(b []byte, i int) int {
	for start := i; ; i++ {
		i += bytes.IndexByte(b[i:], '"')
		slashes := i
		for slashes > start && b[slashes-1] == '\\' {
			slashes--
		}
		if (i-slashes)%2 == 0 {
			return i + 1
		}
	}
}

// skipValue returns the index after the value at i, in JSON known to be valid.
func skipValue(b []byte, i int) int {
	switch b[i] {
	case '"':
		return passString(b, i+1)
	case '{', '[':
		for depth := 0; ; {
			switch b[i] {
			case '"':
				i = passString(b, i+1)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			i++
			if depth == 0 {
				return i
			}
		}
	default:
		for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && !isSpace(b[i]) {
			i++
		}
		return i
	}
}

// fields yields the members of an object in JSON known to be valid, nothing
// for any other value.
func fields(b []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		if len(b) == 0 || b[0] != '{' {
			return
		}
		for i := skipSpace(b, 1); b[i] != '}'; i = skipSpace(b, i) {
			if b[i] == ',' {
				i++
				continue
			}
			end := passString(b, i+1)
			start := skipSpace(b, skipSpace(b, end)+1)
			stop := skipValue(b, start)
			if !yield(b[i+1:end-1], b[start:stop]) {
				return
			}
			i = stop
		}
	}
}

// elements yields the elements of an array in JSON known to be valid, nothing
// for any other value.
func elements(b []byte) iter.Seq[[]byte] {
	return func(yield func(value []byte) bool) {
		if len(b) == 0 || b[0] != '[' {
			return
		}
		for i := skipSpace(b, 1); b[i] != ']'; i = skipSpace(b, i) {
			if b[i] == ',' {
				i++
				continue
			}
			stop := skipValue(b, i)
			if !yield(b[i:stop]) {
				return
			}
			i = stop
		}
	}
}
