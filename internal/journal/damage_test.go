package journal_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/journal"
)

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// write makes b the content of a file, in place: file systems flush a file
// that was truncated to nothing first.
func write(t testing.TB, path string, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(int64(len(b))); err != nil {
		t.Fatal(err)
	}
}

// journalOf makes a journal with one commit per argument and returns its
// only segment.
func journalOf(t testing.TB, dir string, commits ...[]string) string {
	t.Helper()
	w := create(t, dir, journal.Options{})
	for _, commit := range commits {
		var recs [][]byte
		for _, rec := range commit {
			recs = append(recs, []byte(rec))
		}
		if _, err := w.Append(recs...); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return segmentFiles(t, dir)[0]
}

func one(recs ...string) (commits [][]string) {
	for _, rec := range recs {
		commits = append(commits, []string{rec})
	}
	return commits
}

func TestATornLastRecordIsCutAtEveryOffset(t *testing.T) {
	dir := t.TempDir()
	good := words(5)
	path := journalOf(t, dir, one(good...)...)
	whole := len(read(t, path))
	appendAll(t, recoverIn(t, dir, journal.Options{}), `{"torn":"`+strings.Repeat("t", 600)+`"}`)
	all := read(t, path)
	for size := whole; size < len(all); size++ {
		write(t, path, all[:size])
		wantRecords(t, dir, good...)
		w := recoverIn(t, dir, journal.Options{})
		if got := w.Durable(); got != 5 {
			t.Fatalf("cut at %d: durable is %d", size, got)
		}
		appendAll(t, w, "next")
		w.Close()
		wantRecords(t, dir, append(good, "next")...)
	}
}

func TestATornCommitOfManyRecordsIsCutAtEveryOffset(t *testing.T) {
	dir := t.TempDir()
	recs := words(6)
	path := journalOf(t, dir, recs[:1], recs[1:])
	all := read(t, path)
	for size := len(all) - 100; size < len(all); size++ {
		write(t, path, all[:size])
		w := recoverIn(t, dir, journal.Options{})
		n := w.Durable()
		if n < 2 || n > 5 {
			t.Fatalf("cut at %d: durable is %d", size, n)
		}
		w.Close()
		wantRecords(t, dir, recs[:n]...)
	}
}

// Sectors of an unacknowledged commit may be on disk without those before
// them; what is missing reads as zeros.
func TestSectorsThatNeverArrivedAreCut(t *testing.T) {
	var commit []string
	for i := range 20 {
		commit = append(commit, fmt.Sprintf("%d %s", i, strings.Repeat("r", 200)))
	}
	dir := t.TempDir()
	path := journalOf(t, dir, []string{"first"})
	from := len(read(t, path))
	os.RemoveAll(dir)
	journalOf(t, dir, []string{"first"}, commit)
	all := read(t, path)

	for at := from; at < len(all); at = at/512*512 + 512 {
		holed := slices.Clone(all)
		end := min(at/512*512+512, len(all))
		clear(holed[at:end])
		write(t, path, holed)
		w := recoverIn(t, dir, journal.Options{})
		n := w.Durable()
		if n > 20 {
			t.Fatalf("hole at %d: durable is %d", at, n)
		}
		w.Close()
		wantRecords(t, dir, append([]string{"first"}, commit...)[:n]...)
	}

	// With a commit behind it, the same hole is damage.
	write(t, path, all)
	appendAll(t, recoverIn(t, dir, journal.Options{}), "later")
	holed := read(t, path)
	clear(holed[1024:1536])
	write(t, path, holed)
	if _, err := readAll(dir); !isCorrupt(err) {
		t.Errorf("a hole before a later commit: %v", err)
	}
}

func TestAZeroTailIsCut(t *testing.T) {
	dir := t.TempDir()
	path := journalOf(t, dir, one("one", "two")...)
	for _, zeros := range []int{1, 7, 8, 9, 100, 4096} {
		all := read(t, path)
		write(t, path, append(all, make([]byte, zeros)...))
		recoverIn(t, dir, journal.Options{}).Close()
		if got := read(t, path); !bytes.Equal(got, all) {
			t.Errorf("%d zeros: the segment has %d bytes, want %d", zeros, len(got), len(all))
		}
	}
}

func isCorrupt(err error) bool {
	var c *journal.CorruptError
	return errors.As(err, &c)
}

// An error of the disk or of memory is told from a crash wherever it is, in
// the last record too.
func TestAFlippedBitIsRefusedWhereverItIs(t *testing.T) {
	commits := map[string][][]string{
		"one record per commit":   one("alpha", "beta-beta", "gamma", "delta-delta-delta"),
		"many records in one":     {{"alpha", "beta-beta"}, {"gamma", "delta-delta-delta", "e"}},
		"lengths with few bits":   one(strings.Repeat("a", 256), strings.Repeat("b", 512), strings.Repeat("c", 1024)),
		"records of many sectors": one(strings.Repeat("a", 2000), strings.Repeat("b", 1500)),
	}
	for name, commits := range commits {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := journalOf(t, dir, commits...)
			all := read(t, path)
			recs := slices.Concat(commits...)
			step := 1 + len(all)/1000
			for at := 0; at < len(all); at += step {
				for bit := range 8 {
					bad := slices.Clone(all)
					bad[at] ^= 1 << bit
					write(t, path, bad)
					got, err := readAll(dir)
					if !isCorrupt(err) && tallyman.CodeOf(err) != tallyman.Unsupported {
						t.Fatalf("bit %d of byte %d: read %d records, %v", bit, at, len(got), err)
					}
					if diff := cmp.Diff(recs[:len(got)], got); len(got) > 0 && diff != "" {
						t.Fatalf("bit %d of byte %d: wrong records:\n%s", bit, at, diff)
					}
				}
			}
			w, _, err := journal.Recover(dir, journal.Options{})
			if !isCorrupt(err) {
				w.Close()
				t.Fatalf("Recover: %v", err)
			}
		})
	}
}

func TestDamageNamesItsPlaceAndLeavesTheGoodPrefix(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, journal.Options{SegmentBytes: 200})
	recs := words(30)
	appendAll(t, w, recs...)
	w.Close()
	files := segmentFiles(t, dir)
	bad := read(t, files[2])
	bad[len(bad)-1] ^= 1
	write(t, files[2], bad)

	h, last, rec, err := journal.Last(dir)
	var damage *journal.CorruptError
	if !errors.As(err, &damage) {
		t.Fatalf("Last: %v", err)
	}
	if h != header || damage.File != files[2] || damage.Offset == 0 || damage.Cursor != last+1 {
		t.Errorf("Last = %+v, %d with %+v", h, last, damage)
	}
	if string(rec) != recs[last-1] {
		t.Errorf("the last good record is %s", rec)
	}
	if !strings.Contains(err.Error(), files[2]) || !strings.Contains(err.Error(), fmt.Sprint("offset ", damage.Offset)) {
		t.Errorf("the error does not say where: %v", err)
	}
	got, _ := readAll(dir)
	if diff := cmp.Diff(recs[:last], got); diff != "" {
		t.Errorf("good prefix (-want +got):\n%s", diff)
	}
	if _, h, err := journal.Recover(dir, journal.Options{}); !isCorrupt(err) || h != header {
		t.Errorf("Recover: %+v, %v", h, err)
	}
	if after := read(t, files[2]); !bytes.Equal(after, bad) {
		t.Error("Recover changed a damaged journal")
	}
}

func TestSegmentsThatAreNotWhatTheirNameSays(t *testing.T) {
	fill := func(t *testing.T, h journal.Header) (string, []string) {
		dir := t.TempDir()
		w, err := journal.Create(dir, h, journal.Options{SegmentBytes: 100})
		if err != nil {
			t.Fatal(err)
		}
		appendAll(t, w, words(10)...)
		w.Close()
		return dir, segmentFiles(t, dir)
	}
	other := header
	other.Journal = strings.ToLower(header.Journal)
	for name, harm := range map[string]func(t *testing.T, files []string){
		"the first is missing": func(t *testing.T, f []string) { os.Remove(f[0]) },
		"one is missing":       func(t *testing.T, f []string) { os.Remove(f[3]) },
		"one is cut short":     func(t *testing.T, f []string) { os.Truncate(f[3], int64(len(read(t, f[3]))-3)) },
		"one lost a record":    func(t *testing.T, f []string) { os.Truncate(f[3], int64(len(read(t, f[3]))-8-len(words(4)[3]))) },
		"one lost its header":  func(t *testing.T, f []string) { os.Truncate(f[3], 0) },
		"two are swapped":      func(t *testing.T, f []string) { b := read(t, f[3]); write(t, f[3], read(t, f[4])); write(t, f[4], b) },
		"one is foreign":       func(t *testing.T, f []string) { write(t, f[3], []byte(strings.Repeat("not a journal\n", 50))) },
		"the first is foreign": func(t *testing.T, f []string) { write(t, f[0], []byte("x")) },
		"one is of another run": func(t *testing.T, f []string) {
			_, files := fill(t, other)
			write(t, f[3], read(t, files[3]))
		},
		"a record is of another run": func(t *testing.T, f []string) {
			_, files := fill(t, other)
			mine, theirs := read(t, f[3]), read(t, files[3])
			rec := 8 + len(words(4)[3])
			write(t, f[3], append(mine[:len(mine)-rec], theirs[len(theirs)-rec:]...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, files := fill(t, header)
			if len(files) != 10 {
				t.Fatalf("%d segments", len(files))
			}
			harm(t, files)
			recs, err := readAll(dir)
			if !isCorrupt(err) {
				t.Errorf("read %d records, %v", len(recs), err)
			}
			if _, _, err := journal.Recover(dir, journal.Options{}); !isCorrupt(err) {
				t.Errorf("Recover: %v", err)
			}
		})
	}
}

func TestRecordsInEachOthersPlaceAreRefused(t *testing.T) {
	dir := t.TempDir()
	path := journalOf(t, dir, one("first one", "other one", "third one")...)
	all := read(t, path)
	const frame = 8 + len("first one")
	from := len(all) - 3*frame
	swapped := slices.Concat(all[:from], all[from+frame:from+2*frame], all[from:from+frame], all[from+2*frame:])
	write(t, path, swapped)
	if recs, err := readAll(dir); !isCorrupt(err) || len(recs) > 0 {
		t.Errorf("read %q, %v", recs, err)
	}
}

func TestWhatNoCrashLeavesIsRefusedAtTheEndToo(t *testing.T) {
	dir := t.TempDir()
	path := journalOf(t, dir, []string{"one"})
	all := read(t, path)
	write(t, path, append(slices.Clone(all), bytes.Repeat([]byte{0xff}, 50)...))
	if recs, err := readAll(dir); !isCorrupt(err) {
		t.Errorf("garbage: read %q, %v", recs, err)
	}

	// The zero byte of a length of 256 at the end of a sector is no hole.
	dir = t.TempDir()
	path = journalOf(t, dir, []string{strings.Repeat("p", 2*512-1-len(all)+len("one"))}, []string{strings.Repeat("r", 256)})
	all = read(t, path)
	if at := len(all) - 256 - 8; at%512 != 511 || all[at] != 0 {
		t.Fatalf("the frame begins at %d", at)
	}
	all[len(all)-1] ^= 1
	write(t, path, all)
	if recs, err := readAll(dir); !isCorrupt(err) {
		t.Errorf("read %d records, %v", len(recs), err)
	}
}

func TestAReaderForgetsATailThatWasCut(t *testing.T) {
	dir := t.TempDir()
	path := journalOf(t, dir, one("one", strings.Repeat("torn", 10))...)
	all := read(t, path)
	write(t, path, all[:len(all)-1])
	r, _, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, rec, err := r.Next(); err != nil || string(rec) != "one" {
		t.Fatalf("Next: %s, %v", rec, err)
	}
	if _, _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("Next at the torn record: %v", err)
	}
	appendAll(t, recoverIn(t, dir, journal.Options{}), "two and more")
	if cursor, rec, err := r.Next(); err != nil || cursor != 2 || string(rec) != "two and more" {
		t.Errorf("Next: %d, %q, %v", cursor, rec, err)
	}
}

func TestANewerFormatIsRefusedClearly(t *testing.T) {
	dir := t.TempDir()
	rec, err := json.Marshal(map[string]any{"format": 2, "first": 1, "colour": "blue"})
	if err != nil {
		t.Fatal(err)
	}
	frame := binary.LittleEndian.AppendUint32(nil, uint32(len(rec)))
	frame = binary.LittleEndian.AppendUint32(frame, crc32.Checksum(rec, crc32.MakeTable(crc32.Castagnoli)))
	frame = append(frame, rec...)
	write(t, filepath.Join(dir, fmt.Sprintf("%020d.seg", 1)), frame)
	_, _, err = journal.Open(dir)
	if tallyman.CodeOf(err) != tallyman.Unsupported || !strings.Contains(err.Error(), "format 2") {
		t.Errorf("Open: %v", err)
	}
	if _, _, err = journal.Recover(dir, journal.Options{}); tallyman.CodeOf(err) != tallyman.Unsupported {
		t.Errorf("Recover: %v", err)
	}
}
