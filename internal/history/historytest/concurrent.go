package historytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/history"
)

func compaction(t *testing.T, h *history.History) {
	for n := uint64(1); n <= 500; n++ {
		appendTo(t, h, "j", n, n)
	}
	appendTo(t, h, "j", 501, 6000)
	for range 3 {
		if err := h.Compact(t.Context(), "j"); err != nil {
			t.Fatal(err)
		}
		checkAll(t, h, "j", 6000)
	}
	appendTo(t, h, "j", 6001, 6002)
	checkAll(t, h, "j", 6002)
}

func compactionMerges(t *testing.T, h *history.History) {
	appendTo(t, h, "other", 1, 2)
	for n := uint64(1); n <= 3000; n += 5 {
		appendTo(t, h, "j", n, n+4)
	}
	before := sizeOf(t, h, "j")
	if err := h.Compact(t.Context(), "j"); err != nil {
		t.Fatal(err)
	}
	after := sizeOf(t, h, "j")
	if before.Blocks != 600 || after.Blocks != 2 || after.Events != before.Events || after.Raw != before.Raw+598 || after.Events != 3000 || after.Stored >= before.Stored {
		t.Errorf("600 blocks became %+v, they were %+v", after, before)
	}
	if err := h.Compact(t.Context(), "j"); err != nil {
		t.Fatal(err)
	}
	if again := sizeOf(t, h, "j"); again != after {
		t.Errorf("the second time made %+v of %+v", again, after)
	}
	checkAll(t, h, "j", 3000)
	checkAll(t, h, "other", 2)
}

func compactedOverlap(t *testing.T, h *history.History) {
	for n := uint64(1); n <= 100; n += 10 {
		appendTo(t, h, "j", n, n+9)
	}
	if err := h.Compact(t.Context(), "j"); err != nil {
		t.Fatal(err)
	}
	appendTo(t, h, "j", 95, 120)
	lines := events("j", 50, 130)
	lines[7][5]++
	if _, err := h.Append(t.Context(), "j", 50, lines); tallyman.CodeOf(err) != tallyman.Conflict {
		t.Errorf("other bytes: %v, want a conflict", err)
	}
	checkAll(t, h, "j", 120)
}

func manyJournals(t *testing.T, h *history.History) {
	const journals, last = 50, 400
	var wg sync.WaitGroup
	for i := range journals {
		wg.Go(func() {
			j := fmt.Sprintf("j%d", i)
			for n := uint64(1); n <= last; {
				to := min(last, n+uint64(rand.IntN(60)))
				from := n - min(n-1, uint64(rand.IntN(3))) // resend some
				next, err := h.Append(t.Context(), j, from, events(j, from, to))
				if err != nil || next != to+1 {
					t.Errorf("journal %s: next is %d, %v, want %d", j, next, err, to+1)
					return
				}
				n = next
			}
		})
	}
	wg.Wait()
	for i := range journals {
		checkAll(t, h, fmt.Sprintf("j%d", i), last)
	}
}

func sameCursor(t *testing.T, h *history.History) {
	for round := range uint64(20) {
		var kept, refused atomic.Int32
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				line := fmt.Appendf(nil, "round %d by %d", round, i)
				switch _, err := h.Append(t.Context(), "j", round+1, [][]byte{line}); tallyman.CodeOf(err) {
				case "":
					kept.Add(1)
				case tallyman.Conflict:
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if kept.Load() != 1 || refused.Load() != 3 {
			t.Fatalf("round %d: %d kept, %d refused", round, kept.Load(), refused.Load())
		}
	}
}

func compactionDuringReads(t *testing.T, h *history.History) {
	const last = 1500
	appendTo(t, h, "j", 1, 1)
	ctx, done := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		defer done()
		for n := uint64(2); n <= last; n += 2 {
			appendTo(t, h, "j", n, min(last, n+1))
		}
	})
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := h.Compact(ctx, "j"); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for ctx.Err() == nil {
		n := uint64(0)
		err := h.Read(ctx, "j", 0, func(cursor uint64, line []byte) error {
			if n++; cursor != n || !bytes.Equal(line, event("j", n)) {
				return fmt.Errorf("event %d came as %d: %s", n, cursor, line)
			}
			return nil
		})
		if err != nil && ctx.Err() == nil {
			t.Error(err)
			break
		}
	}
	wg.Wait()
	checkAll(t, h, "j", last)
}

func refusedNeighbours(t *testing.T, h *history.History) {
	appendTo(t, h, "bad", 1, 10)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			j := fmt.Sprintf("good%d", i)
			for n := uint64(1); n <= 20; n++ {
				if _, err := h.Append(t.Context(), j, n, events(j, n, n)); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			if _, err := h.Append(t.Context(), "bad", 99, events("bad", 99, 99)); err == nil {
				t.Error("a gap was taken")
			}
			if _, err := h.Append(t.Context(), "bad", 5, [][]byte{[]byte("x")}); tallyman.CodeOf(err) != tallyman.Conflict {
				t.Errorf("other bytes: %v", err)
			}
		})
	}
	wg.Wait()
	for i := range 20 {
		checkAll(t, h, fmt.Sprintf("good%d", i), 20)
	}
	checkAll(t, h, "bad", 10)
}

func cancelledNeighbours(t *testing.T, h *history.History) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			j := fmt.Sprintf("j%d", i)
			for n := uint64(1); n <= 60; n++ {
				ctx, cancel := context.WithCancel(t.Context())
				if i%2 == 0 {
					time.AfterFunc(time.Duration(rand.IntN(500))*time.Microsecond, cancel)
				}
				_, err := h.Append(ctx, j, n, events(j, n, n))
				if i%2 == 0 && errors.Is(err, context.Canceled) {
					_, err = h.Append(t.Context(), j, n, events(j, n, n))
				}
				cancel()
				if err != nil {
					t.Errorf("journal %s: %v", j, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for i := range 8 {
		checkAll(t, h, fmt.Sprintf("j%d", i), 60)
	}
}

func noticed(w *history.Watch) bool {
	select {
	case <-w.C:
		return true
	default:
		return false
	}
}

func watchNotices(t *testing.T, h *history.History) {
	w, other := h.Watch("j"), h.Watch("other")
	defer w.Close()
	defer other.Close()
	appendTo(t, h, "j", 1, 3)
	appendTo(t, h, "j", 4, 6)
	if !noticed(w) || noticed(w) {
		t.Error("two appends are not one notice")
	}
	appendTo(t, h, "j", 2, 6)
	if noticed(w) {
		t.Error("an append that added nothing was told")
	}
	line := []byte(`{"delta":"a"}`)
	h.Provisional("j", line)
	clear(line)
	h.Provisional("j", []byte(`{"delta":"b"}`))
	if !noticed(w) {
		t.Error("a provisional line was not told")
	}
	got := w.Deltas()
	if len(got) != 2 || string(got[0]) != `{"delta":"a"}` || string(got[1]) != `{"delta":"b"}` {
		t.Errorf("deltas are %q", got)
	}
	if got := w.Deltas(); len(got) != 0 {
		t.Errorf("deltas again are %q", got)
	}
	if noticed(other) || len(other.Deltas()) != 0 {
		t.Error("another journal's watcher was told")
	}
	checkAll(t, h, "j", 6)
}

func watchBounded(t *testing.T, h *history.History) {
	w := h.Watch("j")
	defer w.Close()
	for n := range 5000 {
		h.Provisional("j", fmt.Appendf(nil, "%d", n))
	}
	got := w.Deltas()
	if len(got) == 0 || len(got) > 2000 || string(got[0]) != "0" {
		t.Errorf("%d deltas were kept of 5000", len(got))
	}
	for range 100 {
		h.Provisional("j", make([]byte, 100<<10))
	}
	size := 0
	for _, line := range w.Deltas() {
		size += len(line)
	}
	if size == 0 || size > 1<<20 {
		t.Errorf("%d bytes of deltas were kept", size)
	}
}

func watchFollows(t *testing.T, h *history.History) {
	const last = 2000
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			w := h.Watch("j")
			defer w.Close()
			seen := uint64(0)
			for {
				err := h.Read(t.Context(), "j", seen, func(cursor uint64, line []byte) error {
					if seen++; cursor != seen || !bytes.Equal(line, event("j", seen)) {
						return fmt.Errorf("event %d came as %d: %s", seen, cursor, line)
					}
					return nil
				})
				if err != nil {
					t.Errorf("watcher %d: %v", i, err)
					return
				}
				if seen == last {
					return
				}
				select {
				case <-w.C:
				case <-time.After(20 * time.Second):
					t.Errorf("watcher %d was told nothing after event %d", i, seen)
					return
				}
			}
		})
	}
	for n := uint64(1); n <= last; {
		to := min(last, n+uint64(rand.IntN(20)))
		appendTo(t, h, "j", n, to)
		n = to + 1
	}
	wg.Wait()
}

func watchClosed(t *testing.T, h *history.History) {
	w, stays := h.Watch("j"), h.Watch("j")
	defer stays.Close()
	w.Close()
	w.Close()
	appendTo(t, h, "j", 1, 1)
	h.Provisional("j", []byte("x"))
	if noticed(w) || len(w.Deltas()) != 0 {
		t.Error("a closed watch was told")
	}
	if !noticed(stays) || len(stays.Deltas()) != 1 {
		t.Error("the other watch was not told")
	}
}

func deleteDuringRead(t *testing.T, h *history.History) {
	appendTo(t, h, "j", 1, 1000)
	n := uint64(0)
	err := h.Read(t.Context(), "j", 0, func(cursor uint64, _ []byte) error {
		if n++; n == 100 {
			return h.Delete(t.Context(), "j")
		}
		return nil
	})
	if tallyman.CodeOf(err) != tallyman.NotFound || n >= 1000 {
		t.Errorf("read %d events, %v, want NotFound", n, err)
	}
	var corrupt *history.CorruptError
	if errors.As(err, &corrupt) {
		t.Errorf("a deleted journal is called damaged: %v", err)
	}
}
