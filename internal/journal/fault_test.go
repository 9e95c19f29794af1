package journal_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tallyman-dev/tallyman/internal/journal"
)

// failNth fails the nth call of one of its operations, once.
func failNth(nth int64, with error, ops ...string) (fault func(string) error, hit *atomic.Bool) {
	var calls atomic.Int64
	hit = new(atomic.Bool)
	return func(op string) error {
		if slices.Contains(ops, op) && calls.Add(1) == nth {
			hit.Store(true)
			return with
		}
		return nil
	}, hit
}

func TestTheFirstDiskErrorPoisonsForEver(t *testing.T) {
	for name, tt := range map[string]struct {
		err error
		ops []string
	}{
		"no space for a write":  {syscall.ENOSPC, []string{"write"}},
		"a sync that fails":     {syscall.EIO, []string{"sync"}},
		"a folder that fails":   {syscall.EIO, []string{"syncdir"}},
		"no space for segments": {syscall.ENOSPC, []string{"create", "rename"}},
	} {
		t.Run(name, func(t *testing.T) {
			for nth := int64(1); ; nth++ {
				if !failAt(t, nth, tt.err, tt.ops) {
					if nth < 5 {
						t.Errorf("only %d calls", nth-1)
					}
					return
				}
			}
		})
	}
}

// failAt runs a journal whose nth operation fails, and reports whether there
// was an nth.
func failAt(t *testing.T, nth int64, with error, ops []string) bool {
	t.Helper()
	fault, hit := failNth(nth, with, ops...)
	dir := t.TempDir()
	w, err := journal.Create(dir, header, journal.Options{SegmentBytes: 100, Fault: fault})
	if err != nil {
		if !hit.Load() || !errors.Is(err, with) {
			t.Fatalf("call %d: Create: %v", nth, err)
		}
		return true
	}
	var acked []string
	for i := range 8 {
		rec := fmt.Sprintf("record %d", i)
		if _, err = w.Append([]byte(rec)); err != nil {
			break
		}
		acked = append(acked, rec)
	}
	if !hit.Load() {
		if err != nil {
			t.Fatalf("call %d: %v", nth, err)
		}
		w.Close()
		return false
	}
	if !errors.Is(err, with) {
		t.Fatalf("call %d: Append: %v", nth, err)
	}
	<-w.Changed()
	if _, err := w.Add([]byte("x")); !errors.Is(err, with) {
		t.Errorf("call %d: Add afterwards: %v", nth, err)
	}
	if err := w.Wait(t.Context(), 1000); !errors.Is(err, with) {
		t.Errorf("call %d: Wait afterwards: %v", nth, err)
	}
	if got := w.Durable(); got != uint64(len(acked)) {
		t.Errorf("call %d: durable is %d, acknowledged %d", nth, got, len(acked))
	}
	if err := w.Close(); !errors.Is(err, with) || !errors.Is(w.Err(), with) {
		t.Errorf("call %d: Close: %v, Err: %v", nth, err, w.Err())
	}
	recs, err := readAll(dir)
	if err != nil || len(recs) < len(acked) || !slices.Equal(recs[:len(acked)], acked) {
		t.Errorf("call %d: read %d of %d records, %v", nth, len(recs), len(acked), err)
	}
	appendAll(t, recoverIn(t, dir, journal.Options{}), "afterwards")
	return true
}

func TestARecoveryThatFailsCanBeRepeated(t *testing.T) {
	dir := t.TempDir()
	recs := words(5)
	path := journalOf(t, dir, one(recs...)...)
	write(t, path, append(read(t, path), "half a record"[:5]...))
	for nth := int64(1); ; nth++ {
		fault, hit := failNth(nth, syscall.EIO, "truncate", "write", "sync", "syncdir")
		w, _, err := journal.Recover(dir, journal.Options{Fault: fault})
		if !hit.Load() {
			if err != nil {
				t.Fatal(err)
			}
			w.Close()
			break
		}
		if !errors.Is(err, syscall.EIO) {
			t.Fatalf("call %d: %v", nth, err)
		}
		wantRecords(t, dir, recs...)
	}
}

// What must be durable before what.
func TestTheOrderOfDiskOperations(t *testing.T) {
	var ops []string
	o := journal.Options{SegmentBytes: 100, Fault: func(op string) error {
		ops = append(ops, op)
		return nil
	}}
	check := func(what, want string) {
		t.Helper()
		if got := strings.Join(ops, " "); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
		ops = nil
	}
	dir := filepath.Join(t.TempDir(), "journal")
	w := create(t, dir, o)
	check("create", "syncdir create write sync rename syncdir")
	appendAll(t, w, "a record of some length")
	check("append", "write sync")
	appendAll(t, w, strings.Repeat("another of more", 10))
	check("append that rotates", "create write sync rename syncdir write sync")
	w.Close()
	recoverIn(t, dir, o)
	check("recover", "truncate write sync syncdir")
}
