package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/tallyman-dev/tallyman"
)

const (
	readChunk = 128 << 10
	roomy     = 16 // chunks in a row that a larger buffer outlives what it was made for
)

// Reader reads a journal from its beginning, while it is written or long
// after. It never changes anything, and it is for one goroutine.
//
// A reader sees what is in the files, which may be ahead of what is durable:
// read no further than Writer.Durable, or wait for the runner's exit.
type Reader struct {
	dir  string
	head Header

	file   *os.File
	first  uint64 // cursor that names the segment
	seed   uint32
	off    int64 // of the next frame in the file
	begin  int64 // where its records begin
	commit int64 // where the last commit read begins

	next uint64 // cursor of the next record
	buf  []byte // of the file, from off on
	mem  []byte // what buf is a part of
	lean int    // how many chunks in a row would have fitted in much less
	bad  error  // damage stays
}

// Open opens the journal in dir. Without one there the error is NotFound, for
// a newer format Unsupported, for a damaged header a CorruptError.
func Open(dir string) (*Reader, Header, error) {
	firsts, err := segments(dir)
	if err != nil {
		return nil, Header{}, err
	}
	if len(firsts) == 0 {
		return nil, Header{}, errNoJournal(dir)
	}
	r := &Reader{dir: dir}
	if firsts[0] != 1 {
		return nil, Header{}, &CorruptError{File: segmentPath(dir, 1), Cursor: 1, Err: errors.New("the segment is missing")}
	}
	if err := r.enter(1); err != nil {
		return nil, r.head, err
	}
	return r, r.head, nil
}

// Next returns the next record, valid until the following call, and its
// cursor. At the end of what has been written it returns io.EOF and may be
// called again; a record that is half written, or was torn by a crash, is not
// there yet. Damage is a CorruptError, then and ever after.
func (r *Reader) Next() (cursor uint64, rec []byte, err error) {
	if r.bad != nil {
		return 0, nil, r.bad
	}
	for {
		rec, whole, err := r.frame()
		if err != nil {
			return 0, nil, err
		}
		if whole {
			r.next++
			return r.next - 1, rec, nil
		}
		if err := r.end(); err != nil {
			return 0, nil, err
		}
	}
}

// Seek makes after+1 the next cursor. A journal that ends before after is an
// Invalid error: it may have lost what the caller has seen.
func (r *Reader) Seek(after uint64) error {
	firsts, err := segments(r.dir)
	if err != nil {
		return err
	}
	into := uint64(1)
	for _, first := range firsts {
		if first <= after+1 {
			into = first
		}
	}
	if r.bad != nil || into != r.first || r.next > after+1 {
		if err := r.enter(into); err != nil {
			return err
		}
	}
	for r.next <= after {
		_, _, err := r.Next()
		if errors.Is(err, io.EOF) {
			return tallyman.Errorf(tallyman.Invalid, "the journal ends at %d, before %d", r.next-1, after)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Close closes the reader.
func (r *Reader) Close() error { return r.file.Close() }

// drain reads to the end and returns the last cursor and a copy of its record.
func (r *Reader) drain() (last uint64, rec []byte, err error) {
	for {
		cursor, b, err := r.Next()
		if errors.Is(err, io.EOF) {
			return last, rec, nil
		}
		if err != nil {
			return last, rec, err
		}
		last, rec = cursor, append(rec[:0], b...)
	}
}

// enter opens the segment that begins with a cursor and reads its header.
func (r *Reader) enter(first uint64) error {
	path := segmentPath(r.dir, first)
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	n := Reader{dir: r.dir, head: r.head, file: f, first: first, next: first, mem: r.mem, lean: r.lean}
	if err := n.header(path); err != nil {
		f.Close()
		if unread := new(fs.PathError); errors.As(err, &unread) || tallyman.CodeOf(err) == tallyman.Unsupported {
			return err
		}
		return r.corrupt(path, 0, first, err)
	}
	if r.file != nil {
		r.file.Close()
	}
	*r = n
	return nil
}

// header reads and checks the header of the segment just opened.
func (r *Reader) header(path string) error {
	rec, whole, err := r.frame()
	if err != nil {
		return err
	}
	if !whole {
		return errors.New("not a segment of a journal, or its header is damaged")
	}
	seed := checksum(0, 0, rec)
	h, err := decodeHeader(rec, path)
	if err != nil {
		return err
	}
	if h.First != r.first {
		return fmt.Errorf("its header says that it begins with record %d", h.First)
	}
	if r.first > 1 && !h.same(r.head) {
		return fmt.Errorf("it belongs to journal %s of run %s, attempt %d", h.Journal, h.Run, h.Attempt)
	}
	r.head, r.seed, r.begin, r.commit = h.Header, seed, r.off, r.off
	return nil
}

// frame takes the whole record at off, if one is there.
func (r *Reader) frame() (rec []byte, whole bool, err error) {
	if err := r.need(frameHead); err != nil {
		return nil, false, err
	}
	if len(r.buf) >= frameHead {
		if n := binary.LittleEndian.Uint32(r.buf); n <= MaxRecord {
			if err := r.need(frameHead + int(n)); err != nil {
				return nil, false, err
			}
		}
	}
	rec, begins, err := parse(r.buf, r.seed, r.off)
	if err != nil {
		return nil, false, nil
	}
	if begins {
		r.commit = r.off
	}
	r.off += int64(frameHead + len(rec))
	r.buf = r.buf[frameHead+len(rec):]
	return rec, true, nil
}

// need fills buf up to n bytes, or as many as the file has.
func (r *Reader) need(n int) error {
	if len(r.buf) >= n {
		return nil
	}
	room := readChunk
	if n > room {
		// A length that was read from a damaged file must not cost memory.
		info, err := r.file.Stat()
		if err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
		room = max(room, int(min(int64(n), info.Size()-r.off)))
	}
	if r.lean++; len(r.mem) <= 4*room {
		r.lean = 0
	}
	if room > len(r.mem) || r.lean > roomy {
		r.lean = 0
		mem := make([]byte, room)
		copy(mem, r.buf)
		r.mem = mem
	} else {
		copy(r.mem, r.buf)
	}
	have := len(r.buf)
	got, err := r.file.ReadAt(r.mem[have:], r.off+int64(have))
	r.buf = r.mem[:have+got]
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read journal: %w", err)
	}
	return nil
}

// end finds out why there is no whole record at off. It returns nil when
// there is one by now, or the next segment has been entered.
func (r *Reader) end() error {
	// In this order: a writer that has begun the next segment never comes
	// back to this one.
	later, err := r.later()
	if err != nil {
		return err
	}
	tail, err := io.ReadAll(io.NewSectionReader(r.file, r.off, 1<<62))
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	r.buf = nil
	_, _, cause := parse(tail, r.seed, r.off)
	switch {
	case cause == nil:
		return nil
	case later == r.next && len(tail) == 0:
		return r.enter(later)
	case later != 0 && len(tail) == 0:
		cause = fmt.Errorf("it is missing: the next segment begins with record %d", later)
	case later == 0 && len(tail) == 0:
		return io.EOF
	case later == 0:
		if cause = inspect(tail, r.seed, r.off); cause == nil {
			return io.EOF
		}
	}
	return r.corrupt(r.file.Name(), r.off, r.next, cause)
}

// later returns the first cursor of the segment after this one, 0 if none.
func (r *Reader) later() (uint64, error) {
	firsts, err := segments(r.dir)
	if err != nil {
		return 0, err
	}
	for _, first := range firsts {
		if first > r.first {
			return first, nil
		}
	}
	return 0, nil
}

func (r *Reader) corrupt(file string, off int64, cursor uint64, cause error) error {
	r.bad = &CorruptError{File: file, Offset: off, Cursor: cursor, Err: cause}
	return r.bad
}
