package service_test

import (
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// Who admits runs hears of that after which others may start, who drives
// attempts of what is to be done with one, all others of everything.
func TestWhoIsToldOfWhat(t *testing.T) {
	h := newHall(t)
	var run tallyman.Run
	var r *runner
	since := time.Now()
	watchers := map[string]<-chan struct{}{}
	for name, watch := range map[string]func() (<-chan struct{}, func()){"all": h.Changed, "queue": h.QueueChanged, "attempts": h.AttemptsChanged} {
		c, end := watch()
		defer end()
		watchers[name] = c
	}
	for _, step := range []struct {
		what            string
		do              func() error
		queue, attempts bool
	}{
		{"a submit", func() error { run = h.submit(command()); return nil }, true, false},
		{"a wait", func() error {
			return h.Wait(t.Context(), run, &tallyman.Waiting{Reason: tallyman.AgentCap, Detail: "1 of 1"})
		}, false, false},
		{"an admission", func() error { r = h.start(run.ID); return nil }, true, true},
		{"a start", func() error { r.began(); return nil }, false, false},
		{"usage", func() error { r.used(7); return nil }, false, false},
		{"silence", func() error { return h.Silent(t.Context(), r.ref, &since) }, false, false},
		{"a note", func() error { return h.Note(t.Context(), r.ref, "notice", "words") }, false, false},
		{"a stop", func() error {
			_, err := h.Stop(t.Context(), run.ID, tallyman.ReasonStopped, "me")
			return err
		}, true, true},
		{"a last word", func() error {
			r.tell(tallyman.Fact{Kind: tallyman.FactFinal, Outcome: &tallyman.Outcome{Reason: tallyman.Completed}})
			return nil
		}, false, true},
		{"an end", func() error {
			_, err := h.End(t.Context(), r.ref, tallyman.Settlement{Reason: tallyman.Completed})
			return err
		}, true, true},
		{"a slot that is free", func() error { return h.Gone(t.Context(), r.ref, false, nil) }, true, false},
		{"a run that is deleted", func() error { return h.Delete(t.Context(), run.ID, dropNothing) }, true, true},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		for who, want := range map[string]bool{"all": true, "queue": step.queue, "attempts": step.attempts} {
			told := false
			select {
			case <-watchers[who]:
				told = true
			default:
			}
			if told != want {
				t.Errorf("%s: who watches %s was told: %v, want %v", step.what, who, told, want)
			}
		}
	}
}
