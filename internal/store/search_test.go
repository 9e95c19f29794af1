package store

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tallyman-dev/tallyman"
)

func TestSearchTextIsBoundedAndStaysText(t *testing.T) {
	for n := range 8 {
		r := tallyman.Run{Name: strings.Repeat("x", n), Agent: "y", Labels: map[string]string{"B": "C"}}
		got := searchText(r, Detail{Prompt: strings.Repeat("€\x00", maxSearch)})
		if len(got) > maxSearch || len(got) < maxSearch-utf8.UTFMax || !utf8.ValidString(got) || strings.ContainsRune(got, 0) {
			t.Errorf("%d bytes: %q", len(got), got)
		}
		if !strings.HasPrefix(got, r.Name+" y b=c €") {
			t.Errorf("it begins %q", got[:20])
		}
	}
}
