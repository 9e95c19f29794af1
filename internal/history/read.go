package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tallyman-dev/tallyman"
)

// CorruptError says which events of a journal cannot be read.
type CorruptError struct {
	Journal     string
	First, Last uint64
	Err         error
}

// Error names the journal and the events.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("journal %s: events %d to %d are damaged: %v", e.Journal, e.First, e.Last, e.Err)
}

// Unwrap returns what is wrong with them.
func (e *CorruptError) Unwrap() error { return e.Err }

// Read calls fn with each event after that cursor, in order, at least up to
// the last that is stored when it is called. A line is good only during its
// call. No transaction is open meanwhile, so fn may be slow. Read stops at
// the first error of fn and returns it. A damaged block is a *CorruptError,
// after the events before it; a journal that is deleted meanwhile NotFound.
func (h *History) Read(ctx context.Context, journal string, after uint64, fn func(cursor uint64, line []byte) error) error {
	end, err := h.Next(ctx, journal)
	if err != nil {
		return err
	}
	buf := h.codec.buffer()
	defer h.codec.release(buf)
	for cursor := after + 1; cursor < end; {
		b, err := h.holding(ctx, h.reader, journal, cursor)
		if err != nil {
			return err
		}
		raw, err := h.codec.unpack((*buf)[:0], b)
		if err != nil {
			return &CorruptError{Journal: journal, First: b.first, Last: b.last, Err: err}
		}
		*buf = raw
		for n := b.first; n <= b.last; n++ {
			var line []byte
			line, raw = cut(raw)
			if n < cursor {
				continue
			}
			if err := fn(n, line); err != nil {
				return err
			}
		}
		cursor = b.last + 1
	}
	return nil
}

// errMissing is inside a CorruptError when there is no block.
var errMissing = errors.New("they are missing")

// holding returns the block that holds an event which was stored.
func (h *History) holding(ctx context.Context, q querier, journal string, cursor uint64) (block, error) {
	var b block
	err := q.QueryRowContext(ctx, h.sql.holding, journal, cursor).Scan(&b.first, &b.last, &b.raw, &b.data)
	if err == nil && b.last >= cursor {
		return b, nil
	}
	next := uint64(0)
	if err == nil || errors.Is(err, sql.ErrNoRows) {
		next, err = h.next(ctx, q, journal)
	}
	if err != nil {
		return b, fmt.Errorf("read journal %s: %w", journal, err)
	}
	if next == 1 {
		return b, tallyman.Errorf(tallyman.NotFound, "journal %s was deleted", journal)
	}
	return b, &CorruptError{Journal: journal, First: cursor, Last: cursor, Err: errMissing}
}
