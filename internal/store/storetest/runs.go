package storetest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/store"
)

// fullRun is a run with every field set.
func fullRun(n int) tallyman.Run {
	return newRun(n, func(r *tallyman.Run) {
		r.Model, r.State, r.Reason, r.Message = "large", tallyman.Failed, tallyman.OOMKilled, "out of memory, 2 GiB"
		r.Attempt, r.ExitCode, r.Result, r.OOMKills = 3, ptr(137), "half a result", 2
		r.Usage = tallyman.Usage{InputTokens: 1, OutputTokens: 2, CacheReadTokens: 3, CacheWriteTokens: 1 << 40,
			CostUSD: 0.12345678901, CostSource: tallyman.CostHarness, Turns: 5}
		r.Waiting = &tallyman.Waiting{Reason: tallyman.Backoff, Detail: "until later"}
		r.Labels = map[string]string{"team": "a/b", "empty": "", "ünï": "cödé \" ' \\"}
		r.Key, r.Source, r.Parent, r.Priority = "k", tallyman.SourceKafka, id(0), -7
		r.StartedAt, r.EndedAt = ptr(epoch.Add(time.Minute)), ptr(epoch.Add(time.Hour))
		r.StopRequestedAt, r.NotBefore = ptr(epoch.Add(time.Microsecond)), ptr(epoch.Add(-time.Hour))
		r.Limits = tallyman.Limits{Deadline: ptr(tallyman.Duration(time.Hour)), MaxTurns: ptr(0), BudgetUSD: ptr(1.5), MaxTokens: ptr(int64(9))}
		r.StopReason, r.ResultBlob, r.Version = tallyman.Superseded, "sha256:00", 4
	})
}

func runRoundTrip(t *testing.T, s *store.Store) {
	want := fullRun(1)
	insert(t, s, want)
	same(t, get(t, s, want.ID), want)
	mustTx(t, s, func(tx *store.Tx) error {
		got, err := tx.Run(want.ID)
		same(t, got, want)
		return err
	})
}

func emptyRun(t *testing.T, s *store.Store) {
	want := tallyman.Run{ID: id(1), CreatedAt: time.Unix(0, 0).UTC()}
	insert(t, s, want)
	got := get(t, s, want.ID)
	if got.Labels == nil {
		t.Error("labels are nil, want an empty map")
	}
	same(t, got, want)
}

func detailRoundTrip(t *testing.T, s *store.Store) {
	for n, want := range []store.Detail{
		{},
		{Spec: []byte(`{"harness":"exec"}`), Request: []byte("{\"x\":\"\\u0000\"}"), Prompt: "a\x00b\xff\xed\xa0\x80é", PromptSize: 10},
		{PromptBlob: "sha256:00", PromptSize: 1 << 33},
	} {
		r := newRun(n)
		mustTx(t, s, func(tx *store.Tx) error { return tx.InsertRun(r, want) })
		got, err := s.Detail(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, want)
	}
}

func putRun(t *testing.T, s *store.Store) {
	insert(t, s, newRun(1))
	want := fullRun(1)
	want.Version = 1
	born := newRun(1)
	mustTx(t, s, func(tx *store.Tx) error { return tx.PutRun(want, 0) })
	want.Labels, want.Key, want.Source, want.Parent, want.Limits = born.Labels, born.Key, born.Source, born.Parent, born.Limits
	same(t, get(t, s, want.ID), want)

	// Everything that may be missing goes missing again.
	again := newRun(1, func(r *tallyman.Run) { r.Version = 2 })
	mustTx(t, s, func(tx *store.Tx) error { return tx.PutRun(again, 1) })
	same(t, get(t, s, want.ID), again)
}

func putRunConflict(t *testing.T, s *store.Store) {
	insert(t, s, newRun(1))
	write := func(next, was int64) error {
		return s.InTx(t.Context(), func(tx *store.Tx) error {
			return tx.PutRun(newRun(1, func(r *tallyman.Run) { r.Version = next }), was)
		})
	}
	if err := write(1, 0); err != nil {
		t.Fatal(err)
	}
	wantCode(t, write(1, 0), tallyman.Conflict)
	wantCode(t, write(3, 2), tallyman.Conflict)
	wantCode(t, write(5, 1), tallyman.Internal)
	if got := get(t, s, id(1)).Version; got != 1 {
		t.Errorf("version is %d after refused writes, want 1", got)
	}
}

func insertTwice(t *testing.T, s *store.Store) {
	insert(t, s, newRun(1))
	err := s.InTx(t.Context(), func(tx *store.Tx) error { return tx.InsertRun(newRun(1), store.Detail{}) })
	wantCode(t, err, tallyman.Conflict)

	mustTx(t, s, func(tx *store.Tx) error { return tx.InsertAttempt(newAttempt(id(1), 1)) })
	err = s.InTx(t.Context(), func(tx *store.Tx) error { return tx.InsertAttempt(newAttempt(id(1), 1)) })
	wantCode(t, err, tallyman.Conflict)
}

func deleteRun(t *testing.T, s *store.Store) {
	r := newRun(1, func(r *tallyman.Run) { r.Labels = map[string]string{"a": "b"} })
	insert(t, s, r, newRun(2))
	key := store.KeyRow{Scope: store.KeyScope("default", tallyman.SourceCLI), Key: "k", RunID: r.ID, At: epoch}
	mustTx(t, s, func(tx *store.Tx) error {
		for _, err := range []error{
			tx.InsertAttempt(newAttempt(r.ID, 1)),
			tx.Timeline(r.ID, tallyman.TimelineEntry{At: epoch, Kind: "x"}),
			tx.PutArtifact(tallyman.Artifact{RunID: r.ID, Attempt: 1, Name: "f", At: epoch}),
			tx.PutKey(key),
		} {
			if err != nil {
				return err
			}
		}
		return tx.DeleteRun(r.ID)
	})
	ctx := t.Context()
	_, err := s.Run(ctx, r.ID)
	wantCode(t, err, tallyman.NotFound)
	_, err = s.Detail(ctx, r.ID)
	wantCode(t, err, tallyman.NotFound)
	if got, err := s.Attempts(ctx, r.ID); err != nil || len(got) != 0 {
		t.Errorf("attempts after delete: %v, %v", got, err)
	}
	if got, err := s.Timeline(ctx, r.ID); err != nil || len(got) != 0 {
		t.Errorf("timeline after delete: %v, %v", got, err)
	}
	if got, err := s.Artifacts(ctx, r.ID); err != nil || len(got) != 0 {
		t.Errorf("artifacts after delete: %v, %v", got, err)
	}
	if got, err := s.ActiveAttempts(ctx); err != nil || len(got) != 0 {
		t.Errorf("active attempts after delete: %v, %v", got, err)
	}
	got, err := s.KeyRun(ctx, key.Scope, "k")
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, key)
	same(t, listIDs(t, s, store.Filter{Labels: r.Labels}), []string(nil))
	same(t, listIDs(t, s, store.Filter{}), []string{id(2)})
}

func endedBefore(t *testing.T, s *store.Store) {
	for n := range 5 {
		insert(t, s, newRun(n, func(r *tallyman.Run) {
			r.State, r.EndedAt = tallyman.Succeeded, ptr(epoch.Add(time.Duration(-n)*time.Hour))
		}))
	}
	insert(t, s, newRun(9))
	mustTx(t, s, func(tx *store.Tx) error {
		if err := tx.InsertAttempt(newAttempt(id(4), 1)); err != nil { // its processes may live
			return err
		}
		if err := tx.InsertAttempt(newAttempt(id(3), 1, func(a *tallyman.Attempt) { a.Gone = true })); err != nil {
			return err
		}
		got, err := tx.RunIDsEndedBefore(epoch, 10)
		same(t, got, []string{id(3), id(2), id(1)})
		if err != nil {
			return err
		}
		got, err = tx.RunIDsEndedBefore(epoch, 1)
		same(t, got, []string{id(3)})
		return err
	})
}

func findRun(t *testing.T, s *store.Store) {
	named := func(name string) func(*tallyman.Run) { return func(r *tallyman.Run) { r.Name = name } }
	with := func(id, name string) tallyman.Run {
		return newRun(1, named(name), func(r *tallyman.Run) { r.ID = id })
	}
	insert(t, s,
		with("01AAAAAA00000000000000BBBB", "one"),
		with("01AAAAAA11111111111111CCCC", "two"),
		with("01BBBBBB22222222222222CCCC", "twelve"),
		with("01CCCCCC333333333333333333", "same"),
		newRun(2, named("same")),
		newRun(3, named("elsewhere"), func(r *tallyman.Run) { r.Namespace = "other" }),
	)
	for ask, want := range map[string]string{
		"01AAAAAA00000000000000BBBB": "01AAAAAA00000000000000BBBB",
		"01aaaaaa00000000000000bbbb": "01AAAAAA00000000000000BBBB",
		"two":                        "01AAAAAA11111111111111CCCC",
		"same":                       id(2), // the newest
		"01BBBB":                     "01BBBBBB22222222222222CCCC",
		"01aaaaaa1":                  "01AAAAAA11111111111111CCCC",
		"22CCCC":                     "01BBBBBB22222222222222CCCC",
		"00bbbb":                     "01AAAAAA00000000000000BBBB",
		"elsewhere":                  id(3),
		"other/elsewhere":            id(3),
		"default/two":                "01AAAAAA11111111111111CCCC",
	} {
		if got := get(t, s, ask); got.ID != want {
			t.Errorf("Run(%q) is %s, want %s", ask, got.ID, want)
		}
	}
	for ask, want := range map[string]tallyman.Code{
		"": tallyman.NotFound, "nobody": tallyman.NotFound, "01BBB": tallyman.NotFound, "2CCCC": tallyman.NotFound,
		"default/elsewhere": tallyman.NotFound, "other/two": tallyman.NotFound, "other/": tallyman.NotFound, "/two": tallyman.NotFound, "01AAA%": tallyman.NotFound, "a\x00b\xff": tallyman.NotFound, "01AAAAAA00000000000000BBBBX": tallyman.NotFound,
		"01AAAAAA": tallyman.Conflict,
	} {
		_, err := s.Run(t.Context(), ask)
		if tallyman.CodeOf(err) != want {
			t.Errorf("Run(%q): %v, want code %s", ask, err, want)
		}
	}
	_, err := s.Run(t.Context(), "01AAAAAA")
	for _, candidate := range []string{"01AAAAAA00000000000000BBBB", "01AAAAAA11111111111111CCCC"} {
		if err == nil || !strings.Contains(err.Error(), candidate) {
			t.Errorf("error %v does not name %s", err, candidate)
		}
	}
	for n := 100; n < 120; n++ {
		insert(t, s, newRun(n))
	}
	_, err = s.Run(t.Context(), id(100)[:20])
	wantCode(t, err, tallyman.Conflict)
	if n := strings.Count(err.Error(), "01HZX"); n > 6 { // five, and what was asked for
		t.Errorf("an error names %d candidates", n)
	}
}

func badText(t *testing.T, s *store.Store) {
	const bad, good = "a\x00b\xff\xed\xa0\x80z", "a\uFFFDb\uFFFDz"
	r := newRun(1, func(r *tallyman.Run) {
		r.Name, r.Model, r.Message, r.Result, r.Key = bad, bad, bad, bad, bad
		r.Waiting = &tallyman.Waiting{Reason: tallyman.Quota, Detail: bad}
		r.Labels = map[string]string{bad: bad}
	})
	a := newAttempt(r.ID, 1, func(a *tallyman.Attempt) {
		a.Message, a.StderrTail, a.OutputTail, a.Signal, a.Process = bad, bad, bad, bad, bad
	})
	entry := tallyman.TimelineEntry{At: epoch, Kind: "x", Message: bad, Data: json.RawMessage(`"\u0000"`)}
	mustTx(t, s, func(tx *store.Tx) error {
		for _, err := range []error{
			tx.InsertRun(r, store.Detail{Prompt: bad}), tx.InsertAttempt(a), tx.Timeline(r.ID, entry),
			tx.PutArtifact(tallyman.Artifact{RunID: r.ID, Name: bad, At: epoch}),
			tx.PutKey(store.KeyRow{Scope: "s", Key: bad, RunID: r.ID, At: epoch}),
			tx.SetSetting("x", bad),
		} {
			if err != nil {
				return err
			}
		}
		return nil
	})
	got := get(t, s, r.ID)
	for what, text := range map[string]string{"name": got.Name, "model": got.Model, "message": got.Message, "result": got.Result,
		"key": got.Key, "waiting": got.Waiting.Detail} {
		if text != good {
			t.Errorf("%s is %q, want %q", what, text, good)
		}
	}
	gotAttempt, err := s.Attempt(t.Context(), a.Ref())
	if err != nil || gotAttempt.Message != good || gotAttempt.StderrTail != good || gotAttempt.OutputTail != good {
		t.Errorf("attempt is %+v, %v", gotAttempt, err)
	}
	lines, err := s.Timeline(t.Context(), r.ID)
	entry.Message = good
	if err != nil {
		t.Error(err)
	}
	same(t, lines, []tallyman.TimelineEntry{entry})
	if _, err := s.KeyRun(t.Context(), "s", bad); err != nil {
		t.Errorf("the key is not found by what it was given as: %v", err)
	}
	same(t, listIDs(t, s, store.Filter{Text: bad}), []string{r.ID})
	same(t, listIDs(t, s, store.Filter{Labels: map[string]string{bad: bad}}), []string{r.ID})
}

func notFound(t *testing.T, s *store.Store) {
	ctx := t.Context()
	_, err := s.Detail(ctx, id(1))
	wantCode(t, err, tallyman.NotFound)
	_, err = s.Attempt(ctx, tallyman.AttemptRef{RunID: id(1), Number: 1})
	wantCode(t, err, tallyman.NotFound)
	_, err = s.KeyRun(ctx, "default/cli", "k")
	wantCode(t, err, tallyman.NotFound)
	for what, fn := range map[string]func(*store.Tx) error{
		"run":        func(tx *store.Tx) error { _, err := tx.Run(id(1)); return err },
		"attempt":    func(tx *store.Tx) error { _, err := tx.Attempt(newAttempt(id(1), 1).Ref()); return err },
		"key":        func(tx *store.Tx) error { _, err := tx.Key("default/cli", "k"); return err },
		"put":        func(tx *store.Tx) error { return tx.PutRun(newRun(1, func(r *tallyman.Run) { r.Version = 1 }), 0) },
		"putAttempt": func(tx *store.Tx) error { return tx.PutAttempt(newAttempt(id(1), 1)) },
		"delete":     func(tx *store.Tx) error { return tx.DeleteRun(id(1)) },
	} {
		if err := s.InTx(ctx, fn); tallyman.CodeOf(err) != tallyman.NotFound {
			t.Errorf("%s of what is not there: %v", what, err)
		}
	}
}

func orphans(t *testing.T, s *store.Store) {
	for what, fn := range map[string]func(*store.Tx) error{
		"attempt":  func(tx *store.Tx) error { return tx.InsertAttempt(newAttempt(id(1), 1)) },
		"timeline": func(tx *store.Tx) error { return tx.Timeline(id(1), tallyman.TimelineEntry{At: epoch}) },
		"artifact": func(tx *store.Tx) error { return tx.PutArtifact(tallyman.Artifact{RunID: id(1), At: epoch}) },
	} {
		if err := s.InTx(t.Context(), fn); err == nil {
			t.Errorf("%s of a run that is not was taken", what)
		}
	}
}
