package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Compact merges the journal's blocks into such of about 256 kB of events.
// It may be called at any time, more than once, and beside everything else; a
// crash leaves the journal as it was or better. Its place is after the end of
// the attempt that wrote the journal.
func (h *History) Compact(ctx context.Context, journal string) error {
	for from := uint64(1); from != 0; {
		group, next, err := h.group(ctx, journal, from)
		if err == nil && len(group) > 1 {
			err = h.merge(ctx, journal, group)
		}
		if err != nil {
			return fmt.Errorf("compact journal %s: %w", journal, err)
		}
		from = next
	}
	return nil
}

// maxMerged bounds how many blocks are made one at a time.
const maxMerged = 2048

// group returns the blocks from there on that fit in one, at least one, and
// the first event after them, 0 when there is none.
func (h *History) group(ctx context.Context, journal string, from uint64) (group []block, next uint64, err error) {
	rows, err := h.reader.QueryContext(ctx, h.sql.from, journal, from, maxMerged)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	size := 0
	for rows.Next() {
		var b block
		if err := rows.Scan(&b.first, &b.last, &b.raw); err != nil {
			return nil, 0, err
		}
		if size += b.raw + 1; len(group) > 0 && (size > maxBlock || b.first != group[len(group)-1].last+1) {
			return group, b.first, nil
		}
		group = append(group, b)
	}
	if len(group) == maxMerged {
		next = group[maxMerged-1].last + 1
	}
	return group, next, rows.Err()
}

// merge makes one block of several. When they are not all there any more,
// somebody else has merged or deleted them and nothing is done.
func (h *History) merge(ctx context.Context, journal string, group []block) error {
	buf := h.codec.buffer()
	defer h.codec.release(buf)
	first, last := group[0].first, group[len(group)-1].last
	raw := (*buf)[:0]
	for cursor := first; cursor <= last; {
		b, err := h.holding(ctx, h.reader, journal, cursor)
		if err != nil {
			return err
		}
		if cursor > first {
			raw = append(raw, '\n')
		}
		if raw, err = h.codec.unpack(raw, b); err != nil {
			return &CorruptError{Journal: journal, First: b.first, Last: b.last, Err: err}
		}
		cursor = b.last + 1
	}
	*buf = raw
	merged := h.codec.encode(first, last, raw)
	return h.writer.Do(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var n int
		if err := tx.QueryRowContext(ctx, h.sql.count, journal, first, last).Scan(&n); err != nil || n != len(group) {
			return err
		}
		if _, err := tx.ExecContext(ctx, h.sql.remove, journal, first, last); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, h.sql.insert, journal, merged.first, merged.last, merged.raw, merged.data)
		return err
	})
}
