package history

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tallyman-dev/tallyman"
)

// GapError refuses events that do not follow those that are stored.
type GapError = tallyman.GapError

// Append stores events, of which the first has the cursor from, and returns
// the cursor after the journal's last. They are on the disk when it returns
// nil; after another error of the database send them again. Events that are
// stored already are compared: equal ones are skipped, others are a Conflict
// and nothing is stored. A gap is a *GapError. A line with a newline in it is
// Invalid, one above MaxLine TooLarge. The lines may be reused afterwards.
func (h *History) Append(ctx context.Context, journal string, from uint64, lines [][]byte) (next uint64, err error) {
	if err := checkLines(journal, from, lines); err != nil {
		return 0, err
	}
	blocks := h.codec.pack(from, lines)
	var refused error
	added := false
	err = h.writer.Do(ctx, func(ctx context.Context, tx *sql.Tx) error {
		next, err = h.next(ctx, tx, journal)
		if err != nil {
			return err
		}
		if from > next {
			refused = &GapError{Journal: journal, Expected: next}
			return nil
		}
		if known := next - from; known > 0 {
			overlap := min(known, uint64(len(lines)))
			refused, err = h.compare(ctx, tx, journal, from, lines[:overlap])
			if err != nil || refused != nil {
				return err
			}
			blocks = h.codec.pack(next, lines[overlap:])
		}
		for _, b := range blocks {
			if _, err := tx.ExecContext(ctx, h.sql.insert, journal, b.first, b.last, b.raw, b.data); err != nil {
				return err
			}
			next, added = b.last+1, true
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("append to journal %s: %w", journal, err)
	}
	if added {
		h.notify(journal)
	}
	if refused != nil {
		return 0, refused
	}
	return next, nil
}

func checkLines(journal string, from uint64, lines [][]byte) error {
	if journal == "" || from == 0 || from > 1<<62 {
		return tallyman.Errorf(tallyman.Invalid, "events need a journal and a cursor from 1, not %q and %d", journal, from)
	}
	for i, line := range lines {
		if len(line) > MaxLine {
			return tallyman.Errorf(tallyman.TooLarge, "event %d of journal %s has %d bytes, more than %d", from+uint64(i), journal, len(line), MaxLine)
		}
		if bytes.IndexByte(line, '\n') >= 0 {
			return tallyman.Errorf(tallyman.Invalid, "event %d of journal %s has a newline in it", from+uint64(i), journal)
		}
	}
	return nil
}

// compare holds lines against the stored events from there on, all of which
// exist. refused says where they differ.
func (h *History) compare(ctx context.Context, q querier, journal string, from uint64, lines [][]byte) (refused, err error) {
	buf := h.codec.buffer()
	defer h.codec.release(buf)
	cursor := from
	for len(lines) > 0 {
		b, err := h.holding(ctx, q, journal, cursor)
		var corrupt *CorruptError
		if errors.As(err, &corrupt) {
			return corrupt, nil
		}
		if err != nil {
			return nil, err
		}
		raw, err := h.codec.unpack((*buf)[:0], b)
		if err != nil {
			return &CorruptError{Journal: journal, First: b.first, Last: b.last, Err: err}, nil
		}
		*buf = raw
		for n := b.first; n <= b.last && len(lines) > 0; n++ {
			var line []byte
			line, raw = cut(raw)
			if n < cursor {
				continue
			}
			if !bytes.Equal(line, lines[0]) {
				return tallyman.Errorf(tallyman.Conflict, "event %d of journal %s is stored with other bytes", n, journal), nil
			}
			lines = lines[1:]
		}
		cursor = b.last + 1
	}
	return nil, nil
}
