package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// restBuffer is how much memory an idle writer keeps for its next commits.
const restBuffer = 256 << 10

// Writer appends to a journal. It may be used by many goroutines; a journal
// must have no other writer, which is the caller's lock to hold.
//
// The first error of a write or sync is final: what reached the disk is
// unknown from then on, so the writer refuses everything and Recover must
// look at what is there.
type Writer struct {
	dir  string
	head Header
	o    Options

	// The committer's own.
	file  *os.File
	seed  uint32
	off   int64 // where the next commit goes
	begin int64 // where the segment's records begin

	durable atomic.Uint64
	ended   chan struct{} // closed when the committer has ended

	mu      sync.Mutex
	work    sync.Cond // fill has records, or the writer is closing
	room    sync.Cond // pending has shrunk, or the writer is closing or poisoned
	fill    *batch    // takes records
	flight  *batch    // is being written, or nil
	spare   []byte
	next    uint64 // cursor of the next record
	pending int64  // bytes in fill and flight
	closing bool
	err     error
}

// batch is the records of one commit.
type batch struct {
	buf   []byte
	first uint64
	n     int
	done  chan struct{} // closed when it is durable, or err is set
	err   error
}

// Create makes a new journal in dir, and dir itself if need be. A dir that
// holds a journal is a Conflict.
func Create(dir string, h Header, o Options) (*Writer, error) {
	if h.Journal == "" {
		return nil, tallyman.Errorf(tallyman.Invalid, "create journal: it has no id")
	}
	o = o.withDefaults()
	if h.Created.IsZero() {
		h.Created = time.Now()
	}
	h.Created = h.Created.UTC().Round(0)
	firsts, err := segments(dir)
	if err != nil {
		return nil, err
	}
	if len(firsts) > 0 {
		return nil, tallyman.Errorf(tallyman.Conflict, "%s holds a journal already", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create journal: %w", err)
	}
	if err := syncDir(filepath.Dir(filepath.Clean(dir)), o); err != nil {
		return nil, fmt.Errorf("create journal: %w", err)
	}
	f, seed, off, err := createSegment(dir, h, 1, o)
	if err != nil {
		return nil, fmt.Errorf("create journal: %w", err)
	}
	return start(&Writer{dir: dir, head: h, o: o, file: f, seed: seed, off: off, begin: off, next: 1}), nil
}

// Recover opens the journal in dir to go on appending. It reads the whole of
// it, cuts off what a crash left of a commit that was never acknowledged, and
// refuses damage with a CorruptError, changing nothing. Records that had been
// written but not acknowledged may be kept; they are durable then.
func Recover(dir string, o Options) (*Writer, Header, error) {
	o = o.withDefaults()
	r, h, err := Open(dir)
	if err != nil {
		return nil, h, err
	}
	defer r.Close()
	last, _, err := r.drain()
	if err != nil {
		return nil, h, err
	}
	w := &Writer{dir: dir, head: h, o: o, seed: r.seed, off: r.off, begin: r.begin, next: last + 1}
	if err := w.mend(r.file.Name(), r.commit); err != nil {
		return nil, h, fmt.Errorf("recover journal: %w", err)
	}
	w.durable.Store(last)
	return start(w), h, nil
}

// mend opens the last segment, cuts it at off and makes the rest durable. Its
// last commit is written once more: a sync of it may have failed before, and
// then the kernel holds pages for clean that the disk never got.
func (w *Writer) mend(path string, commit int64) (err error) {
	if w.file, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			w.file.Close()
		}
	}()
	if err := w.o.Fault("truncate"); err != nil {
		return err
	}
	if err := w.file.Truncate(w.off); err != nil {
		return err
	}
	if err := rewrite(w.file, commit, w.off, w.o); err != nil {
		return err
	}
	if err := removeUnfinished(w.dir); err != nil {
		return err
	}
	return syncDir(w.dir, w.o)
}

func start(w *Writer) *Writer {
	w.work.L, w.room.L = &w.mu, &w.mu
	w.ended = make(chan struct{})
	w.fill = &batch{done: make(chan struct{})}
	go w.run()
	return w
}

// Add queues copies of the records under consecutive cursors, all or none,
// and returns the first of these. It blocks only while MaxPending bytes wait.
// The records are durable when Durable says so.
func (w *Writer) Add(recs ...[]byte) (first uint64, err error) {
	first, _, err = w.add(recs)
	return first, err
}

// Append is Add that waits until the records are durable. After an error it is
// unknown whether they are.
func (w *Writer) Append(recs ...[]byte) (first uint64, err error) {
	first, b, err := w.add(recs)
	if err != nil || len(recs) == 0 {
		return first, err
	}
	<-b.done
	return first, b.err
}

func (w *Writer) add(recs [][]byte) (uint64, *batch, error) {
	var size int64
	for _, rec := range recs {
		if len(rec) == 0 {
			return 0, nil, tallyman.Errorf(tallyman.Invalid, "append to journal: a record is empty")
		}
		if len(rec) > MaxRecord {
			return 0, nil, tallyman.Errorf(tallyman.TooLarge, "append to journal: a record has %d bytes, more than %d", len(rec), MaxRecord)
		}
		size += int64(frameHead + len(rec))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && !w.closing && w.pending > 0 && w.pending+size > w.o.MaxPending {
		w.room.Wait()
	}
	if w.err != nil {
		return 0, nil, w.err
	}
	if w.closing {
		return 0, nil, ErrClosed
	}
	first, b := w.next, w.fill
	if len(recs) == 0 {
		return first, b, nil
	}
	if b.n == 0 {
		b.first = first
		w.work.Signal()
	}
	for _, rec := range recs {
		b.buf = appendFrame(b.buf, rec)
	}
	b.n += len(recs)
	w.next += uint64(len(recs))
	w.pending += size
	return first, b, nil
}

// Durable is the highest cursor that is on disk, 0 before the first.
func (w *Writer) Durable() uint64 { return w.durable.Load() }

// Changed returns a channel that is closed when Durable moves, or when the
// writer is closed or poisoned (Err tells). Take it before looking at Durable,
// and a new one each time.
func (w *Writer) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.flight != nil {
		return w.flight.done
	}
	return w.fill.done
}

// Wait returns nil once cursor is durable, ctx's error when that ends before,
// and Err when it will never be.
func (w *Writer) Wait(ctx context.Context, cursor uint64) error {
	for {
		changed := w.Changed()
		if w.Durable() >= cursor {
			return nil
		}
		if err := w.Err(); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Err is nil while the writer works, ErrClosed after Close, and else what
// poisoned it.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// LowSpace reports whether the file system has less left than Options.Reserve
// and so many bytes more, or does not say. Without a reserve it never has.
func (w *Writer) LowSpace(more int64) bool {
	if w.o.Reserve <= 0 {
		return false
	}
	free, err := freeSpace(w.dir)
	return err != nil || free < w.o.Reserve+more
}

// Close makes what is queued durable and ends the writer. It returns what
// poisoned it, if anything did.
func (w *Writer) Close() error {
	w.mu.Lock()
	w.closing = true
	w.work.Signal()
	w.room.Broadcast()
	w.mu.Unlock()
	<-w.ended
	if err := w.Err(); !errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}

// run commits what is queued until the writer is closed or poisoned.
func (w *Writer) run() {
	defer close(w.ended)
	err := ErrClosed
	for last := 0; ; {
		b := w.take(last)
		if b == nil {
			break
		}
		last = b.n
		if err = w.commit(b); err != nil {
			err = fmt.Errorf("append to journal: %w", err)
			break
		}
		err = ErrClosed
		w.publish(b)
	}
	if closeErr := w.file.Close(); closeErr != nil && err == ErrClosed {
		err = fmt.Errorf("close journal: %w", closeErr)
	}
	w.fail(err)
}

// take waits for records and makes them the flight; nil: closed, none left.
// last is how many the commit before had.
func (w *Writer) take(last int) *batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.fill.n == 0 {
		if w.closing {
			return nil
		}
		if cap(w.spare) > restBuffer {
			w.spare = nil
		}
		w.work.Wait()
	}
	w.gather(last)
	b := w.fill
	w.flight = b
	w.fill = &batch{buf: w.spare[:0], done: make(chan struct{})}
	w.spare = nil
	return b
}

// gather lets those whom the last commit woke come back with their next
// records, as long as some do. Without it they split into two groups that
// wait for each other's sync.
func (w *Writer) gather(last int) {
	for idle := 0; idle < 2 && w.fill.n < last; {
		n := w.fill.n
		w.mu.Unlock()
		runtime.Gosched()
		w.mu.Lock()
		if w.fill.n == n {
			idle++
		} else {
			idle = 0
		}
	}
}

// commit makes a batch durable, in a new segment if it is time for one.
func (w *Writer) commit(b *batch) error {
	if w.off > w.begin && w.off+int64(len(b.buf)) > w.o.SegmentBytes {
		f, seed, off, err := createSegment(w.dir, w.head, b.first, w.o)
		if err != nil {
			return err
		}
		if err := w.file.Close(); err != nil {
			f.Close()
			return err
		}
		w.file, w.seed, w.off, w.begin = f, seed, off, off
	}
	seal(b.buf, w.seed, w.off)
	if err := writeSync(w.file, b.buf, w.off, w.o); err != nil {
		return err
	}
	w.off += int64(len(b.buf))
	return nil
}

// publish tells that a batch is durable.
func (w *Writer) publish(b *batch) {
	w.mu.Lock()
	w.durable.Store(b.first + uint64(b.n) - 1)
	w.flight = nil
	w.pending -= int64(len(b.buf))
	w.spare, b.buf = b.buf, nil
	w.room.Broadcast()
	w.mu.Unlock()
	close(b.done)
}

// fail ends the writer for good and tells everybody who waits.
func (w *Writer) fail(err error) {
	w.mu.Lock()
	w.err = err
	batches := []*batch{w.fill}
	if w.flight != nil {
		batches = append(batches, w.flight)
	}
	w.room.Broadcast()
	w.mu.Unlock()
	for _, b := range batches {
		b.err = err
		close(b.done)
	}
}
