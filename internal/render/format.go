package render

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tallyman-dev/tallyman"
)

// Took writes a duration as people read it: 12ms, 0.3s, 4m 05s, 2h 03m, 3d 4h.
// A negative one is 0.
func Took(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Millisecond:
		return "<1ms"
	case d < 100*time.Millisecond:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < 9950*time.Millisecond:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	}
	s := int64(d.Round(time.Second) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm %02ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh %02dm", s/3600, s%3600/60)
	default:
		return fmt.Sprintf("%dd %dh", s/86400, s%86400/3600)
	}
}

// Count writes a number with its thousands apart: 1,204.
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// Bytes writes a size: 812 B, 2.1 MB. A kB is 1,000 bytes.
func Bytes(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	v := float64(n)
	for _, unit := range []string{"kB", "MB", "GB", "TB"} {
		v /= 1000
		if v < 999.5 {
			digits := 1
			if v >= 99.5 {
				digits = 0
			}
			return strconv.FormatFloat(v, 'f', digits, 64) + " " + unit
		}
	}
	return strconv.FormatFloat(v, 'f', 0, 64) + " TB"
}

// Cost writes US dollars with the digits that matter: $12.40, $0.034, $0.0009.
func Cost(usd float64) string {
	switch {
	case math.IsNaN(usd) || math.IsInf(usd, 0):
		return "$?"
	case usd == 0:
		return "$0"
	case math.Abs(usd) < 0.00005:
		return "<$0.0001"
	case math.Abs(usd) < 0.01:
		return "$" + strconv.FormatFloat(usd, 'f', 4, 64)
	case math.Abs(usd) < 1:
		return "$" + strconv.FormatFloat(usd, 'f', 3, 64)
	default:
		return "$" + strconv.FormatFloat(usd, 'f', 2, 64)
	}
}

// CostSource says in words where a cost comes from.
func CostSource(s tallyman.CostSource) string {
	switch s {
	case tallyman.CostHarness:
		return "reported by the harness"
	case tallyman.CostEstimated:
		return "estimated from list prices"
	default:
		return "unknown"
	}
}

// Tokens writes the tokens of each kind that was used.
func Tokens(u tallyman.Usage) string {
	s := Count(u.InputTokens) + " in, " + Count(u.OutputTokens) + " out"
	if u.CacheReadTokens != 0 {
		s += ", " + Count(u.CacheReadTokens) + " cache read"
	}
	if u.CacheWriteTokens != 0 {
		s += ", " + Count(u.CacheWriteTokens) + " cache write"
	}
	return s
}

// Words writes a reason as words: DeadlineExceeded is "deadline exceeded",
// OOMKilled "OOM killed".
func Words[S ~string](reason S) string {
	var b strings.Builder
	rs := []rune(string(reason))
	upper := func(i int) bool { return i >= 0 && i < len(rs) && rs[i] >= 'A' && rs[i] <= 'Z' }
	for i, r := range rs {
		starts := upper(i) && (!upper(i-1) || (i+1 < len(rs) && !upper(i+1)))
		if starts && i > 0 {
			b.WriteByte(' ')
		}
		if upper(i) && !upper(i+1) && !(upper(i-1) && i+1 == len(rs)) {
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// OneLine returns s on one line and cut to at most limit characters.
func OneLine(s string, limit int) string {
	if limit <= 0 {
		return ""
	}
	if len(s) > 8*limit {
		// Enough for a line, and not the whole of a megabyte.
		s = strings.ToValidUTF8(s[:8*limit], "")
	}
	s = strings.Join(strings.Fields(Clean(s)), " ")
	return cut(s, limit)
}

// cut shortens s to limit columns with an ellipsis.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	n, end := 0, 0
	for i, r := range s {
		n += columns(r)
		if n > limit {
			return s[:end] + "…"
		}
		if n < limit {
			end = i + utf8.RuneLen(r)
		}
	}
	return s
}

// columns is how many cells of a terminal a character fills: two for the wide
// ones of East Asia and for pictures.
func columns(r rune) int {
	switch {
	case r < 0x1100:
		return 1
	case r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3,
		r >= 0xf900 && r <= 0xfaff, r >= 0xfe30 && r <= 0xfe6f,
		r >= 0xff00 && r <= 0xff60, r >= 0x1f300 && r <= 0x1faff,
		r >= 0x20000 && r <= 0x3fffd:
		return 2
	default:
		return 1
	}
}
