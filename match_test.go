package tallyman_test

import (
	"testing"

	"github.com/tallyman-dev/tallyman"
)

func TestMatchPath(t *testing.T) {
	cases := []struct {
		pattern, name string
		path, below   bool
	}{
		{"report.md", "report.md", true, false},
		{"./report.md", "report.md", true, false},
		{"*.md", "a/report.md", false, false},
		{"**/*.md", "report.md", true, true},
		{"**/*.md", "a/b/report.md", true, true},
		{"out/**", "out/a/b", true, true},
		{"out/**", "out", true, true},
		{"out/**", "other/a", false, false},
		{"out/*.json", "out", false, true},
		{"out/*.json", "out/x.json", true, false},
		{"a/**/z", "a/z", true, true},
		{"a/**/z", "a/b/c/z", true, true},
		{"a/**/z", "a/b/c", false, true},
		{"[", "[", false, false},
	}
	for _, c := range cases {
		if got := tallyman.MatchPath(c.pattern, c.name); got != c.path {
			t.Errorf("MatchPath(%q, %q) = %v", c.pattern, c.name, got)
		}
		if got := tallyman.MatchBelow(c.pattern, c.name); got != c.below {
			t.Errorf("MatchBelow(%q, %q) = %v", c.pattern, c.name, got)
		}
	}
}
