package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman"
)

func TestTablesHoldWhateverNamesThereAre(t *testing.T) {
	var out bytes.Buffer
	c := &command{out: &out}
	if err := c.printTable([]string{"NAME", "SIZE"}, [][]string{{"ü b.md", "1"}, {"two\nlines\tand", "2"}, {"\x1b[31mred\u202e", "3"}}); err != nil {
		t.Fatal(err)
	}
	want := `
NAME                 SIZE
ü b.md               1
"two\nlines\tand"    2
"\x1b[31mred\u202e"  3
`
	if got := "\n" + out.String(); got != want {
		t.Errorf("got %s", got)
	}
	out.Reset()
	c.describe(tallyman.Run{Name: "a", Labels: map[string]string{"k": "\x1b]0;title\a"}})
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("a label steers the terminal: %q", out.String())
	}
}

// endless is what never stops coming.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'y'
	}
	return len(p), nil
}

func TestAPromptThatNeverEndsIsRefused(t *testing.T) {
	in := endless{}
	c := &command{in: in}
	_, err := c.prompt("-", nil)
	if err == nil || !strings.Contains(err.Error(), "standard input has more than") || exitOf(err) != ExitUsage {
		t.Errorf("it ends with %v", err)
	}
	c.in = io.LimitReader(in, 1<<20)
	if got, err := c.prompt("", []string{"-"}); err != nil || len(got) != 1<<20 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestAWrongTokenIsNoFailedRun(t *testing.T) {
	if got := exitCode(tallyman.Errorf(tallyman.Unauthorized, "x")); got != ExitUsage {
		t.Errorf("exit code %d", got)
	}
}

func TestWordsThatWouldArriveAsOthersAreRefused(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("LATIN", "caf\xe9")
	for _, args := range [][]string{
		{"run", "exec", "--", "echo", "a\xff"},
		{"run", "demo", "a\xff"},
		{"run", "-d", "demo", "a", "--label", "k=\xff"},
		{"run", "-d", "demo", "a", "--env", "K=\xff"},
		{"run", "-d", "demo", "a", "--env", "LATIN"},
		{"run", "-d", "demo", "a", "--key", "\xff"},
		{"rerun", "demo-8c4q2k7v1x", "--set", "prompt=\xff"},
	} {
		var out, errOut bytes.Buffer
		if code := Main(t.Context(), Program{Name: "tallyman", Version: "dev"}, args, nil, &out, &errOut); code != ExitUsage || !strings.Contains(errOut.String(), "is not UTF-8") {
			t.Errorf("%q: exit code %d: %s", args, code, errOut.String())
		}
	}
}
