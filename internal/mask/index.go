package mask

import (
	"cmp"
	"slices"
	"sort"
	"strings"
)

// pattern is one form of a secret.
type pattern struct{ text, label string }

// span is a place in a text where secrets are.
type span struct {
	start, end int
	label      string
}

const (
	tableBits = 15
	maxWindow = 16
)

// index finds many patterns at once, after Wu and Manber: it looks at the last
// characters (a block) of a window as long as the shortest pattern, and a
// table says how far the window may move because no pattern has that block
// nearer to its beginning.
type index struct {
	patterns []pattern // the longest first
	sorted   []string  // the same texts in order
	starts   [256]bool // first bytes
	longest  int

	window int
	block  int     // bytes in a block, 1 to 3
	shift  []uint8 // by block
	heads  []int32 // by block at the window's end: 1 + the first of patterns
	next   []int32 // by pattern: 1 + the next with the same block
}

func newIndex(patterns []pattern) *index {
	slices.SortStableFunc(patterns, func(a, b pattern) int { return cmp.Compare(len(b.text), len(a.text)) })
	shortest := len(patterns[len(patterns)-1].text)
	x := &index{
		patterns: patterns,
		longest:  len(patterns[0].text),
		window:   min(shortest, maxWindow),
		block:    min(shortest, 3),
		shift:    make([]uint8, 1<<tableBits),
		heads:    make([]int32, 1<<tableBits),
		next:     make([]int32, len(patterns)),
	}
	for i := range x.shift {
		x.shift[i] = uint8(x.window - x.block + 1)
	}
	for i, p := range slices.Backward(patterns) {
		for end := x.block; end <= x.window; end++ {
			h := x.hash(p.text, end)
			x.shift[h] = min(x.shift[h], uint8(x.window-end))
		}
		h := x.hash(p.text, x.window)
		x.next[i], x.heads[h] = x.heads[h], int32(i+1)
		x.starts[p.text[0]] = true
		x.sorted = append(x.sorted, p.text)
	}
	slices.Sort(x.sorted)
	return x
}

// hash is the table's place for the block that ends before end.
func (x *index) hash(s string, end int) uint32 {
	h := uint32(s[end-1])
	if x.block > 1 {
		h ^= uint32(s[end-2]) << 5
	}
	if x.block > 2 {
		h ^= uint32(s[end-3]) << 10
	}
	return h & (1<<tableBits - 1)
}

// find returns the first pattern that begins in text[from:limit], the longest
// of those that begin there, and where it begins; nil when there is none.
func (x *index) find(text string, from, limit int) (*pattern, int) {
	limit = min(limit, len(text)-x.window+1)
	for i := from; i < limit; {
		h := x.hash(text, i+x.window)
		if skip := x.shift[h]; skip > 0 {
			i += int(skip)
			continue
		}
		for n := x.heads[h]; n > 0; n = x.next[n-1] {
			if p := &x.patterns[n-1]; strings.HasPrefix(text[i:], p.text) {
				return p, i
			}
		}
		i++
	}
	return nil, 0
}

// has reports whether there is a pattern in text.
func (x *index) has(text string) bool {
	p, _ := x.find(text, 0, len(text))
	return p != nil
}

// span returns the first place in text[from:limit] where a secret begins,
// joined with all that overlap it.
func (x *index) span(text string, from, limit int) (span, bool) {
	p, start := x.find(text, from, limit)
	if p == nil {
		return span{}, false
	}
	s := span{start: start, end: start + len(p.text), label: p.label}
	for {
		p, start = x.find(text, start+1, s.end)
		if p == nil {
			return s, true
		}
		s.end = max(s.end, start+len(p.text))
	}
}

// hold returns where the longest end of text begins that could go on to be a
// pattern; len(text) when there is none.
func (x *index) hold(text string) int {
	for i := max(0, len(text)-x.longest+1); i < len(text); i++ {
		if !x.starts[text[i]] {
			continue
		}
		end := text[i:]
		// What begins with end and is longer stands right behind it.
		at := sort.Search(len(x.sorted), func(n int) bool { return x.sorted[n] > end })
		if at < len(x.sorted) && strings.HasPrefix(x.sorted[at], end) {
			return i
		}
	}
	return len(text)
}
