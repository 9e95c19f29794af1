package render_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tallyman-dev/tallyman/internal/render"
)

func TestClean(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"plain text stays":                       {"hello\n\tworld é 世界", "hello\n\tworld é 世界"},
		"a colour goes":                          {"\x1b[1;31mred\x1b[0m", "red"},
		"a title goes":                           {"a\x1b]0;title\ab\x1b]8;;http://x\x1b\\link", "ablink"},
		"a C1 control goes":                      {"a\u009b31mb\u009d0;t\u009cc\u0085d", "abcd"},
		"a device control string goes":           {"a\x1bPq#0\x1b\\b", "ab"},
		"a charset switch goes":                  {"a\x1b(0b", "ab"},
		"bell, backspace, NUL and DEL go":        {"a\ab\bc\x00d\x7f", "abcd"},
		"what a carriage return overwrites goes": {"10%\r50%\r100%\ndone\r\nend", "100%\ndone\nend"},
		"a last carriage return keeps its line":  {"100%\r", "100%"},
		"an endless title ends with its line":    {"a\x1b]0;never\nb", "a\nb"},
		"a broken sequence keeps what follows":   {"\x1b[31\nx\x1b[é", "\nxé"},
		"invalid UTF-8 is replaced":              {"a\xffb\x9b", "a\ufffdb\ufffd"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := render.Clean(c.in); got != c.want {
				t.Errorf("Clean(%q) = %q, want %q", c.in, got, c.want)
			}
		})
	}
}

func checkClean(t *testing.T, where, s string) {
	t.Helper()
	if !utf8.ValidString(s) {
		t.Errorf("%s: invalid UTF-8: %q", where, s)
	}
	for _, r := range s {
		if r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			t.Errorf("%s: control character %U in %q", where, r, s)
			return
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"a\x1b[31mb", "\x1b]0;t\a", "\u009b1m", "a\rb\r\n", "\x1b\x1b[", "\xff\x00", "plain", "é\x1b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := render.Clean(s)
		checkClean(t, "Clean", got)
		if again := render.Clean(got); again != got {
			t.Errorf("cleaning twice changes %q to %q", got, again)
		}
		if strings.Count(got, "\n") != strings.Count(s, "\n") {
			t.Errorf("%q has another number of lines than %q", got, s)
		}
	})
}
