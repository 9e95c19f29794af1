// Package history keeps what journals tell, by journal id, long after the
// machine that wrote them is gone. A journal's events are lines, numbered
// from 1 without gaps; they are stored in blocks, compressed, one row each.
//
// A journal that nobody appends to or watches costs no memory.
package history

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"sync"

	"github.com/tallyman-dev/tallyman/internal/database"
)

// History is the event store in one database. Its methods may be called at
// the same time.
type History struct {
	writer *database.Writer
	reader *sql.DB
	codec  *codec
	sql    statements

	mu      sync.Mutex
	watches map[string]map[*Watch]struct{} // by journal; under mu
}

//go:embed migrations/*.sql
var migrations embed.FS

// Open brings the schema up to date and returns the store. Of writer at most
// one connection is used at a time. Both pools stay the caller's to close,
// when no call is in flight. A schema that a newer version made is
// Unsupported.
func Open(ctx context.Context, writing, reading *sql.DB, d database.Dialect) (*History, error) {
	if err := database.Migrate(ctx, writing, d, migrations, "history_migrations"); err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	c, err := newCodec()
	if err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	return &History{
		writer: database.NewWriter(writing, d), reader: reading, codec: c, sql: statementsOf(d),
		watches: map[string]map[*Watch]struct{}{},
	}, nil
}

// statements are the store's SQL as the engine reads it.
type statements struct {
	last, holding, insert, from, count, remove, drop, sizes string
}

func statementsOf(d database.Dialect) statements {
	return statements{
		last:    d.Bind(`SELECT last FROM blocks WHERE journal = ? ORDER BY first DESC LIMIT 1`),
		holding: d.Bind(`SELECT first, last, raw, data FROM blocks WHERE journal = ? AND first <= ? ORDER BY first DESC LIMIT 1`),
		insert:  d.Bind(`INSERT INTO blocks (journal, first, last, raw, data) VALUES (?, ?, ?, ?, ?)`),
		from:    d.Bind(`SELECT first, last, raw FROM blocks WHERE journal = ? AND first >= ? ORDER BY first LIMIT ?`),
		count:   d.Bind(`SELECT count(*) FROM blocks WHERE journal = ? AND first >= ? AND last <= ?`),
		remove:  d.Bind(`DELETE FROM blocks WHERE journal = ? AND first >= ? AND last <= ?`),
		drop:    d.Bind(`DELETE FROM blocks WHERE journal = ?`),
		sizes: d.Bind(`SELECT journal, count(*), CAST(SUM(last - first + 1) AS BIGINT), CAST(SUM(raw) AS BIGINT), CAST(SUM(LENGTH(data)) AS BIGINT)
			FROM blocks WHERE journal > ? GROUP BY journal ORDER BY journal LIMIT ?`),
	}
}

// querier is a database or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Next returns the cursor that the journal's next event will have: 1 for a
// journal that is not known.
func (h *History) Next(ctx context.Context, journal string) (uint64, error) {
	next, err := h.next(ctx, h.reader, journal)
	if err != nil {
		return 0, fmt.Errorf("read journal %s: %w", journal, err)
	}
	return next, nil
}

func (h *History) next(ctx context.Context, q querier, journal string) (uint64, error) {
	var last uint64
	err := q.QueryRowContext(ctx, h.sql.last, journal).Scan(&last)
	if errors.Is(err, sql.ErrNoRows) {
		return 1, nil
	}
	return last + 1, err
}

// Delete deletes the journals; those that are not known are no error. Each
// goes whole or not at all. A watch on one of them sees nothing.
func (h *History) Delete(ctx context.Context, journals ...string) error {
	for _, journal := range journals {
		err := h.writer.Do(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, h.sql.drop, journal)
			return err
		})
		if err != nil {
			return fmt.Errorf("delete journal %s: %w", journal, err)
		}
	}
	return nil
}

// Size says how much a journal holds.
type Size struct {
	Blocks int64
	Events int64
	Raw    int64 // bytes of the events
	Stored int64 // bytes of the compressed blocks
}

// Journals calls fn for every journal, by id, with no transaction open: fn
// may delete. It stops at the first error, which it returns.
func (h *History) Journals(ctx context.Context, fn func(journal string, s Size) error) error {
	const page = 500
	type entry struct {
		journal string
		size    Size
	}
	for after := ""; ; {
		rows, err := h.reader.QueryContext(ctx, h.sql.sizes, after, page)
		if err != nil {
			return fmt.Errorf("list journals: %w", err)
		}
		var entries []entry
		for rows.Next() {
			var e entry
			if err = rows.Scan(&e.journal, &e.size.Blocks, &e.size.Events, &e.size.Raw, &e.size.Stored); err != nil {
				break
			}
			entries = append(entries, e)
		}
		if err = errors.Join(err, rows.Err(), rows.Close()); err != nil {
			return fmt.Errorf("list journals: %w", err)
		}
		for _, e := range entries {
			if err := fn(e.journal, e.size); err != nil {
				return err
			}
			after = e.journal
		}
		if len(entries) < page {
			return nil
		}
	}
}

// Total returns the sum over all journals, and how many there are.
func (h *History) Total(ctx context.Context) (sum Size, journals int, err error) {
	err = h.Journals(ctx, func(_ string, s Size) error {
		sum.Blocks += s.Blocks
		sum.Events += s.Events
		sum.Raw += s.Raw
		sum.Stored += s.Stored
		journals++
		return nil
	})
	return sum, journals, err
}
