package service_test

import (
	"testing"

	"github.com/tallyman-dev/tallyman"
)

// gone is why a spec cannot be made any more.
var gone = &tallyman.Error{Code: tallyman.Invalid, Reason: tallyman.ConfigMissing, Message: "envFrom.host: KEY is not set"}

func TestAnAttemptWhoseSpecCannotBeMadeEndsWithTheReason(t *testing.T) {
	h := newHall(t)
	h.agent("worker", tallyman.AgentSpec{Harness: "exec", Command: []string{"make"}})
	run := h.submit(tallyman.Request{Agent: "worker"})
	ref := h.admit(run.ID)
	key, err := h.NewKey(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	h.backend.noSpec = gone
	_, verdict, err := h.Greet(t.Context(), ref, key, tallyman.Hello{JournalID: "j"})
	if err != nil || verdict != tallyman.HelloFinal {
		t.Errorf("got %s, %v", verdict, err)
	}
	if got := h.run(run.ID); got.State != tallyman.Failed || got.Reason != tallyman.ConfigMissing || got.Message != gone.Message {
		t.Errorf("it ended %s, %s: %s", got.State, got.Reason, got.Message)
	}
}

func TestARunnerAtWorkIsTakenOverThoughItsSpecCannotBeMadeAgain(t *testing.T) {
	h := newHall(t)
	h.agent("worker", tallyman.AgentSpec{Harness: "exec", Command: []string{"make"}})
	run := h.submit(tallyman.Request{Agent: "worker"})
	r := h.start(run.ID)
	r.began()
	h.backend.noSpec = gone
	if w := r.hello(); w.Epoch != 2 {
		t.Errorf("the second hello has epoch %d", w.Epoch)
	}
	if got := h.run(run.ID); got.State != tallyman.Running {
		t.Errorf("it is %s, %s", got.State, got.Reason)
	}
}
