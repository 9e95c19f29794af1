package harness

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// isString reports whether a JSON value is a string.
func isString(v []byte) bool { return len(v) > 1 && v[0] == '"' }

// appendUnquoted appends what stands between the quotes of a JSON string.
// Half a surrogate pair becomes U+FFFD.
func appendUnquoted(dst, inner []byte) []byte {
	for {
		i := bytes.IndexByte(inner, '\\')
		if i < 0 || i+1 >= len(inner) {
			return append(dst, inner...)
		}
		dst = append(dst, inner[:i]...)
		c := inner[i+1]
		inner = inner[i+2:]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r, rest := unescapeRune(inner)
			dst, inner = utf8.AppendRune(dst, r), rest
			continue
		}
		dst = append(dst, c)
	}
}

// unescapeRune reads the digits after \u, and the second half of a pair.
func unescapeRune(b []byte) (rune, []byte) {
	r := hex4(b)
	b = b[4:]
	if !utf16.IsSurrogate(r) {
		return r, b
	}
	if len(b) >= 6 && b[0] == '\\' && b[1] == 'u' {
		if pair := utf16.DecodeRune(r, hex4(b[2:])); pair != utf8.RuneError {
			return pair, b[6:]
		}
	}
	return utf8.RuneError, b
}

// text decodes strings into memory of its own, which it uses again for the
// next line. A string without escapes is a view of the line.
type text struct{ buf []byte }

// reset makes the memory free. What earlier calls gave is void.
func (t *text) reset() {
	if cap(t.buf) > 4*maxText {
		t.buf = nil // one long line must not hold memory for good
	}
	t.buf = t.buf[:0]
}

// of returns a JSON string decoded, "" for any other value. One longer than
// maxText is cut before it is decoded.
func (t *text) of(v []byte) string {
	if !isString(v) {
		return ""
	}
	inner := v[1 : len(v)-1]
	if len(inner) > maxText {
		head, tail := splitEscaped(inner)
		start := len(t.buf)
		t.buf = appendUnquoted(t.buf, head)
		t.buf = append(t.buf, cutMark(len(inner)-len(head)-len(tail))...)
		t.buf = appendUnquoted(t.buf, tail)
		return view(t.buf[start:])
	}
	if bytes.IndexByte(inner, '\\') < 0 {
		return view(inner)
	}
	start := len(t.buf)
	t.buf = appendUnquoted(t.buf, inner)
	return view(t.buf[start:])
}

// splitEscaped returns the first and the last part of a long string that is
// still escaped, neither beginning nor ending inside an escape or a character.
func splitEscaped(s []byte) (head, tail []byte) {
	return s[:boundary(s, cutEnd)], s[boundary(s, len(s)-cutEnd):]
}

// boundary returns the first place at or after i where a character begins.
func boundary(s []byte, i int) int {
	for back := 1; back <= 6; back++ {
		if s[i-back] != '\\' || runOfSlashes(s[:i-back+1])%2 == 0 {
			continue
		}
		size := 2
		if s[i-back+1] == 'u' {
			size = 6
		}
		if end := i - back + size; end > i {
			i = end
		}
		break
	}
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return i
}

func runOfSlashes(s []byte) int {
	n := 0
	for n < len(s) && s[len(s)-1-n] == '\\' {
		n++
	}
	return n
}
