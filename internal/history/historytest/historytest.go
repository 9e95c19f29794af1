// Package historytest holds what every engine of the event store must do.
package historytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/history"
)

// Run runs the suite. open returns an empty store, closed with the test.
func Run(t *testing.T, open func(testing.TB) *history.History) {
	for name, test := range map[string]func(*testing.T, *history.History){
		"a journal that is not known is empty":           unknown,
		"what was appended is read back":                 roundTrip,
		"reading begins after any cursor":                readAfter,
		"odd lines come back as they were":               oddLines,
		"large batches are many blocks":                  largeBatches,
		"a gap is refused and says where to go on":       gap,
		"an equal overlap is skipped":                    overlapEqual,
		"another overlap is a conflict":                  overlapDifferent,
		"bad lines are refused":                          badLines,
		"the reader's error ends the reading":            readerError,
		"a caller who has gone appends nothing":          cancelled,
		"callers who go take no others along":            cancelledNeighbours,
		"lines may be reused after the append":           reuse,
		"journals are apart":                             journalsApart,
		"deleting takes the whole journal":               deleteJournals,
		"sizes add up":                                   sizes,
		"compaction keeps every event":                   compaction,
		"compaction makes few blocks and rests then":     compactionMerges,
		"an overlap is found in compacted blocks":        compactedOverlap,
		"appends to 50 journals at once are all kept":    manyJournals,
		"of two who append the same cursor one is kept":  sameCursor,
		"compaction disturbs no reader and no appender":  compactionDuringReads,
		"a refused append leaves its neighbours alone":   refusedNeighbours,
		"a watch tells of appends and deltas":            watchNotices,
		"a slow watcher's deltas are bounded":            watchBounded,
		"a watcher sees everything once and in order":    watchFollows,
		"watchers who closed are told nothing":           watchClosed,
		"deleting under a reader is told, not made up":   deleteDuringRead,
		"an append to what was deleted begins at 1 anew": appendAfterDelete,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// event returns the line that the suite writes as the n-th of a journal.
func event(journal string, n uint64) []byte {
	return fmt.Appendf(nil, `{"time":"2026-03-04T05:06:07.%06dZ","type":"text","journal":%q,"text":%q}`,
		n%1000000, journal, strings.Repeat("word ", int(n%7)))
}

func events(journal string, from, to uint64) [][]byte {
	var lines [][]byte
	for n := from; n <= to; n++ {
		lines = append(lines, event(journal, n))
	}
	return lines
}

func appendTo(t *testing.T, h *history.History, journal string, from, to uint64) {
	t.Helper()
	next, err := h.Append(t.Context(), journal, from, events(journal, from, to))
	if err != nil || next != to+1 {
		t.Fatalf("append of %d to %d: next is %d, %v", from, to, next, err)
	}
}

// checkAll reads the whole journal and holds it against what event wrote.
func checkAll(t *testing.T, h *history.History, journal string, want uint64) {
	t.Helper()
	n := uint64(0)
	err := h.Read(t.Context(), journal, 0, func(cursor uint64, line []byte) error {
		n++
		if cursor != n || !bytes.Equal(line, event(journal, n)) {
			return fmt.Errorf("event %d came as %d: %s", n, cursor, line)
		}
		return nil
	})
	if err != nil || n != want {
		t.Errorf("journal %s: read %d events, %v, want %d", journal, n, err, want)
	}
	if next, err := h.Next(t.Context(), journal); err != nil || next != want+1 {
		t.Errorf("journal %s: next is %d, %v, want %d", journal, next, err, want+1)
	}
}

func unknown(t *testing.T, h *history.History) {
	checkAll(t, h, "nobody", 0)
	if next, err := h.Append(t.Context(), "nobody", 1, nil); err != nil || next != 1 {
		t.Errorf("an append of nothing: %d, %v", next, err)
	}
	if err := h.Compact(t.Context(), "nobody"); err != nil {
		t.Error(err)
	}
	if err := h.Delete(t.Context(), "nobody"); err != nil {
		t.Error(err)
	}
}

func roundTrip(t *testing.T, h *history.History) {
	appendTo(t, h, "j", 1, 1)
	appendTo(t, h, "j", 2, 300)
	appendTo(t, h, "j", 301, 557)
	checkAll(t, h, "j", 557)
}

func readAfter(t *testing.T, h *history.History) {
	appendTo(t, h, "j", 1, 600)
	for _, after := range []uint64{0, 1, 255, 256, 257, 599, 600, 601, 1 << 40} {
		want, first := uint64(0), after+1
		if after < 600 {
			want = 600 - after
		}
		n := uint64(0)
		err := h.Read(t.Context(), "j", after, func(cursor uint64, line []byte) error {
			if cursor != first+n || !bytes.Equal(line, event("j", cursor)) {
				t.Errorf("after %d: event %d is %s", after, cursor, line)
			}
			n++
			return nil
		})
		if err != nil || n != want {
			t.Errorf("after %d: %d events, %v, want %d", after, n, err, want)
		}
	}
}

func oddLines(t *testing.T, h *history.History) {
	want := []string{"", "", "a", "\x00\xff\xed\xa0\x80", "\r", "", strings.Repeat("long ", 1<<18), "", "ü"}
	var lines [][]byte
	for _, l := range want {
		lines = append(lines, []byte(l))
	}
	if _, err := h.Append(t.Context(), "j", 1, lines[:1]); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Append(t.Context(), "j", 1, lines); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var got []string
		err := h.Read(t.Context(), "j", 0, func(_ uint64, line []byte) error {
			got = append(got, string(line))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("lines differ (-want +got):\n%s", diff)
		}
		if err := h.Compact(t.Context(), "j"); err != nil {
			t.Fatal(err)
		}
	}
}

func largeBatches(t *testing.T, h *history.History) {
	appendTo(t, h, "j", 1, 5000)
	checkAll(t, h, "j", 5000)
	if size := sizeOf(t, h, "j"); size.Blocks != 20 || size.Events != 5000 {
		t.Errorf("5000 events are stored as %+v, want 20 blocks", size)
	}
	big := bytes.Repeat([]byte("x"), 100<<10)
	if _, err := h.Append(t.Context(), "big", 1, [][]byte{big, big, big, big, big}); err != nil {
		t.Fatal(err)
	}
	if size := sizeOf(t, h, "big"); size.Blocks != 3 {
		t.Errorf("500 kB are stored as %+v, want 3 blocks", size)
	}
}

func gap(t *testing.T, h *history.History) {
	for _, expected := range []uint64{1, 11} {
		_, err := h.Append(t.Context(), "j", expected+1, events("j", expected+1, expected+2))
		var gap *history.GapError
		if !errors.As(err, &gap) || gap.Expected != expected || gap.Journal != "j" {
			t.Errorf("a gap: %v, want to go on at %d", err, expected)
		}
		checkAll(t, h, "j", expected-1)
		if expected == 1 {
			appendTo(t, h, "j", 1, 10)
		}
	}
}

func overlapEqual(t *testing.T, h *history.History) {
	appendTo(t, h, "j", 1, 300)
	for _, again := range [][2]uint64{{1, 1}, {1, 300}, {250, 260}, {300, 300}, {200, 290}} {
		next, err := h.Append(t.Context(), "j", again[0], events("j", again[0], again[1]))
		if err != nil || next != 301 {
			t.Errorf("%v again: next is %d, %v, want 301", again, next, err)
		}
	}
	appendTo(t, h, "j", 290, 310)
	appendTo(t, h, "j", 1, 900)
	checkAll(t, h, "j", 900)
}

func overlapDifferent(t *testing.T, h *history.History) {
	appendTo(t, h, "j", 1, 300)
	for _, bad := range []uint64{1, 256, 257, 300} {
		lines := events("j", 1, 310)
		lines[bad-1] = append(lines[bad-1], 'x')
		_, err := h.Append(t.Context(), "j", 1, lines)
		if tallyman.CodeOf(err) != tallyman.Conflict || !strings.Contains(err.Error(), fmt.Sprint(bad)) {
			t.Errorf("event %d with other bytes: %v, want a conflict that names it", bad, err)
		}
	}
	checkAll(t, h, "j", 300)
}

func badLines(t *testing.T, h *history.History) {
	ctx := t.Context()
	for what, err := range map[string]error{
		"newline":    second(h.Append(ctx, "j", 1, [][]byte{[]byte("a"), []byte("b\nc")})),
		"no journal": second(h.Append(ctx, "", 1, [][]byte{[]byte("a")})),
		"cursor 0":   second(h.Append(ctx, "j", 0, [][]byte{[]byte("a")})),
		"cursor max": second(h.Append(ctx, "j", ^uint64(0), [][]byte{[]byte("a")})),
	} {
		if tallyman.CodeOf(err) != tallyman.Invalid {
			t.Errorf("%s: %v, want Invalid", what, err)
		}
	}
	err := second(h.Append(ctx, "j", 1, [][]byte{make([]byte, history.MaxLine+1)}))
	if tallyman.CodeOf(err) != tallyman.TooLarge {
		t.Errorf("too long: %v, want TooLarge", err)
	}
	checkAll(t, h, "j", 0)
}

func second(_ uint64, err error) error { return err }

func readerError(t *testing.T, h *history.History) {
	appendTo(t, h, "j", 1, 600)
	stop, n := errors.New("enough"), 0
	err := h.Read(t.Context(), "j", 0, func(uint64, []byte) error {
		if n++; n == 300 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || n != 300 {
		t.Errorf("read %d events, %v, want 300 and the reader's error", n, err)
	}
}

func cancelled(t *testing.T, h *history.History) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Append(ctx, "j", 1, events("j", 1, 2)); !errors.Is(err, context.Canceled) {
		t.Errorf("append: %v, want context.Canceled", err)
	}
	checkAll(t, h, "j", 0)
	appendTo(t, h, "j", 1, 2)
	if err := h.Read(ctx, "j", 0, func(uint64, []byte) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("read: %v, want context.Canceled", err)
	}
}

func reuse(t *testing.T, h *history.History) {
	line := event("j", 1)
	if _, err := h.Append(t.Context(), "j", 1, [][]byte{line}); err != nil {
		t.Fatal(err)
	}
	clear(line)
	checkAll(t, h, "j", 1)
}

func journalsApart(t *testing.T, h *history.History) {
	// Ids that sort beside each other.
	for i, j := range []string{"j", "j1", "j ", "J", "i", "k"} {
		appendTo(t, h, j, 1, uint64(i+1))
	}
	for i, j := range []string{"j", "j1", "j ", "J", "i", "k"} {
		checkAll(t, h, j, uint64(i+1))
	}
}

func deleteJournals(t *testing.T, h *history.History) {
	for _, j := range []string{"a", "b", "c"} {
		appendTo(t, h, j, 1, 300)
	}
	if err := h.Delete(t.Context(), "a", "unknown", "c"); err != nil {
		t.Fatal(err)
	}
	checkAll(t, h, "a", 0)
	checkAll(t, h, "b", 300)
	checkAll(t, h, "c", 0)
}

func appendAfterDelete(t *testing.T, h *history.History) {
	appendTo(t, h, "j", 1, 10)
	if err := h.Delete(t.Context(), "j"); err != nil {
		t.Fatal(err)
	}
	_, err := h.Append(t.Context(), "j", 11, events("j", 11, 12))
	var gap *history.GapError
	if !errors.As(err, &gap) || gap.Expected != 1 {
		t.Errorf("going on: %v, want a gap from 1", err)
	}
	appendTo(t, h, "j", 1, 3)
	checkAll(t, h, "j", 3)
}

func sizeOf(t *testing.T, h *history.History, journal string) (size history.Size) {
	t.Helper()
	err := h.Journals(t.Context(), func(j string, s history.Size) error {
		if j == journal {
			size = s
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return size
}

func sizes(t *testing.T, h *history.History) {
	if sum, n, err := h.Total(t.Context()); err != nil || n != 0 || sum != (history.Size{}) {
		t.Errorf("an empty store has %+v in %d journals, %v", sum, n, err)
	}
	const journals = 1203 // more than two pages of the listing
	for n := range journals {
		j := fmt.Sprintf("j%05d", n)
		if _, err := h.Append(t.Context(), j, 1, [][]byte{[]byte("abc"), []byte("d")}); err != nil {
			t.Fatal(err)
		}
	}
	last := ""
	err := h.Journals(t.Context(), func(j string, s history.Size) error {
		if j <= last || s.Blocks != 1 || s.Events != 2 || s.Raw != 5 || s.Stored == 0 {
			t.Errorf("journal %s after %s: %+v", j, last, s)
		}
		last = j
		return h.Delete(t.Context(), j) // with no transaction open
	})
	if err != nil || last != fmt.Sprintf("j%05d", journals-1) {
		t.Errorf("the last journal is %s, %v", last, err)
	}
	if _, n, err := h.Total(t.Context()); err != nil || n != 0 {
		t.Errorf("%d journals are left, %v", n, err)
	}
}
