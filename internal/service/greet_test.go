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
	_, verdict, err := h.Greet(t.Context(), ref, tallyman.Proof{Key: key}, tallyman.Hello{JournalID: "j"})
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

// In a cluster the first Pod that is recognised works the attempt, and is
// given its key; no other Pod is.
func TestAPodIsGreetedByWhoItIs(t *testing.T) {
	h := newHall(t)
	h.agent("worker", tallyman.AgentSpec{Harness: "exec", Command: []string{"make"}})
	ref := h.admit(h.submit(tallyman.Request{Agent: "worker"}).ID)
	hello := func(p tallyman.Proof, process string) (tallyman.Welcome, tallyman.HelloVerdict) {
		t.Helper()
		w, v, err := h.Greet(t.Context(), ref, p, tallyman.Hello{JournalID: "J", Process: process})
		if err != nil {
			t.Fatal(err)
		}
		return w, v
	}
	first, v := hello(tallyman.Proof{Pod: "pod-1"}, "what it says of itself")
	if v != tallyman.HelloWelcome || first.AttemptKey == "" {
		t.Fatalf("the first Pod: %s, key %q", v, first.AttemptKey)
	}
	a, err := h.CheckKey(t.Context(), ref, first.AttemptKey)
	if err != nil || a.Process != "pod-1" {
		t.Errorf("its key: %v; the attempt is worked by %q", err, a.Process)
	}
	if w, v := hello(tallyman.Proof{Pod: "pod-2"}, "pod-1"); v != tallyman.HelloStale || w.AttemptKey != "" {
		t.Errorf("another Pod: %s, key %q", v, w.AttemptKey)
	}
	if w, v := hello(tallyman.Proof{Key: first.AttemptKey}, "pod-1"); v != tallyman.HelloWelcome || w.AttemptKey != "" || w.Epoch != 2 {
		t.Errorf("again with the key: %s, key %q, epoch %d", v, w.AttemptKey, w.Epoch)
	}
	again, v := hello(tallyman.Proof{Pod: "pod-1"}, "")
	if v != tallyman.HelloWelcome || again.AttemptKey == first.AttemptKey {
		t.Errorf("again with the token: %s", v)
	}
	if _, err := h.CheckKey(t.Context(), ref, first.AttemptKey); tallyman.CodeOf(err) != tallyman.Unauthorized {
		t.Errorf("the key before is still good: %v", err)
	}
}
