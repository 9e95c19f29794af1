package render

import (
	"unicode/utf8"
)

// Clean returns s without anything that steers a terminal: CSI, OSC and other
// escape sequences, C0 and C1 control characters but for newline and tab.
// What a carriage return overwrites is gone, as it would be on a screen.
// Invalid UTF-8 becomes U+FFFD.
func Clean(s string) string {
	if isClean(s) {
		return s
	}
	var c cleaner
	c.write(s)
	return string(c.out)
}

func isClean(s string) bool {
	for i := 0; i < len(s); i++ {
		b := s[i]
		switch {
		case b >= 0x20 && b < 0x7f, b == '\n', b == '\t':
		case b < utf8.RuneSelf:
			return false
		default:
			return cleanRunes(s[i:])
		}
	}
	return true
}

func cleanRunes(s string) bool {
	for i, r := range s {
		switch {
		case r < 0x20 && r != '\n' && r != '\t', r >= 0x7f && r < 0xa0:
			return false
		case r == utf8.RuneError:
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				return false
			}
		}
	}
	return true
}

// The places within an escape sequence.
type place int

const (
	ground    place = iota
	escape          // after ESC
	control         // within CSI, up to a byte from @ to ~
	command         // within OSC, DCS, SOS, PM or APC, up to BEL or ST
	commandEs       // ESC within a command: ST if a backslash follows
)

// cleaner cleans a text that may come in pieces. A sequence that does not end
// never hides the next line.
type cleaner struct {
	// live: what is out cannot be taken back, so a carriage return becomes a
	// newline instead of overwriting.
	live bool

	at   place
	cr   bool // a carriage return waits for what follows
	line int  // where the current line begins in out
	out  []byte
}

func (c *cleaner) write(s string) {
	for _, r := range s {
		c.rune(r)
	}
}

func (c *cleaner) rune(r rune) {
	if r == '\n' {
		c.at, c.cr = ground, false
		c.out = append(c.out, '\n')
		c.line = len(c.out)
		return
	}
	switch c.at {
	case ground:
		c.plain(r)
	case escape:
		switch {
		case r == '[':
			c.at = control
		case r == ']', r == 'P', r == 'X', r == '^', r == '_':
			c.at = command
		case r >= 0x20 && r < 0x30: // an intermediate; one more follows
		case r >= 0x30 && r < 0x7f:
			c.at = ground
		default:
			c.at = ground
			c.plain(r)
		}
	case control:
		switch {
		case r >= 0x40 && r < 0x7f:
			c.at = ground
		case r >= 0x20 && r < 0x40: // parameters and intermediates
		default:
			c.at = ground
			c.plain(r)
		}
	case command, commandEs:
		switch {
		case r == '\a', r == 0x9c, c.at == commandEs && r == '\\':
			c.at = ground
		case r == 0x1b:
			c.at = commandEs
		default:
			c.at = command
		}
	}
}

// plain takes a character outside of any sequence.
func (c *cleaner) plain(r rune) {
	switch {
	case r == 0x1b:
		c.at = escape
	case r == 0x9b:
		c.at = control
	case r == 0x9d, r == 0x90, r == 0x98, r == 0x9e, r == 0x9f:
		c.at = command
	case r == '\r':
		c.cr = true
	case r < 0x20 && r != '\t', r >= 0x7f && r < 0xa0:
	default:
		c.overwrite()
		c.out = utf8.AppendRune(c.out, r)
	}
}

func (c *cleaner) overwrite() {
	if !c.cr {
		return
	}
	c.cr = false
	if c.live {
		c.out = append(c.out, '\n')
		c.line = len(c.out)
		return
	}
	c.out = c.out[:c.line]
}
