package history_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/database"
	"github.com/tallyman-dev/tallyman/internal/database/sqlite"
	"github.com/tallyman-dev/tallyman/internal/history"
	"github.com/tallyman-dev/tallyman/internal/history/historytest"
)

// childEnv names the database that this program appends to instead of
// running its tests.
const childEnv = "HISTORY_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		appendForever(path)
		return
	}
	goleak.VerifyTestMain(m)
}

func TestSQLite(t *testing.T) {
	historytest.Run(t, func(tb testing.TB) *history.History {
		h, _ := open(tb, filepath.Join(tb.TempDir(), "history.db"))
		return h
	})
}

// open opens the file; the test's end closes it.
func open(tb testing.TB, path string) (*history.History, *sqlite.DB) {
	tb.Helper()
	db, err := sqlite.Open(context.Background(), path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	h, err := history.Open(context.Background(), db.Writer, db.Reader, database.SQLite)
	if err != nil {
		tb.Fatal(err)
	}
	return h, db
}

func line(journal string, n uint64) []byte {
	return fmt.Appendf(nil, `{"type":"text","journal":%q,"text":"event %d"}`, journal, n)
}

func lines(journal string, from, to uint64) (out [][]byte) {
	for n := from; n <= to; n++ {
		out = append(out, line(journal, n))
	}
	return out
}

// check reads the journal, which must be whole, and returns its length.
func check(t *testing.T, h *history.History, journal string) uint64 {
	t.Helper()
	n := uint64(0)
	err := h.Read(t.Context(), journal, 0, func(cursor uint64, got []byte) error {
		if n++; cursor != n || !bytes.Equal(got, line(journal, n)) {
			return fmt.Errorf("event %d came as %d: %s", n, cursor, got)
		}
		return nil
	})
	if err != nil {
		t.Errorf("journal %s: %v", journal, err)
	}
	return n
}

func TestEventsAreThereAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	h, db := open(t, path)
	if _, err := h.Append(t.Context(), "j", 1, lines("j", 1, 300)); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	h, _ = open(t, path)
	if n := check(t, h, "j"); n != 300 {
		t.Errorf("%d events, want 300", n)
	}
	if next, err := h.Append(t.Context(), "j", 290, lines("j", 290, 310)); err != nil || next != 311 {
		t.Errorf("going on: next is %d, %v", next, err)
	}
}

func TestANewerSchemaIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	_, db := open(t, path)
	if _, err := db.Writer.Exec("INSERT INTO history_migrations (version_id, is_applied) VALUES (999, TRUE)"); err != nil {
		t.Fatal(err)
	}
	_, err := history.Open(t.Context(), db.Writer, db.Reader, database.SQLite)
	if tallyman.CodeOf(err) != tallyman.Unsupported || !strings.Contains(err.Error(), "999") {
		t.Errorf("a newer schema: %v, want Unsupported that names it", err)
	}
	if _, err := history.Open(t.Context(), nil, nil, "oracle"); tallyman.CodeOf(err) != tallyman.Unsupported {
		t.Errorf("an unknown dialect: %v, want Unsupported", err)
	}
}

func TestADamagedBlockIsNamedAndWhatIsBeforeItIsRead(t *testing.T) {
	for what, damage := range map[string]string{
		"bytes":      `UPDATE blocks SET data = x'28b52ffd0000' WHERE first = 257`,
		"truncated":  `UPDATE blocks SET data = substr(data, 1, length(data) - 9) WHERE first = 257`,
		"count":      `UPDATE blocks SET last = last + 1 WHERE first = 257`,
		"few lines":  `UPDATE blocks SET last = last - 1 WHERE first = 257`,
		"size":       `UPDATE blocks SET raw = raw + 1 WHERE first = 257`,
		"other data": `UPDATE blocks SET data = (SELECT data FROM blocks WHERE first = 513) WHERE first = 257`,
		"missing":    `DELETE FROM blocks WHERE first = 257`,
	} {
		t.Run(what, func(t *testing.T) {
			h, db := open(t, filepath.Join(t.TempDir(), "history.db"))
			if _, err := h.Append(t.Context(), "j", 1, lines("j", 1, 600)); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Writer.Exec(damage); err != nil {
				t.Fatal(err)
			}
			n := uint64(0)
			err := h.Read(t.Context(), "j", 0, func(cursor uint64, got []byte) error {
				if n++; cursor != n || !bytes.Equal(got, line("j", n)) {
					t.Fatalf("event %d came as %d: %s", n, cursor, got)
				}
				return nil
			})
			var corrupt *history.CorruptError
			if !errors.As(err, &corrupt) || corrupt.Journal != "j" || corrupt.First != 257 || n != 256 {
				t.Errorf("read %d events, %v, want 256 and the range from 257", n, err)
			}
			// Nothing that is refused takes the store down, and the rest is readable.
			if _, err := h.Append(t.Context(), "j", 250, lines("j", 250, 270)); !errors.As(err, &corrupt) {
				t.Errorf("an overlap with it: %v", err)
			}
			if err := h.Compact(t.Context(), "j"); (err == nil) != (what == "missing") || err != nil && !errors.As(err, &corrupt) {
				t.Errorf("compaction: %v", err)
			}
			if _, err := h.Append(t.Context(), "j", 601, lines("j", 601, 602)); err != nil {
				t.Errorf("appending after it: %v", err)
			}
			var last uint64
			if err := h.Read(t.Context(), "j", 512, func(cursor uint64, _ []byte) error { last = cursor; return nil }); err != nil || last != 602 {
				t.Errorf("reading after it: to %d, %v", last, err)
			}
		})
	}
}

func TestADamagedJournalLeavesItsNeighboursAlone(t *testing.T) {
	h, db := open(t, filepath.Join(t.TempDir(), "history.db"))
	if _, err := h.Append(t.Context(), "bad", 1, lines("bad", 1, 600)); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Writer.Exec(`DELETE FROM blocks WHERE first = 257`); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			good := fmt.Sprintf("good%d", i)
			for n := uint64(1); n <= 20; n++ {
				if _, err := h.Append(t.Context(), good, n, lines(good, n, n)); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 20 {
				var corrupt *history.CorruptError
				if _, err := h.Append(t.Context(), "bad", 300, lines("bad", 300, 310)); !errors.As(err, &corrupt) {
					t.Errorf("an overlap with what is missing: %v", err)
				}
			}
		})
	}
	wg.Wait()
	for i := range 8 {
		if n := check(t, h, fmt.Sprintf("good%d", i)); n != 20 {
			t.Errorf("journal good%d has %d events, want 20", i, n)
		}
	}
}

// appendForever appends to ten journals and prints what was acknowledged.
func appendForever(path string) {
	ctx := context.Background()
	db, err := sqlite.Open(ctx, path)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	h, err := history.Open(ctx, db.Writer, db.Reader, database.SQLite)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			journal := fmt.Sprintf("j%d", i)
			next, err := h.Next(ctx, journal)
			for round := 0; err == nil; round++ {
				to := next + uint64(rand.IntN(100))
				if next, err = h.Append(ctx, journal, next, lines(journal, next, to)); err != nil {
					break
				}
				mu.Lock()
				fmt.Println("ack", journal, next)
				mu.Unlock()
				if round%20 == 19 {
					err = h.Compact(ctx, journal)
				}
			}
			fmt.Println("error", err)
		})
	}
	wg.Wait()
}

func TestNothingAcknowledgedIsLostToAKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	acked := map[string]uint64{}
	for round := range 5 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		acks, killAt := 0, 50+rand.IntN(400)
		for in := bufio.NewScanner(out); in.Scan(); {
			var journal string
			var next uint64
			if n, _ := fmt.Sscanf(in.Text(), "ack %s %d", &journal, &next); n != 2 {
				t.Errorf("round %d: the child says %q", round, in.Text())
				break
			}
			acked[journal] = max(acked[journal], next)
			if acks++; acks == killAt {
				if err := cmd.Process.Kill(); err != nil {
					t.Error(err)
				}
			}
		}
		_ = cmd.Wait() // it was killed
		if acks < killAt {
			t.Fatalf("round %d: the child ended after %d acknowledgements", round, acks)
		}
		h, db := open(t, path)
		for journal, next := range acked {
			if n := check(t, h, journal); n+1 < next {
				t.Errorf("round %d: journal %s has %d events, %d were acknowledged", round, journal, n, next-1)
			}
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestALongHistoryIsNotHeldInMemory(t *testing.T) {
	h, _ := open(t, filepath.Join(t.TempDir(), "history.db"))
	const total = 20_000
	text := bytes.Repeat([]byte("0123456789abcdef"), 128) // 2 kB
	batch := make([][]byte, 250)
	for from := uint64(1); from <= total; from += uint64(len(batch)) {
		for i := range batch {
			batch[i] = fmt.Appendf(nil, "%d %s", from+uint64(i), text)
		}
		if _, err := h.Append(t.Context(), "j", from, batch); err != nil {
			t.Fatal(err)
		}
	}
	allocated := testing.Benchmark(func(b *testing.B) {
		for range b.N {
			if err := h.Read(context.Background(), "j", 0, func(uint64, []byte) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
	})
	// The 40 MB pass through one buffer: what is allocated is the rows.
	if perEvent := float64(allocated.AllocsPerOp()) / total; perEvent > 0.5 {
		t.Errorf("%.2f allocations per event read", perEvent)
	}
	if bytes := allocated.AllocedBytesPerOp(); bytes > 8<<20 {
		t.Errorf("%d bytes allocated to read 40 MB", bytes)
	}
}

func TestAWatchIsTheOnlyThingKeptOfAJournal(t *testing.T) {
	h, _ := open(t, filepath.Join(t.TempDir(), "history.db"))
	watches := make([]*history.Watch, 100)
	for i := range watches {
		watches[i] = h.Watch(fmt.Sprint(i % 10))
	}
	if n := history.Watched(h); n != 10 {
		t.Errorf("%d journals are watched, want 10", n)
	}
	for _, w := range watches {
		if _, err := h.Append(t.Context(), "x", 1, lines("x", 1, 1)); err != nil {
			t.Fatal(err)
		}
		w.Close()
	}
	if n := history.Watched(h); n != 0 {
		t.Errorf("%d journals are kept, want none", n)
	}
}
