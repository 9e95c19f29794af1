package service_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
)

func TestRetriesFollowThePolicy(t *testing.T) {
	type end struct {
		reason  tallyman.Reason
		started bool
		wait    time.Duration // until the next attempt; 0: none follows
	}
	for name, c := range map[string]struct {
		retry tallyman.Retry
		ends  []end
		state tallyman.State
	}{
		"a success ends it":                 {ends: []end{{tallyman.Completed, true, 0}}, state: tallyman.Succeeded},
		"an agent's failure ends it":        {ends: []end{{tallyman.AgentError, true, 0}}, state: tallyman.Failed},
		"a lost runner is tried once more":  {ends: []end{{tallyman.RunnerLost, true, 2 * time.Second}, {tallyman.RunnerLost, true, 0}}, state: tallyman.Failed},
		"before the start three times more": {ends: []end{{tallyman.BackendError, false, 2 * time.Second}, {tallyman.BackendError, false, 4 * time.Second}, {tallyman.BackendError, false, 8 * time.Second}, {tallyman.BackendError, false, 0}}, state: tallyman.Failed},
		"each class has its own allowance":  {ends: []end{{tallyman.RunnerLost, true, 2 * time.Second}, {tallyman.RateLimited, true, 4 * time.Second}, {tallyman.Completed, true, 0}}, state: tallyman.Succeeded},
		"none at all":                       {retry: tallyman.Retry{Max: ptr(0)}, ends: []end{{tallyman.RunnerLost, false, 0}}, state: tallyman.Failed},
		"what the policy names":             {retry: tallyman.Retry{On: []tallyman.Reason{tallyman.AgentError}, Max: ptr(2), Backoff: tallyman.Duration(time.Minute)}, ends: []end{{tallyman.AgentError, true, time.Minute}, {tallyman.AgentError, true, 2 * time.Minute}, {tallyman.AgentError, true, 0}}, state: tallyman.Failed},
		"the wait has an end":               {retry: tallyman.Retry{Max: ptr(3), Backoff: tallyman.Duration(4 * time.Minute)}, ends: []end{{tallyman.RunnerLost, true, 4 * time.Minute}, {tallyman.RunnerLost, true, 5 * time.Minute}, {tallyman.Completed, true, 0}}, state: tallyman.Succeeded},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHall(t)
			h.agent("worker", tallyman.AgentSpec{Harness: "exec", Command: []string{"make"}, Retry: c.retry})
			run := h.submit(tallyman.Request{Agent: "worker"})
			for i, e := range c.ends {
				r := h.start(run.ID)
				if r.ref.Number != i+1 {
					t.Fatalf("attempt %d is numbered %d", i+1, r.ref.Number)
				}
				if e.started {
					r.began()
				}
				h.later(time.Second)
				got := r.ends(e.reason)
				if e.wait == 0 {
					if got.State != c.state || got.Reason != e.reason || got.NotBefore != nil || got.EndedAt == nil || i != len(c.ends)-1 {
						t.Fatalf("after attempt %d: %+v", i+1, got)
					}
					continue
				}
				if got.State != tallyman.Queued || got.Attempt != i+1 || got.NotBefore == nil || got.NotBefore.Sub(h.now()) != e.wait || got.EndedAt != nil {
					t.Fatalf("after attempt %d: %+v, want another in %s", i+1, got, e.wait)
				}
				h.later(e.wait)
			}
			attempts, err := h.store.Attempts(t.Context(), run.ID)
			if err != nil || len(attempts) != len(c.ends) {
				t.Fatalf("%d attempts: %v", len(attempts), err)
			}
			for i, a := range attempts {
				if a.Reason != c.ends[i].reason || a.EndedAt == nil || !a.Gone {
					t.Errorf("attempt %d is kept as %+v", i+1, a)
				}
				if i > 0 && !a.QueuedAt.Equal(*attempts[i-1].EndedAt) && a.QueuedAt.Before(*attempts[i-1].EndedAt) {
					t.Errorf("attempt %d was queued at %s, before the last one ended", i+1, a.QueuedAt)
				}
			}
			if len(h.ended) != 1 {
				t.Errorf("its end was told %d times", len(h.ended))
			}
		})
	}
}

func TestARunThatWaitsForARetryCanBeStopped(t *testing.T) {
	h := newHall(t)
	r := h.start(h.submit(command()).ID)
	r.ends(tallyman.RunnerLost)
	run, err := h.Stop(t.Context(), r.ref.RunID, tallyman.ReasonStopped, "a test")
	if err != nil || run.State != tallyman.Stopped || run.NotBefore != nil {
		t.Errorf("got %+v, %v", run, err)
	}
	_, err = h.Admit(t.Context(), run, 0, 0, "test")
	code(t, err, tallyman.Conflict)
}

func TestUsageIsSummedOverAttempts(t *testing.T) {
	h := newHall(t)
	one := h.start(h.submit(command()).ID)
	one.began()
	one.used(100)
	one.used(150) // totals of the attempt, not more of the same
	if got := h.run(one.ref.RunID).Usage; got.OutputTokens != 150 || got.Turns != 1 {
		t.Errorf("in the first attempt: %+v", got)
	}
	one.ends(tallyman.RunnerLost)
	two := h.start(one.ref.RunID)
	spec := two.hello().Spec
	if spec.Used.OutputTokens != 150 || spec.LastFailure != "attempt 1 ended with RunnerLost: because" || spec.Attempt != 2 {
		t.Errorf("the second runner is told: used %+v, last failure %q", spec.Used, spec.LastFailure)
	}
	two.began()
	two.used(7)
	if got := h.run(one.ref.RunID).Usage; got.OutputTokens != 157 || got.Turns != 2 {
		t.Errorf("in the second attempt: %+v", got)
	}
	run := two.ends(tallyman.Completed, func(s *tallyman.Settlement) { s.Outcome.Usage = tallyman.Usage{OutputTokens: 9, Turns: 1} })
	if run.Usage.OutputTokens != 159 {
		t.Errorf("at the end: %+v", run.Usage)
	}
}

func TestLateFactsCountAndChangeNoState(t *testing.T) {
	h := newHall(t)
	old := h.start(h.submit(command()).ID)
	old.used(100)
	old.ends(tallyman.RunnerLost)
	check := func(what string, state tallyman.State, tokens int64) {
		t.Helper()
		if got := h.run(old.ref.RunID); got.State != state || got.Attempt > 2 || got.Usage.OutputTokens != tokens {
			t.Errorf("%s: %s in attempt %d, %d tokens; want %s, %d", what, got.State, got.Attempt, got.Usage.OutputTokens, state, tokens)
		}
	}
	old.used(110)
	check("usage while it waits", tallyman.Queued, 110)
	old.began()
	check("a start while it waits", tallyman.Queued, 110)
	now := h.start(old.ref.RunID)
	old.began()
	check("a start of the old attempt", tallyman.Starting, 110)
	old.used(120)
	final := &tallyman.Outcome{Reason: tallyman.Completed, Usage: tallyman.Usage{OutputTokens: 130}}
	answer := old.tell(tallyman.Fact{Kind: tallyman.FactFinal, Outcome: final})
	check("the last word of the old attempt", tallyman.Starting, 130)
	if answer.Stop != nil {
		t.Errorf("it is told to stop: %+v", answer.Stop)
	}
	if a := h.attempt(old.ref); a.Reason != tallyman.RunnerLost || a.FinalCursor != old.cursor || a.Final == nil {
		t.Errorf("the old attempt is kept as %+v", a)
	}
	old.used(1)
	check("usage after the last word", tallyman.Starting, 130)
	now.began()
	now.ends(tallyman.Completed)
	check("the end", tallyman.Succeeded, 130)
	version := h.run(old.ref.RunID).Version
	now.began()
	check("a start after the end", tallyman.Succeeded, 130)
	if got := h.run(old.ref.RunID).Version; got != version {
		t.Errorf("a late fact without news wrote version %d after %d", got, version)
	}
}

func TestUsageThatWaitedForANewConnectionCounts(t *testing.T) {
	h := newHall(t)
	r := h.start(h.submit(command()).ID)
	r.cursor = 50
	r.hello() // which tells of 50
	r.tell(tallyman.Fact{Kind: tallyman.FactUsage, Cursor: 20, Usage: &tallyman.Usage{OutputTokens: 5}})
	if got := h.attempt(r.ref); got.Usage.OutputTokens != 5 || got.LastCursor != 50 {
		t.Errorf("%+v, cursor %d", got.Usage, got.LastCursor)
	}
}

func TestALargeResultIsABlobAndWholeOnRead(t *testing.T) {
	h := newHall(t)
	for name, size := range map[string]int{"none": 0, "as much as a row holds": tallyman.MaxInline, "one byte more": tallyman.MaxInline + 1, "large": 3 << 20} {
		result := strings.Repeat("aü", size/3+1)[:size]
		r := h.start(h.submit(command()).ID)
		r.ends(tallyman.Completed, func(s *tallyman.Settlement) { s.Outcome.Result = result })
		row := h.run(r.ref.RunID)
		if (row.ResultBlob != "") != (size > tallyman.MaxInline) || len(row.Result) > tallyman.MaxInline || !strings.HasPrefix(result, row.Result) {
			t.Errorf("%s: %d bytes are in the row, blob %q", name, len(row.Result), row.ResultBlob)
		}
		if whole, err := h.Whole(t.Context(), row); err != nil || whole.Result != result {
			t.Errorf("%s: %d bytes come back: %v", name, len(whole.Result), err)
		}
	}
}

func TestAnEndIsDecidedOnce(t *testing.T) {
	h := newHall(t)
	r := h.start(h.submit(command()).ID)
	r.began()
	first := r.ends(tallyman.AgentError)
	h.later(time.Hour)
	second, err := h.End(t.Context(), r.ref, tallyman.Settlement{Reason: tallyman.Completed})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("a second verdict has changed it:\n%s", diff)
	}
	timeline, err := h.store.Timeline(t.Context(), r.ref.RunID)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, e := range timeline {
		kinds = append(kinds, e.Kind)
	}
	if want := []string{"queued", "admitted", "started", "ended"}; !slices.Equal(kinds, want) {
		t.Errorf("the timeline is %v, want %v", kinds, want)
	}
}

func TestCapsAreNeverOvershot(t *testing.T) {
	h := newHall(t)
	var runs []tallyman.Run
	for range 30 {
		runs = append(runs, h.submit(command()))
	}
	for _, limit := range []struct{ global, perAgent, taken int }{{5, 0, 5}, {0, 8, 8}, {20, 9, 9}} {
		var all sync.WaitGroup
		for _, run := range runs {
			all.Go(func() {
				if _, err := h.Admit(t.Context(), run, limit.global, limit.perAgent, "test"); err != nil && tallyman.CodeOf(err) != tallyman.Conflict {
					t.Error(err)
				}
			})
		}
		all.Wait()
		load, err := h.store.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if load.Total != limit.taken {
			t.Errorf("under the caps %+v %d slots are taken", limit, load.Total)
		}
	}
	// A slot is free when the processes are gone, not before.
	active, err := h.store.ActiveAttempts(t.Context())
	if err != nil || len(active) == 0 {
		t.Fatal(len(active), err)
	}
	taken := len(active)
	if _, err := h.End(t.Context(), active[0].Attempt.Ref(), tallyman.Settlement{Reason: tallyman.Completed}); err != nil {
		t.Fatal(err)
	}
	next := h.submit(command())
	_, err = h.Admit(t.Context(), next, taken, 0, "test")
	code(t, err, tallyman.Conflict)
	if h.run(next.ID).State != tallyman.Queued {
		t.Error("a run that was not admitted has moved")
	}
	if err := h.Gone(t.Context(), active[0].Attempt.Ref(), false, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Admit(t.Context(), next, taken, 0, "test"); err != nil {
		t.Errorf("after a slot is free: %v", err)
	}
}

func TestWhatHistoryLacksIsOwedUntilItIsDelivered(t *testing.T) {
	h := newHall(t)
	r := h.start(h.submit(command()).ID)
	if _, err := h.End(t.Context(), r.ref, tallyman.Settlement{Reason: tallyman.RunnerLost}); err != nil {
		t.Fatal(err)
	}
	owed := func(want int) {
		t.Helper()
		got, err := h.store.OwedAttempts(t.Context())
		if err != nil || len(got) != want {
			t.Errorf("%d attempts are owed something, want %d: %v", len(got), want, err)
		}
	}
	if err := h.Gone(t.Context(), r.ref, true, nil); err != nil {
		t.Fatal(err)
	}
	owed(1)
	if load, err := h.store.Load(t.Context()); err != nil || load.Total != 0 {
		t.Errorf("the slot is not free: %+v, %v", load, err)
	}
	if err := h.Delivered(t.Context(), r.ref); err != nil {
		t.Fatal(err)
	}
	owed(0)
}

func TestTheCapIsThatOfTheAgentsFileAsItIsNow(t *testing.T) {
	h := newHall(t)
	limited := func(n *int) tallyman.AgentSpec {
		return tallyman.AgentSpec{Harness: "exec", Command: []string{"make"}, Concurrency: tallyman.Concurrency{Max: n}}
	}
	h.agent("worker", limited(ptr(2)))
	run := h.submit(tallyman.Request{Agent: "worker"})
	limit := func() int {
		t.Helper()
		n, err := h.AgentCap(t.Context(), run)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if got := limit(); got != 2 {
		t.Errorf("at submit: %d", got)
	}
	h.agent("worker", limited(ptr(5)))
	if got := limit(); got != 5 {
		t.Errorf("after an edit: %d", got)
	}
	h.agent("worker", limited(nil))
	if got := limit(); got != 0 {
		t.Errorf("without a cap: %d", got)
	}
	delete(h.agents, "worker")
	if got := limit(); got != 2 {
		t.Errorf("without the file: %d", got)
	}
}

func TestAKeyOpensItsOwnAttemptOnly(t *testing.T) {
	h := newHall(t)
	one, two := h.start(h.submit(command()).ID), h.start(h.submit(command()).ID)
	if a, err := h.CheckKey(t.Context(), one.ref, one.key); err != nil || a.Ref() != one.ref {
		t.Errorf("its own: %v", err)
	}
	messages := map[string]bool{}
	fresh := tallyman.AttemptRef{RunID: h.submit(command()).ID, Number: 1}
	h.admit(fresh.RunID) // an attempt that has no key yet
	for name, c := range map[string]struct {
		ref tallyman.AttemptRef
		key string
	}{
		"another's": {one.ref, two.key}, "none": {one.ref, ""}, "a part of it": {one.ref, one.key[1:]},
		"an attempt that is not": {tallyman.AttemptRef{RunID: one.ref.RunID, Number: 9}, one.key},
		"an attempt without one": {fresh, ""},
	} {
		_, err := h.CheckKey(t.Context(), c.ref, c.key)
		e := code(t, err, tallyman.Unauthorized)
		messages[strings.ReplaceAll(e.Message, c.ref.String(), "ATTEMPT")] = true
		if _, _, err := h.Greet(t.Context(), c.ref, tallyman.Proof{Key: c.key}, tallyman.Hello{JournalID: "J"}); tallyman.CodeOf(err) != tallyman.Unauthorized {
			t.Errorf("%s: hello says %v", name, err)
		}
	}
	if len(messages) != 1 {
		t.Errorf("who is unknown can be told from who is wrong: %v", messages)
	}
	old := one.key
	if _, err := h.NewKey(t.Context(), one.ref); err != nil {
		t.Fatal(err)
	}
	if _, err := h.CheckKey(t.Context(), one.ref, old); tallyman.CodeOf(err) != tallyman.Unauthorized {
		t.Errorf("a key that was replaced: %v", err)
	}
}

func TestAKeyIsGoodForADayAfterTheEnd(t *testing.T) {
	h := newHall(t)
	r := h.start(h.submit(command()).ID)
	h.later(100 * time.Hour) // a long attempt
	r.began()
	r.ends(tallyman.Completed)
	h.later(24 * time.Hour)
	if _, err := h.CheckKey(t.Context(), r.ref, r.key); err != nil {
		t.Errorf("after a day: %v", err)
	}
	h.later(time.Second)
	if _, err := h.CheckKey(t.Context(), r.ref, r.key); tallyman.CodeOf(err) != tallyman.Unauthorized {
		t.Errorf("later: %v", err)
	}
}

func TestTheSilenceOfARunnerIsShownWhileItLasts(t *testing.T) {
	h := newHall(t)
	r := h.start(h.submit(command()).ID)
	since := h.now()
	if err := h.Silent(t.Context(), r.ref, &since); err != nil {
		t.Fatal(err)
	}
	if a := h.attempt(r.ref); a.LastContact == nil || !a.LastContact.Equal(since) {
		t.Errorf("last contact: %v, want %v", a.LastContact, since)
	}
	if err := h.Silent(t.Context(), r.ref, nil); err != nil {
		t.Fatal(err)
	}
	if a := h.attempt(r.ref); a.LastContact != nil {
		t.Errorf("last contact: %v, though it is heard of", a.LastContact)
	}
	entries, err := h.store.Timeline(t.Context(), r.ref.RunID)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, e := range entries {
		kinds = append(kinds, e.Kind)
	}
	if got := strings.Join(kinds, ", "); !strings.HasSuffix(got, "contact lost, contact back") {
		t.Errorf("the timeline is %s", got)
	}
}

func TestAnArtifactIsHeldAgainstItsSchema(t *testing.T) {
	h := newHall(t)
	h.agent("worker", tallyman.AgentSpec{Harness: "exec", Command: []string{"make"}, Outputs: []tallyman.Output{
		{Path: "out/*.json", Schema: raw(`{"type":"object","required":["score"]}`)},
	}})
	r := h.start(h.submit(tallyman.Request{Agent: "worker"}).ID)
	keep := func(name, text string) error {
		t.Helper()
		digest, size, err := h.blobs.Put(t.Context(), strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return h.Artifact(t.Context(), tallyman.Artifact{RunID: r.ref.RunID, Attempt: 1, Name: name, Digest: digest, Size: size, At: h.now()})
	}
	for name, c := range map[string]struct{ file, text string }{
		"as it should be": {"out/a.json", `{"score":1}`}, "of another pattern": {"notes.md", "hello"},
	} {
		if err := keep(c.file, c.text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{"a field is missing": `{}`, "no JSON": `score`, "nothing": ``} {
		var e *tallyman.Error
		if err := keep("out/bad.json", text); !errors.As(err, &e) || e.Code != tallyman.Invalid || e.Reason != tallyman.OutputInvalid || !strings.Contains(e.Message, "out/*.json") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// It is kept all the same, so that one can see what is wrong.
	list, err := h.store.Artifacts(t.Context(), r.ref.RunID)
	if err != nil || len(list) != 3 {
		t.Errorf("%d artifacts are kept: %v", len(list), err)
	}
	if err := h.Artifact(t.Context(), tallyman.Artifact{RunID: r.ref.RunID, Attempt: 1, Name: "out/large.json", Digest: "sha256:" + strings.Repeat("0", 64), Size: 1 << 30}); tallyman.CodeOf(err) != tallyman.Invalid {
		t.Errorf("a file that is too large to be checked: %v", err)
	}
}

func TestALargeResultIsNeverInAnAttemptsRow(t *testing.T) {
	h := newHall(t)
	result := strings.Repeat("aü", 1<<20)
	r := h.start(h.submit(command()).ID)
	r.began()
	r.tell(tallyman.Fact{Kind: tallyman.FactFinal, Outcome: &tallyman.Outcome{Reason: tallyman.Completed, Result: result}})
	final := h.attempt(r.ref).Final
	if len(final.Result) > tallyman.MaxInline || final.ResultBlob == "" {
		t.Fatalf("%d bytes are in the attempt's row, blob %q", len(final.Result), final.ResultBlob)
	}
	if _, err := h.End(t.Context(), r.ref, tallyman.Settlement{Reason: final.Reason, Outcome: *final, FinalCursor: r.cursor}); err != nil {
		t.Fatal(err)
	}
	if whole, err := h.Whole(t.Context(), h.run(r.ref.RunID)); err != nil || whole.Result != result {
		t.Errorf("%d bytes come back: %v", len(whole.Result), err)
	}
}

// Who looks again and again writes only what is news: here what was read is
// held against, so that a write would show.
func TestWhatHoldsARunBackIsWrittenOnce(t *testing.T) {
	h := newFaultHouse(t)
	h.t = t
	s := h.newScene()
	s.queued()
	s.must(s.wait())
	seen := s.now()
	s.must(s.service.Wait(s.ctx(), seen, nil))
	if s.now().Waiting != nil {
		t.Fatal("it still waits")
	}
	s.must(s.service.Wait(s.ctx(), seen, &tallyman.Waiting{Reason: tallyman.GlobalCap, Detail: "full", Position: 3}))
	if w := s.now().Waiting; w != nil {
		t.Errorf("what was known already was written: %+v", w)
	}
	s.must(s.service.Wait(s.ctx(), seen, &tallyman.Waiting{Reason: tallyman.GlobalCap, Detail: "fuller"}))
	if w := s.now().Waiting; w == nil || w.Detail != "fuller" {
		t.Errorf("news were not written: %+v", w)
	}
}
