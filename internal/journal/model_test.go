package journal_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallyman-dev/tallyman/internal/journal"
)

// TestAJournalIsASlice does random things to a journal and to a slice. A
// crash leaves the last segment with any size from what was durable on.
func TestAJournalIsASlice(t *testing.T) {
	base := t.TempDir()
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		dir := filepath.Join(base, fmt.Sprint(round))
		defer os.RemoveAll(dir)
		o := journal.Options{SegmentBytes: rapid.Int64Range(1, 4000).Draw(t, "segment")}
		w, err := journal.Create(dir, header, o)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { w.Close() }()
		var model []string
		var r *journal.Reader
		read := 0
		defer func() {
			if r != nil {
				r.Close()
			}
		}()
		reopen := func() {
			var h journal.Header
			if w, h, err = journal.Recover(dir, o); err != nil || h != header {
				t.Fatalf("recover: %+v, %v", h, err)
			}
		}
		draw := func() (recs [][]byte) {
			for range rapid.IntRange(1, 5).Draw(t, "records") {
				size := rapid.IntRange(1, 1200).Draw(t, "size")
				recs = append(recs, bytes.Repeat([]byte{byte('a' + len(model)%26)}, size))
				model = append(model, string(recs[len(recs)-1]))
			}
			return recs
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				want := uint64(len(model)) + 1
				if first, err := w.Append(draw()...); err != nil || first != want {
					t.Fatalf("append: %d, %v, want %d", first, err, want)
				}
			},
			"close": func(t *rapid.T) {
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				reopen()
			},
			"crash": func(t *rapid.T) {
				durable := len(model)
				sizes := sizes(dir)
				if _, err := w.Add(draw()...); err != nil {
					t.Fatal(err)
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				last := lastSegment(dir)
				info, err := os.Stat(last)
				if err != nil {
					t.Fatal(err)
				}
				// A segment has a durable header before it has a name.
				least := max(sizes[last], int64(headerBytes(last)))
				cut := rapid.Int64Range(least, info.Size()).Draw(t, "cut")
				if err := os.Truncate(last, cut); err != nil {
					t.Fatal(err)
				}
				reopen()
				kept := int(w.Durable())
				if kept < durable || kept > len(model) {
					t.Fatalf("%d records after the crash, %d were durable, %d written", kept, durable, len(model))
				}
				model = model[:kept]
				read = min(read, kept)
			},
			"follow": func(t *rapid.T) {
				if r == nil {
					if r, _, err = journal.Open(dir); err != nil {
						t.Fatal(err)
					}
				}
				for range rapid.IntRange(1, 20).Draw(t, "steps") {
					cursor, rec, err := r.Next()
					if errors.Is(err, io.EOF) && read == len(model) {
						return
					}
					if err != nil || int(cursor) != read+1 || string(rec) != model[read] {
						t.Fatalf("next: %d, %d bytes, %v; %d of %d read", cursor, len(rec), err, read, len(model))
					}
					read++
				}
			},
			"seek": func(t *rapid.T) {
				if r == nil {
					return
				}
				read = rapid.IntRange(0, len(model)).Draw(t, "after")
				if err := r.Seek(uint64(read)); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				got, err := readAll(dir)
				if err != nil || strings.Join(got, "|") != strings.Join(model, "|") {
					t.Fatalf("%d records, want %d, %v", len(got), len(model), err)
				}
			},
		})
	})
}

func sizes(dir string) map[string]int64 {
	sizes := map[string]int64{}
	files, _ := filepath.Glob(filepath.Join(dir, "*.seg"))
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			sizes[f] = info.Size()
		}
	}
	return sizes
}

func lastSegment(dir string) string {
	files, _ := filepath.Glob(filepath.Join(dir, "*.seg"))
	return files[len(files)-1]
}

func headerBytes(path string) int {
	b, _ := os.ReadFile(path)
	return 8 + int(binary.LittleEndian.Uint32(b))
}

// FuzzReader feeds the decoder a segment behind a good header and first
// record: it must not fail in another way than with a CorruptError, must give
// no record that was not framed, and Recover must agree with it.
func FuzzReader(f *testing.F) {
	dir := f.TempDir()
	path := journalOf(f, dir, []string{"first"}, []string{"second", "third"}, []string{strings.Repeat("4", 700)})
	all := read(f, path)
	skip := headerBytes(path)
	for _, tail := range [][]byte{
		nil, all[skip:], all[skip : len(all)-5], all[skip:][:3], make([]byte, 600),
		append(bytes.Clone(all[skip:]), 0, 0, 0, 0, 0, 0, 0, 0, 0), bytes.Repeat([]byte{0x80, 0, 0, 0}, 300),
		append(bytes.Clone(all[skip:]), 0xff, 0xff, 0xff, 0x07, 1, 2, 3, 4, 5),
	} {
		f.Add(tail)
	}
	known := map[string]bool{"first": true, "second": true, "third": true, strings.Repeat("4", 700): true}
	f.Fuzz(func(t *testing.T, tail []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, filepath.Base(path))
		write(t, path, append(bytes.Clone(all[:skip]), tail...))
		recs, err := readAll(dir)
		if err != nil && !isCorrupt(err) {
			t.Fatal(err)
		}
		for _, rec := range recs {
			if !known[rec] {
				t.Fatalf("a record out of nothing: %q", rec)
			}
		}
		w, _, rerr := journal.Recover(dir, journal.Options{})
		if (err == nil) != (rerr == nil) {
			t.Fatalf("reading says %v, recovery %v", err, rerr)
		}
		if rerr == nil {
			appendAll(t, w, "more")
			w.Close()
			wantRecords(t, dir, append(recs, "more")...)
		}
	})
}
