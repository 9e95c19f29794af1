package mask

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// closing finds the quote that closes the string whose content begins at i,
// if that is free of escapes. Without a quote the string ends with raw.
func closing(raw []byte, i int) (end int, plain bool) {
	end = len(raw)
	if q := bytes.IndexByte(raw[i:], '"'); q >= 0 {
		end = i + q
	}
	return end, bytes.IndexByte(raw[i:end], '\\') < 0
}

// unescape appends the text of the JSON string whose content begins at i and
// returns where its closing quote is. Half a surrogate pair is U+FFFD.
func unescape(dst, raw []byte, i int) (text []byte, end int) {
	for from := i; ; {
		for i < len(raw) && raw[i] != '"' && raw[i] != '\\' {
			i++
		}
		dst = append(dst, raw[from:i]...)
		if i+1 >= len(raw) || raw[i] == '"' {
			return dst, i
		}
		switch c := raw[i+1]; c {
		case 'n':
			dst = append(dst, '\n')
		case 't':
			dst = append(dst, '\t')
		case 'r':
			dst = append(dst, '\r')
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'u':
			r, n := unescapeRune(raw[i:])
			dst = utf8.AppendRune(dst, r)
			i += n - 2
		default: // a quote, a slash, a backslash
			dst = append(dst, c)
		}
		i += 2
		from = min(i, len(raw))
		i = from
	}
}

// unescapeRune reads \uXXXX, or two of them that make one rune, and returns
// how many bytes that took.
func unescapeRune(b []byte) (r rune, n int) {
	r, ok := hex4(b)
	if !ok {
		return utf8.RuneError, 2
	}
	if utf16.IsSurrogate(r) {
		if low, ok := hex4(b[6:]); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return pair, 12
			}
		}
		return utf8.RuneError, 6
	}
	return r, 6
}

// hex4 reads \uXXXX.
func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
