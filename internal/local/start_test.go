package local_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/journal"
	"github.com/tallyman-dev/tallyman/internal/local"
)

// What a dead runner has left says whether its agent may have worked: that
// decides how often the work is done again.
func TestWhetherTheAgentOfADeadRunnerHadStarted(t *testing.T) {
	begun := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	final := func(started bool) json.RawMessage {
		b, err := json.Marshal(tallyman.Outcome{Reason: tallyman.AgentError, Started: started})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	setUp := []tallyman.Event{{Type: tallyman.EventRunnerStarted}, {Type: tallyman.EventSetupStarted}}
	ready := tallyman.Event{Type: tallyman.EventSetupFinished}
	agent := tallyman.Event{Type: tallyman.EventAgentStarted}
	cases := map[string]struct {
		events []tallyman.Event
		want   time.Duration // after begun, -1: it had not
	}{
		"nothing is recorded":                   {nil, -1},
		"it was being set up":                   {setUp, -1},
		"its set-up failed":                     {append(setUp, tallyman.Event{Type: tallyman.EventSetupFinished, Failed: true}), -1},
		"it was ready: nobody knows, so it did": {append(setUp, ready), 2 * time.Second},
		"its start is recorded":                 {append(setUp, ready, agent, tallyman.Event{Type: tallyman.EventText}), 3 * time.Second},
		"it could not be started":               {append(setUp, ready, tallyman.Event{Type: tallyman.EventRunnerEnded, Data: final(false)}), -1},
		"it started and ended":                  {append(setUp, ready, agent, tallyman.Event{Type: tallyman.EventRunnerEnded, Data: final(true)}), 3 * time.Second},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, t.TempDir(), "works")
			dir := b.Dir(ref)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			w, err := journal.Create(filepath.Join(dir, "journal"), journal.Header{Journal: "J", Run: runID, Attempt: 1}, journal.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for i, e := range c.events {
				e.Time = begun.Add(time.Duration(i) * time.Second)
				if _, err := w.Append(e.AppendJSON(nil)); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			s := b.gone()
			switch {
			case (s.StartedAt != nil) != (c.want >= 0):
				t.Errorf("started %v", s.StartedAt)
			case s.StartedAt != nil && !s.StartedAt.Equal(begun.Add(c.want)):
				t.Errorf("started %s after the beginning, want %s", s.StartedAt.Sub(begun), c.want)
			}
		})
	}
}

func TestARunnerDoesNotGetTheServersSecrets(t *testing.T) {
	t.Setenv("DATABASE_PASSWORD", "hunter2")
	t.Setenv("TZ", "UTC")
	t.Setenv("TALLYMAN_FAULT_LOG", "x")
	b := local.New(local.Options{Dir: t.TempDir(), Runner: []string{"/bin/sh", "-c", "cat <&3 >/dev/null & env; wait"}, Lookup: os.LookupEnv})
	if _, err := b.Start(t.Context(), assignment); err != nil {
		t.Fatal(err)
	}
	var got string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && !strings.Contains(got, "TZ=UTC"); time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(b.Dir(ref), "log"))
		got = string(text)
	}
	time.Sleep(50 * time.Millisecond)
	if !strings.Contains(got, "TZ=UTC") || !strings.Contains(got, "TALLYMAN_FAULT_LOG=x") || strings.Contains(got, "hunter2") {
		t.Errorf("its environment is\n%s", got)
	}
}
