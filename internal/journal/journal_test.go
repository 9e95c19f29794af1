package journal_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/journal"
)

var header = journal.Header{
	Journal: "01J0000000000000000000000J",
	Run:     "01J0000000000000000000000R",
	Attempt: 2,
	Created: time.Date(2026, 3, 4, 5, 6, 7, 8000, time.UTC),
}

func create(t testing.TB, dir string, o journal.Options) *journal.Writer {
	t.Helper()
	w, err := journal.Create(dir, header, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func recoverIn(t testing.TB, dir string, o journal.Options) *journal.Writer {
	t.Helper()
	w, h, err := journal.Recover(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if h != header {
		t.Fatalf("header is %+v", h)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func appendAll(t testing.TB, w *journal.Writer, recs ...string) {
	t.Helper()
	for _, rec := range recs {
		if _, err := w.Append([]byte(rec)); err != nil {
			t.Fatal(err)
		}
	}
}

// readAll reads to the end of what is there, checking that cursors are dense.
func readAll(dir string) (recs []string, err error) {
	r, _, err := journal.Open(dir)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		cursor, rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return recs, nil
		}
		if err != nil {
			return recs, err
		}
		recs = append(recs, string(rec))
		if cursor != uint64(len(recs)) {
			return recs, fmt.Errorf("cursor %d for record %d", cursor, len(recs))
		}
	}
}

func wantRecords(t testing.TB, dir string, want ...string) {
	t.Helper()
	got, err := readAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("records (-want +got):\n%s", diff)
	}
}

func segmentFiles(t testing.TB, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}

func words(n int) []string {
	var recs []string
	for i := range n {
		recs = append(recs, fmt.Sprintf(`{"n":%d,"text":%q}`, i+1, strings.Repeat("x", i%7*9)))
	}
	return recs
}

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	goleak.VerifyTestMain(m)
}

func TestWhatWasAppendedIsReadBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "journal")
	w := create(t, dir, journal.Options{})
	recs := words(20)
	appendAll(t, w, recs[:10]...)
	if got := w.Durable(); got != 10 {
		t.Errorf("durable is %d, want 10", got)
	}
	first, err := w.Append([]byte(recs[10]), []byte(recs[11]))
	if err != nil || first != 11 {
		t.Errorf("Append of two = %d, %v, want 11", first, err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w = recoverIn(t, dir, journal.Options{})
	if got := w.Durable(); got != 12 {
		t.Errorf("durable after recovery is %d, want 12", got)
	}
	appendAll(t, w, recs[12:]...)
	wantRecords(t, dir, recs...)

	h, last, rec, err := journal.Last(dir)
	if err != nil || h != header || last != 20 || string(rec) != recs[19] {
		t.Errorf("Last = %+v, %d, %s, %v", h, last, rec, err)
	}
}

func TestAddIsDurableAfterWaitAndAfterClose(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, journal.Options{})
	rec := []byte("one")
	if _, err := w.Add(rec, []byte("two")); err != nil {
		t.Fatal(err)
	}
	copy(rec, "XXX") // the writer has its own copy
	if err := w.Wait(t.Context(), 2); err != nil || w.Durable() != 2 {
		t.Errorf("Wait: %v, durable %d", err, w.Durable())
	}
	if _, err := w.Add([]byte("three")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	wantRecords(t, dir, "one", "two", "three")
}

func TestWaitEndsWithItsContextAndWithTheWriter(t *testing.T) {
	w := create(t, t.TempDir(), journal.Options{})
	appendAll(t, w, "one")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Wait(ctx, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait with a cancelled context: %v", err)
	}
	got := make(chan error)
	go func() { got <- w.Wait(t.Context(), 2) }()
	w.Close()
	if err := <-got; !errors.Is(err, journal.ErrClosed) {
		t.Errorf("Wait for what never comes: %v", err)
	}
	if err := w.Wait(ctx, 1); err != nil {
		t.Errorf("Wait for what is durable: %v", err)
	}
	if _, err := w.Append([]byte("x")); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("Append after Close: %v", err)
	}
	if err := w.Err(); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("Err after Close: %v", err)
	}
	<-w.Changed()
}

func TestSegmentsAreRotated(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, journal.Options{SegmentBytes: 300})
	recs := words(40)
	appendAll(t, w, recs...)
	w.Close()
	files := segmentFiles(t, dir)
	if len(files) < 5 {
		t.Fatalf("%d segments", len(files))
	}
	wantRecords(t, dir, recs...)
	w = recoverIn(t, dir, journal.Options{SegmentBytes: 300})
	appendAll(t, w, "more")
	wantRecords(t, dir, append(recs, "more")...)
}

func TestWhatCannotBeARecordIsRefused(t *testing.T) {
	w := create(t, t.TempDir(), journal.Options{})
	if _, err := w.Append([]byte("good"), nil); tallyman.CodeOf(err) != tallyman.Invalid {
		t.Errorf("an empty record: %v", err)
	}
	if _, err := w.Add(make([]byte, journal.MaxRecord+1)); tallyman.CodeOf(err) != tallyman.TooLarge {
		t.Errorf("a huge record: %v", err)
	}
	if first, err := w.Append(); err != nil || first != 1 {
		t.Errorf("no record: %d, %v", first, err)
	}
	appendAll(t, w, "next") // neither of these poisoned it
}

func TestAddBlocksWhileTooMuchWaits(t *testing.T) {
	held, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	syncs := 0
	w := create(t, t.TempDir(), journal.Options{MaxPending: 100, Fault: func(op string) error {
		if op == "sync" {
			if syncs++; syncs == 2 { // the first is the header's
				once.Do(func() { close(held) })
				<-release
			}
		}
		return nil
	}})
	if _, err := w.Add(make([]byte, 1000)); err != nil { // alone it may be larger
		t.Fatal(err)
	}
	<-held
	added := make(chan error)
	go func() {
		_, err := w.Add([]byte("small"))
		added <- err
	}()
	select {
	case <-added:
		t.Error("Add did not wait for room")
	case <-time.After(20 * time.Millisecond):
	}
	close(release)
	if err := <-added; err != nil {
		t.Error(err)
	}
}

func TestLowSpaceComparesWithTheReserve(t *testing.T) {
	for reserve, want := range map[int64]bool{0: false, 1: false, 1 << 62: true} {
		w := create(t, t.TempDir(), journal.Options{Reserve: reserve})
		if got := w.LowSpace(0); got != want {
			t.Errorf("reserve %d: low is %v", reserve, got)
		}
	}
}

func TestFoldersThatHoldNoJournal(t *testing.T) {
	foreign := t.TempDir()
	for _, name := range []string{"notes.txt", "1.seg", "0000000000000000000x.seg"} {
		if err := os.WriteFile(filepath.Join(foreign, name), []byte("hello"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, dir := range map[string]string{
		"an empty folder":             t.TempDir(),
		"a folder that is not there":  filepath.Join(t.TempDir(), "x"),
		"a folder with foreign files": foreign,
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := journal.Open(dir); tallyman.CodeOf(err) != tallyman.NotFound {
				t.Errorf("Open: %v", err)
			}
			if _, _, err := journal.Recover(dir, journal.Options{}); tallyman.CodeOf(err) != tallyman.NotFound {
				t.Errorf("Recover: %v", err)
			}
			if _, _, _, err := journal.Last(dir); tallyman.CodeOf(err) != tallyman.NotFound {
				t.Errorf("Last: %v", err)
			}
			create(t, dir, journal.Options{})
			if _, err := journal.Create(dir, header, journal.Options{}); tallyman.CodeOf(err) != tallyman.Conflict {
				t.Errorf("Create over a journal: %v", err)
			}
		})
	}
	if _, err := journal.Create(t.TempDir(), journal.Header{}, journal.Options{}); tallyman.CodeOf(err) != tallyman.Invalid {
		t.Errorf("Create without an id: %v", err)
	}
}

func TestAFolderWithoutPermissionIsAnError(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may read and write everywhere")
	}
	dir := t.TempDir()
	create(t, dir, journal.Options{}).Close()
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o700)
	if _, _, err := journal.Open(dir); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("Open: %v", err)
	}
	if _, _, err := journal.Recover(dir, journal.Options{}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("Recover: %v", err)
	}
	if _, err := journal.Create(filepath.Join(dir, "x"), header, journal.Options{}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("Create: %v", err)
	}
}

func TestAnUnfinishedSegmentIsSweptAway(t *testing.T) {
	dir := t.TempDir()
	appendAll(t, create(t, dir, journal.Options{}), "one")
	unfinished := filepath.Join(dir, fmt.Sprintf("%020d.seg.new", 2))
	if err := os.WriteFile(unfinished, []byte("half a hea"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRecords(t, dir, "one")
	appendAll(t, recoverIn(t, dir, journal.Options{}), "two")
	wantRecords(t, dir, "one", "two")
	if _, err := os.Stat(unfinished); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
