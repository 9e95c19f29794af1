package journal_test

import (
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/journal"
)

func TestAFollowerSeesEveryRecordOnce(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, journal.Options{SegmentBytes: 400})
	recs := words(300)
	go func() {
		for _, rec := range recs {
			w.Append([]byte(rec))
		}
		w.Close()
	}()
	r, _, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got []string
	for ended := false; ; {
		changed := w.Changed()
		for uint64(len(got)) < w.Durable() {
			_, rec, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(rec))
		}
		if ended {
			break
		}
		ended = w.Err() != nil
		<-changed
	}
	if diff := cmp.Diff(recs, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

func TestAFollowerWithoutBoundsNeverSeesDamage(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, journal.Options{SegmentBytes: 64 << 10})
	recs := words(20000)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i, rec := range recs {
			if _, err := w.Add([]byte(rec)); err != nil {
				t.Error(err)
			}
			if i%100 == 0 {
				w.Wait(t.Context(), uint64(i))
			}
		}
		w.Close()
	})
	defer wg.Wait()
	r, _, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for n := 0; n < len(recs); {
		_, rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if string(rec) != recs[n] {
			t.Fatalf("record %d is %s", n+1, rec)
		}
		n++
	}
}

func TestSeekGoesToAnyRecordAndNotBeyond(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, journal.Options{SegmentBytes: 300})
	recs := words(40)
	appendAll(t, w, recs...)
	r, _, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, after := range []uint64{0, 39, 5, 6, 20, 1, 0, 38} {
		if err := r.Seek(after); err != nil {
			t.Fatal(err)
		}
		cursor, rec, err := r.Next()
		if err != nil || cursor != after+1 || string(rec) != recs[after] {
			t.Errorf("after Seek(%d): %d, %s, %v", after, cursor, rec, err)
		}
	}
	if err := r.Seek(40); err != nil {
		t.Errorf("Seek to the end: %v", err)
	}
	if _, _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("Next at the end: %v", err)
	}
	appendAll(t, w, "new")
	if cursor, rec, err := r.Next(); err != nil || cursor != 41 || string(rec) != "new" {
		t.Errorf("Next when there is more: %d, %s, %v", cursor, rec, err)
	}
	if err := r.Seek(42); tallyman.CodeOf(err) != tallyman.Invalid {
		t.Errorf("Seek beyond the end: %v", err)
	}
}

// Long records among short ones: the buffer that held one holds the next.
func TestLongRecordsShareABuffer(t *testing.T) {
	const long, n = 4 << 20, 12
	dir := t.TempDir()
	w := create(t, dir, journal.Options{})
	rec := make([]byte, long)
	for range n {
		w.Append([]byte("short"))
		w.Append(rec)
	}
	w.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, last, _, err := journal.Last(dir)
	runtime.ReadMemStats(&after)
	if err != nil || last != 2*n {
		t.Fatalf("last %d, %v", last, err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 4*long {
		t.Errorf("%d records of %d bytes took %d bytes of memory", n, long, used)
	}
}
