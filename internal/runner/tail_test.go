package runner

import (
	"fmt"
	"strings"
	"testing"
)

func TestTheTailIsTheLastLines(t *testing.T) {
	var tl tail
	if tl.String() != "" {
		t.Errorf("an empty one is %q", tl.String())
	}
	var want []string
	for i := range 180 {
		text := fmt.Sprintf("line %d", i)
		switch {
		case i%7 == 0:
			text += "\nand more\n"
		case i%11 == 0:
			text = strings.Repeat("é", 3000)
		}
		tl.add(text)
		for _, l := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
			if len(l) > tailWidth {
				l = l[:tailWidth] + "…"
			}
			want = append(want, l)
		}
		if got := tl.String(); got != strings.Join(want[max(0, len(want)-tailLines):], "\n") {
			t.Fatalf("after %d texts: %.200q", i+1, got)
		}
	}
}
