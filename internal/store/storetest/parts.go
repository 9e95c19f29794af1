package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/store"
)

func attemptRoundTrip(t *testing.T, s *store.Store) {
	insert(t, s, newRun(1))
	full := tallyman.Attempt{
		RunID: id(1), Number: 1, Reason: tallyman.AgentError, Message: "it said no", ExitCode: ptr(-1), Signal: "killed",
		Usage: tallyman.Usage{InputTokens: 9, CostUSD: 1e-9, CostSource: tallyman.CostUnknown, Turns: 1}, OOMKills: 1,
		Backend: "local", Process: "4711", QueuedAt: epoch, AdmittedAt: epoch.Add(1 * time.Second), StartedAt: ptr(epoch.Add(2 * time.Second)),
		FirstAt: ptr(epoch.Add(3 * time.Second)), EndedAt: ptr(epoch.Add(4 * time.Second)), LastContact: ptr(epoch.Add(5 * time.Second)),
		StderrTail: "e\n", OutputTail: "o\n", Journal: "j1", LastCursor: 1 << 40, FinalCursor: 1<<40 + 1,
		Epoch: 3, KeyHash: []byte{0, 1, 255}, Gone: true, Owed: true,
		Final: &tallyman.Outcome{Reason: tallyman.AgentError, ExitCode: ptr(1), Result: "r\x00", Structured: json.RawMessage(`{"a":1}`), Started: true},
	}
	empty := newAttempt(id(1), 2)
	mustTx(t, s, func(tx *store.Tx) error {
		if err := tx.InsertAttempt(empty); err != nil {
			return err
		}
		return tx.InsertAttempt(full)
	})
	got, err := s.Attempts(t.Context(), id(1))
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, []tallyman.Attempt{full, empty})

	full.Number = 2
	mustTx(t, s, func(tx *store.Tx) error {
		if err := tx.PutAttempt(full); err != nil {
			return err
		}
		got, err := tx.Attempt(full.Ref())
		same(t, got, full)
		return err
	})
	empty.Number = 1
	mustTx(t, s, func(tx *store.Tx) error {
		if err := tx.PutAttempt(empty); err != nil {
			return err
		}
		got, err := tx.Attempts(id(1))
		same(t, got, []tallyman.Attempt{empty, full})
		return err
	})
	one, err := s.Attempt(t.Context(), full.Ref())
	if err != nil {
		t.Fatal(err)
	}
	same(t, one, full)
}

func activeAttempts(t *testing.T, s *store.Store) {
	gone := func(a *tallyman.Attempt) { a.Gone = true }
	ended := func(a *tallyman.Attempt) { a.EndedAt = ptr(epoch) } // ended, its processes may live
	insert(t, s, newRun(1), newRun(2), newRun(3, func(r *tallyman.Run) { r.Agent = "b"; r.Namespace = "other" }), newRun(4))
	mustTx(t, s, func(tx *store.Tx) error {
		for _, a := range []tallyman.Attempt{newAttempt(id(2), 1, gone), newAttempt(id(2), 2), newAttempt(id(1), 1, ended),
			newAttempt(id(3), 1), newAttempt(id(4), 1, gone)} {
			if err := tx.InsertAttempt(a); err != nil {
				return err
			}
		}
		return nil
	})
	check := func(want ...tallyman.Active) {
		t.Helper()
		got, err := s.ActiveAttempts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, want)
	}
	r3 := get(t, s, id(3))
	check(tallyman.Active{Run: newRun(1), Attempt: newAttempt(id(1), 1, ended)},
		tallyman.Active{Run: newRun(2), Attempt: newAttempt(id(2), 2)}, tallyman.Active{Run: r3, Attempt: newAttempt(id(3), 1)})
	want := store.Load{Total: 3, ByAgent: map[string]int{tallyman.AgentKey("default", "demo"): 2, tallyman.AgentKey("other", "b"): 1}}
	load, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	same(t, load, want)

	mustTx(t, s, func(tx *store.Tx) error {
		if err := tx.PutAttempt(newAttempt(id(1), 1, gone)); err != nil {
			return err
		}
		load, err := tx.Load()
		same(t, load, store.Load{Total: 2, ByAgent: map[string]int{"default/demo": 1, "other/b": 1}})
		return err
	})
	check(tallyman.Active{Run: newRun(2), Attempt: newAttempt(id(2), 2)}, tallyman.Active{Run: r3, Attempt: newAttempt(id(3), 1)})
}

func owedAttempts(t *testing.T, s *store.Store) {
	owed := newAttempt(id(2), 1, func(a *tallyman.Attempt) { a.Gone, a.Owed = true, true })
	insert(t, s, newRun(1), newRun(2))
	mustTx(t, s, func(tx *store.Tx) error {
		return errors.Join(tx.InsertAttempt(owed), tx.InsertAttempt(newAttempt(id(1), 1)), tx.InsertAttempt(newAttempt(id(2), 2)))
	})
	check := func(want ...tallyman.Attempt) {
		t.Helper()
		got, err := s.OwedAttempts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, want)
	}
	check(owed)
	mustTx(t, s, func(tx *store.Tx) error {
		owed.Owed = false
		return tx.PutAttempt(owed)
	})
	check()
}

func timeline(t *testing.T, s *store.Store) {
	insert(t, s, newRun(1), newRun(2))
	var want []tallyman.TimelineEntry
	for n := range 12 {
		// The times go backwards: the order is that of writing.
		e := tallyman.TimelineEntry{At: epoch.Add(time.Duration(-n) * time.Second), Attempt: n, Kind: "k", Message: fmt.Sprint(n)}
		if n%2 == 0 {
			e.Data = json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))
		}
		want = append(want, e)
		mustTx(t, s, func(tx *store.Tx) error {
			if err := tx.Timeline(id(2), tallyman.TimelineEntry{At: epoch, Kind: "else"}); err != nil {
				return err
			}
			return tx.Timeline(id(1), e)
		})
	}
	got, err := s.Timeline(t.Context(), id(1))
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, want)
}

func artifacts(t *testing.T, s *store.Store) {
	insert(t, s, newRun(1))
	a := tallyman.Artifact{RunID: id(1), Attempt: 1, Name: "out/ü.json", Size: 3, Digest: "sha256:aa", At: epoch}
	b, c := a, a
	b.Name, c.Attempt = "a", 2
	replaced := a
	replaced.Size, replaced.Digest, replaced.At = 4, "sha256:bb", epoch.Add(time.Second)
	mustTx(t, s, func(tx *store.Tx) error {
		for _, x := range []tallyman.Artifact{c, a, b, replaced} {
			if err := tx.PutArtifact(x); err != nil {
				return err
			}
		}
		return nil
	})
	got, err := s.Artifacts(t.Context(), id(1))
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, []tallyman.Artifact{b, replaced, c})
}

func blobInUse(t *testing.T, s *store.Store) {
	mustTx(t, s, func(tx *store.Tx) error {
		r := newRun(1, func(r *tallyman.Run) { r.ResultBlob = "sha256:result" })
		if err := tx.InsertRun(r, store.Detail{PromptBlob: "sha256:prompt"}); err != nil {
			return err
		}
		if err := tx.InsertRun(newRun(2), store.Detail{}); err != nil { // without any
			return err
		}
		return tx.PutArtifact(tallyman.Artifact{RunID: r.ID, Attempt: 1, Name: "f", Digest: "sha256:file", At: epoch})
	})
	for digest, want := range map[string]bool{"sha256:result": true, "sha256:prompt": true, "sha256:file": true, "sha256:none": false, "": false} {
		if got, err := s.BlobInUse(t.Context(), digest); err != nil || got != want {
			t.Errorf("BlobInUse(%q) is %v, %v, want %v", digest, got, err, want)
		}
	}
}

func keys(t *testing.T, s *store.Store) {
	k := store.KeyRow{Scope: store.KeyScope("default", tallyman.SourceAPI), Key: "k", Digest: "d", RunID: id(1), At: epoch}
	write := func(k store.KeyRow) error {
		return s.InTx(t.Context(), func(tx *store.Tx) error { return tx.PutKey(k) })
	}
	read := func(want store.KeyRow) {
		t.Helper()
		got, err := s.KeyRun(t.Context(), want.Scope, want.Key)
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, want)
	}
	if err := write(k); err != nil {
		t.Fatal(err)
	}
	read(k)
	other := k
	other.Scope = store.KeyScope("default", tallyman.SourceKafka)
	if err := write(other); err != nil {
		t.Errorf("the same key in another scope: %v", err)
	}
	if a, b, c := store.KeyScope("default", tallyman.SourceAPI), store.KeyScope("default", tallyman.SourceCLI), store.KeyScope("default", tallyman.SourceWeb); a != b || b != c {
		t.Errorf("one caller's ways have keys of their own: %s, %s, %s", a, b, c)
	}
	taken := k
	taken.RunID = id(2)
	wantCode(t, write(taken), tallyman.Conflict)
	read(k)
	k.LastJSON, k.At = []byte(`{"id":"x"}`), epoch.Add(time.Hour)
	if err := write(k); err != nil {
		t.Errorf("what the run last was: %v", err)
	}
	read(k)
	mustTx(t, s, func(tx *store.Tx) error {
		n, err := tx.PruneKeys(epoch.Add(time.Minute))
		if n != 1 {
			t.Errorf("%d keys pruned, want 1", n)
		}
		return err
	})
	read(k)
	_, err := s.KeyRun(t.Context(), other.Scope, "k")
	wantCode(t, err, tallyman.NotFound)
}

func settings(t *testing.T, s *store.Store) {
	for _, want := range []string{"", "a", "b"} {
		mustTx(t, s, func(tx *store.Tx) error {
			if want != "" {
				if err := tx.SetSetting("server-id", want); err != nil {
					return err
				}
			}
			got, err := tx.Setting("server-id")
			if got != want {
				t.Errorf("setting is %q, want %q", got, want)
			}
			return err
		})
	}
}
