package local_test

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/journal"
	"github.com/tallyman-dev/tallyman/internal/local"
)

func TestTheEndOfARunnerThatOnlyDelivers(t *testing.T) {
	event := func(e tallyman.Event) []byte { return e.AppendJSON(nil) }
	end := event(tallyman.Event{Type: tallyman.EventRunnerEnded, Data: []byte(`{"reason":"Completed","started":true}`)})
	word := event(tallyman.Event{Type: tallyman.EventText, Text: "x", Raw: []byte(string(end))})
	for name, c := range map[string]struct {
		peek bool
		last []byte
		want bool
	}{
		"it is told to who does not wait":  {true, end, true},
		"who serves waits for the runner":  {false, end, false},
		"an agent's words are no end":      {true, word, false},
		"an agent that works has no end":   {true, event(tallyman.Event{Type: tallyman.EventText, Text: "x"}), false},
		"a record that is no event is not": {true, []byte("runner.ended"), false},
	} {
		t.Run(name, func(t *testing.T) {
			b := local.New(local.Options{Dir: t.TempDir(), Peek: c.peek, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
			dir := b.Dir(ref)
			w, err := journal.Create(filepath.Join(dir, "journal"), journal.Header{Journal: "J", Run: runID, Attempt: 1}, journal.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Add([]byte("{}"), c.last); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			lock, err := os.Create(filepath.Join(dir, "lock"))
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close()
			if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
				t.Fatal(err)
			}
			s, err := b.Observe(t.Context(), attempt)
			if err != nil || !s.Running || s.Gone || (s.Final != nil) != c.want {
				t.Fatalf("seen is %+v: %v", s, err)
			}
			if c.want && (s.Final.Reason != tallyman.Completed || s.FinalCursor != 2 || s.Journal != "J") {
				t.Errorf("the end is %+v at %d of %s", s.Final, s.FinalCursor, s.Journal)
			}
		})
	}
}
