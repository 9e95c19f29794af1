package runner

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/journal"
)

func TestAnAgentIsGivenUpWhileThereIsRoomForItsOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		reserve int64
		want    bool
	}{
		"enough room": {1, false},
		"no room":     {1 << 60, true},
		"no reserve":  {0, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := newJournal(t, journal.Options{Reserve: c.reserve})
			rec := newRecorder(w, func(tallyman.Delta) {})
			rec.started(epoch, &words{})
			line := []byte("text:main/" + strings.Repeat("x", 100_000))
			for range 30 {
				rec.stdout(chunk{lines: [][]byte{line}})
			}
			select {
			case <-rec.failed:
				if !c.want {
					t.Errorf("given up: %v", rec.err)
				}
			default:
				if c.want {
					t.Error("it goes on")
				}
			}
		})
	}
}

func TestTheBacklogIsWhatHistoryDoesNotHave(t *testing.T) {
	for _, c := range []struct {
		written    int64
		last, sent uint64
		want       int64
	}{{1000, 10, 0, 1000}, {1000, 10, 10, 0}, {1000, 10, 7, 300}, {1000, 10, 99, 0}, {0, 0, 0, 0}} {
		if got := backlog(c.written, c.last, c.sent); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
	}
}

// What was not written cannot be shown: a broken journal is no success, and
// control hears of it though no final event is durable.
func TestABrokenJournalIsToldToControl(t *testing.T) {
	var broken atomic.Bool
	w, dir := newJournal(t, journal.Options{Fault: func(op string) error {
		if op == "write" && broken.Load() {
			return errors.New("no space left on device")
		}
		return nil
	}})
	good, err := w.Add([]byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	up, err := newUplink(tallyman.Bootstrap{}, "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &run{journal: w, rec: newRecorder(w, func(tallyman.Delta) {}), up: up}
	r.up.journal, r.up.dir = w, dir
	r.up.fact(tallyman.Fact{Cursor: good, Kind: tallyman.FactStarted, At: time.Now()})
	r.up.fact(tallyman.Fact{Cursor: good + 1, Kind: tallyman.FactUsage, At: time.Now(), Usage: &tallyman.Usage{}})
	if last := r.end(tallyman.Outcome{Reason: tallyman.Completed, Result: "fine"}); last != good {
		t.Errorf("the journal is good up to %d, want %d", last, good)
	}
	if len(r.up.facts) != 2 || r.up.facts[0].Kind != tallyman.FactStarted || r.up.facts[1].Kind != tallyman.FactFinal || r.up.facts[1].Cursor != good {
		t.Fatalf("the facts are %+v", r.up.facts)
	}
	if out := r.up.facts[1].Outcome; out.Reason != tallyman.BackendError || !strings.Contains(out.Message, dir) || !strings.Contains(out.Message, "no space left") {
		t.Errorf("the outcome is %+v", out)
	}
}
