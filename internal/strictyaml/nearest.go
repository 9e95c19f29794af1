package strictyaml

import (
	"math"
	"strings"
)

// Nearest returns which of the known words was most likely meant, "" when none
// is near. Upper and lower case count the same, and so do two neighbouring
// letters in the wrong order and one letter wrong; a word that begins with the
// other, of three letters at least, is near too. Of several as near, it is the
// one of most equal length.
func Nearest(word string, known []string) string {
	if allowance(word) == 0 {
		return ""
	}
	best, least := "", math.MaxInt
	for _, k := range known {
		a, b := strings.ToLower(word), strings.ToLower(k)
		d := distance([]rune(a), []rune(b))
		begins := min(len(a), len(b)) >= 3 && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a))
		if d > allowance(word) && !begins {
			continue
		}
		if d = d<<8 + abs(len(k)-len(word)); d < least || d == least && k < best {
			best, least = k, d
		}
	}
	return best
}

// allowance is how many mistakes are believable in a word of this length; 0: it
// is no word at all.
func allowance(word string) int {
	switch n := len(word); {
	case n == 0 || n > 64:
		return 0
	case n <= 5:
		return 1
	case n <= 10:
		return 2
	default:
		return 3
	}
}

func abs(n int) int { return max(n, -n) }

// distance counts the insertions, deletions, replacements and swaps of
// neighbours that make b of a.
func distance(a, b []rune) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
