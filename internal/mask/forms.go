package mask

import (
	"encoding/base64"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// minLine is how many characters a line of a secret must have to be one
	// by itself.
	minLine = 8
	// minBase64 is how long a base64 form must be: shorter ones stand
	// everywhere in other base64 text.
	minBase64 = 8

	unreserved = "-_.~"
)

// forms returns every form in which a value is looked for; the same text may
// come more than once.
func forms(value string) []string {
	var all []string
	for _, part := range parts(value) {
		plain := []string{part}
		if !utf8.ValidString(part) {
			plain = append(plain, string([]rune(part))) // as JSON writers make it valid
		}
		for _, b := range base64Forms(part) {
			plain = append(plain, b)
			plain = append(plain, percentForms(b)...)
		}
		plain = append(plain, percentForms(part)...)
		for _, p := range plain {
			all = append(append(all, p), jsonForms(p)...)
		}
	}
	return all
}

// parts returns the value, the value without the newline that a file ends
// with, and its lines.
func parts(value string) []string {
	if strings.TrimSpace(value) == "" {
		return nil
	}
	all := []string{value}
	if trimmed := strings.TrimRight(value, "\r\n"); trimmed != value {
		all = append(all, trimmed)
	}
	if !strings.Contains(value, "\n") {
		return all
	}
	for line := range strings.Lines(value) {
		if line = strings.TrimSpace(line); utf8.RuneCountInString(line) >= minLine {
			all = append(all, line)
		}
	}
	return all
}

// base64Forms returns the value as base64: padded, not padded, and what of it
// does not depend on its neighbours when it stands anywhere in a longer text.
func base64Forms(value string) []string {
	var all []string
	add := func(s string) {
		if len(s) >= minBase64 {
			all = append(all, s)
		}
	}
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		add(enc.EncodeToString([]byte(value)))
		add(enc.WithPadding(base64.NoPadding).EncodeToString([]byte(value)))
		for before := range 3 {
			s := enc.EncodeToString(append(make([]byte, before), value...))
			// A character holds 6 bits; the ones at the ends are shared.
			first, end := (before*8+5)/6, (before+len(value))*8/6
			if first < end {
				add(s[first:end])
			}
		}
	}
	return all
}

// percentForms returns the value as the URL encoders of the common languages
// write it, which differ in what they leave alone, in spaces and in hex.
func percentForms(value string) []string {
	var all []string
	for _, style := range []struct{ safe, space string }{
		{unreserved, "+"},                        // forms; Go's and Python's query
		{unreserved, "%20"},                      // RFC 3986
		{unreserved + "!'()*", "%20"},            // JavaScript's encodeURIComponent
		{unreserved + ";,/?:@&=+$!'()*#", "%20"}, // its encodeURI
		{unreserved + "/", "%20"},                // Python's quote
		{unreserved + "$&+=:@", "%20"},           // Go's path
		{unreserved + "$&+,;=", "%20"},           // Go's user info
		{"-_.*", "+"},                            // Java
	} {
		for _, digits := range []string{upperHex, lowerHex} {
			if s := percent(value, style.safe, style.space, digits); s != value {
				all = append(all, s)
			}
		}
	}
	return all
}

const (
	upperHex = "0123456789ABCDEF"
	lowerHex = "0123456789abcdef"
)

func percent(value, safe, space, digits string) string {
	var b strings.Builder
	for i := range len(value) {
		switch c := value[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte(safe, c) >= 0:
			b.WriteByte(c)
		case c == ' ':
			b.WriteString(space)
		default:
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}

// jsonStyle says what a JSON writer escapes that it need not, and how.
type jsonStyle uint8

const (
	escSlash    jsonStyle = 1 << iota // \/
	escHTML                           // < > & as \u
	escLines                          // the two line separators of Unicode as \u
	escUnicode                        // everything beyond ASCII as \u
	escControls                       // backspace, form feed and delete as \u
	escUpper                          // \u with upper-case hex
)

// jsonForms returns the value as JSON strings hold it, and as JSON that is
// itself in a JSON string does.
func jsonForms(value string) []string {
	matter := styles(value)
	var all []string
	for style := range escUpper << 1 {
		if style&^matter != 0 {
			continue
		}
		if once := style.escape(value); once != value {
			all = append(all, once, style.escape(once), jsonStyle(0).escape(once))
		}
	}
	return all
}

// styles returns what makes a difference for a value.
func styles(value string) (matter jsonStyle) {
	for _, r := range value {
		switch {
		case r == '/':
			matter |= escSlash
		case r == '<', r == '>', r == '&':
			matter |= escHTML | escUpper
		case r == '\u2028', r == '\u2029':
			matter |= escLines | escUnicode
		case r > 0x7f:
			matter |= escUnicode | escUpper
		case r == '\b', r == '\f', r == 0x7f:
			matter |= escControls | escUpper
		case r < 0x20:
			matter |= escUpper
		}
	}
	return matter
}

func (st jsonStyle) escape(value string) string {
	var b strings.Builder
	digits := lowerHex
	if st&escUpper != 0 {
		digits = upperHex
	}
	hex := func(c rune) {
		b.WriteString(`\u`)
		for _, shift := range []int{12, 8, 4, 0} {
			b.WriteByte(digits[c>>shift&15])
		}
	}
	for i := 0; i < len(value); {
		r, n := utf8.DecodeRuneInString(value[i:])
		switch {
		case r == '"', r == '\\', r == '/' && st&escSlash != 0:
			b.WriteByte('\\')
			b.WriteByte(byte(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\b' && st&escControls == 0:
			b.WriteString(`\b`)
		case r == '\f' && st&escControls == 0:
			b.WriteString(`\f`)
		case r < 0x20,
			st&escControls != 0 && r == 0x7f,
			st&escHTML != 0 && (r == '<' || r == '>' || r == '&'),
			st&escLines != 0 && (r == '\u2028' || r == '\u2029'),
			st&escUnicode != 0 && r > 0x7f && r <= 0xffff && n > 1:
			hex(r)
		case st&escUnicode != 0 && r > 0xffff:
			high, low := utf16.EncodeRune(r)
			hex(high)
			hex(low)
		default:
			b.WriteString(value[i : i+n])
		}
		i += n
	}
	return b.String()
}
