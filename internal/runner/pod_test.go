package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/mask"
)

const podAttempt = "01KBCB7TMKFCGE0000000000AB-2"

func TestThePodsCommandLine(t *testing.T) {
	b, err := podBootstrap([]string{"--attempt", podAttempt, "--server", "https://x:1", "--cluster", "west"}, io.Discard)
	if err != nil || b.Attempt != podAttempt || b.Server != "https://x:1" || b.Cluster != "west" || b.Dir != tallyman.PodState || b.Token != tallyman.PodChannel+"/token" {
		t.Errorf("got %+v, %v", b, err)
	}
	for _, args := range [][]string{nil, {"--attempt", "x", "--server", "https://x"}, {"--attempt", podAttempt}, {"--nonsense"}} {
		if b, err := podBootstrap(args, io.Discard); err == nil {
			t.Errorf("%v is taken: %+v", args, b)
		}
	}
}

func TestTheLastWord(t *testing.T) {
	at := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	r := &run{boot: tallyman.Bootstrap{Attempt: podAttempt}, up: &uplink{sent: 7}, ended: at, finalCursor: 9, outcome: &tallyman.Outcome{Reason: tallyman.Completed, Started: true}}
	want := tallyman.LastWord{Attempt: podAttempt, Cursor: 9, At: at, Outcome: *r.outcome, Undelivered: 2}
	if diff := cmp.Diff(want, r.lastWord(nil)); diff != "" {
		t.Errorf("of an attempt that ended (-want +got):\n%s", diff)
	}
	r.up.sent = 12 // the server may have more of it than the end that was meant
	if w := r.lastWord(nil); w.Undelivered != 0 {
		t.Errorf("undelivered are %d", w.Undelivered)
	}
	for _, c := range []struct {
		err    error
		reason tallyman.Reason
	}{
		{fmt.Errorf("introduce the runner: %w", errUnreached), tallyman.ServerUnreachable},
		{errors.New("the journal cannot be made"), tallyman.SetupFailed},
		{nil, tallyman.SetupFailed},
	} {
		w := (&run{boot: tallyman.Bootstrap{Attempt: podAttempt}}).lastWord(c.err)
		if w.Cursor != 0 || w.Outcome.Reason != c.reason || w.Outcome.Message == "" || w.Attempt != podAttempt {
			t.Errorf("after %v: %+v", c.err, w)
		}
	}
}

func TestSecretsAreKnownByWhatIsMounted(t *testing.T) {
	dir := t.TempDir()
	if got, err := knownSecrets(filepath.Join(dir, "none")); err != nil || got != nil {
		t.Errorf("without any: %v, %v", got, err)
	}
	// A mounted Secret is links into a folder that is swapped as a whole.
	version := filepath.Join(dir, "0", "..2026_12_01")
	if err := os.MkdirAll(version, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"KEY": "value one", "EMPTY": ""} {
		if err := os.WriteFile(filepath.Join(version, name), []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("..data/"+name, filepath.Join(dir, "0", name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("..2026_12_01", filepath.Join(dir, "0", "..data")); err != nil {
		t.Fatal(err)
	}
	got, err := knownSecrets(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]mask.Secret{{Name: "EMPTY"}, {Name: "KEY", Value: "value one"}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := os.WriteFile(filepath.Join(dir, "odd"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := knownSecrets(dir); err == nil {
		t.Error("what cannot be read is passed over: its value would be told")
	}
}

func TestPrivateAuthoritiesJoinTheSystems(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	to, private, none := file("bundle", ""), file("private", "PRIVATE\n"), file("none", "")
	for _, c := range []struct {
		private string
		system  []string
		found   bool
		want    string
	}{
		{none, []string{file("system", "SYSTEM\n")}, false, ""},
		{private, []string{none, file("system", "SYSTEM\n"), file("other", "OTHER\n")}, true, "SYSTEM\n\nPRIVATE\n"},
		{private, []string{none}, true, "PRIVATE\n"},
	} {
		found, err := bundle(to, c.private, c.system)
		got, _ := os.ReadFile(to)
		if err != nil || found != c.found || c.found && string(got) != c.want {
			t.Errorf("%v: found %v, %q, %v", c.system, found, got, err)
		}
	}
}

func TestInstallCopiesTheProgram(t *testing.T) {
	dir := t.TempDir()
	var said strings.Builder
	if code := Install([]string{dir}, &said); code != ExitOK {
		t.Fatalf("exit code %d: %s", code, said.String())
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.Stat(self)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.Stat(filepath.Join(dir, "tallyman-runner"))
	if err != nil || got.Size() != want.Size() || got.Mode().Perm()&0o555 != 0o555 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, args := range [][]string{nil, {"a", "b"}, {filepath.Join(dir, "none")}} {
		said.Reset()
		if code := Install(args, &said); code == ExitOK || said.Len() == 0 {
			t.Errorf("%v: exit code %d, saying %q", args, code, said.String())
		}
	}
}
