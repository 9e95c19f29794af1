package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// Detail is what a run was asked with: too large, or too seldom read, to
// travel with it.
type Detail struct {
	Spec    []byte // the agent's spec as it applies, JSON
	Request []byte // the request as it came, JSON
	Prompt  string // byte for byte; empty when it is a blob
	// PromptBlob is the digest of a prompt above tallyman.MaxInline.
	PromptBlob string
	PromptSize int64 // bytes, wherever they are
}

const runColumns = bornColumns + `, ` + changingColumns

var (
	insertRun = `INSERT INTO runs (` + runColumns + `, queue_order, id_reversed, search) VALUES (`
	putRun    = `UPDATE runs SET ` + sets(changingColumns) + `, queue_order = ? WHERE id = ? AND version = ?`
)

func runByID(ctx context.Context, c conn, id string) (tallyman.Run, error) {
	r, found, err := first(ctx, c, scanRun, `SELECT `+runColumns+` FROM runs WHERE id = ?`, id)
	if err != nil {
		return r, fmt.Errorf("read run %s: %w", id, err)
	}
	if !found {
		return r, noRun(id)
	}
	return r, nil
}

func noRun(id string) error { return tallyman.Errorf(tallyman.NotFound, "no run %q", id) }

// InsertRun adds a run and what it was asked with. Conflict when the id is
// taken.
func (tx *Tx) InsertRun(r tallyman.Run, d Detail) error {
	return tx.do("InsertRun", func() error {
		fields := append(bornFields(&r), changingFields(&r, waitingOf(r))...)
		fields = append(fields, -r.Priority, reverse(r.ID), searchText(r, d))
		n, err := tx.conn.exec(tx.ctx, insertRun+marks(len(fields))+`) ON CONFLICT DO NOTHING`, fields...)
		if err != nil {
			return fmt.Errorf("insert run %s: %w", r.ID, err)
		}
		if n == 0 {
			return tallyman.Errorf(tallyman.Conflict, "run %s exists already", r.ID)
		}
		tx.counts[count{r.Namespace, r.State}]++
		_, err = tx.conn.exec(tx.ctx, `INSERT INTO run_details (run_id, prompt_blob, prompt_size, spec, request, prompt)
			VALUES (?, ?, ?, ?, ?, ?)`, r.ID, d.PromptBlob, d.PromptSize, d.Spec, d.Request, []byte(d.Prompt))
		if err != nil {
			return fmt.Errorf("insert details of run %s: %w", r.ID, err)
		}
		for key, value := range r.Labels {
			_, err := tx.conn.exec(tx.ctx, `INSERT INTO run_labels (run_id, key, value, namespace, created_at)
				VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`, r.ID, text{&key}, text{&value}, r.Namespace, at{&r.CreatedAt})
			if err != nil {
				return fmt.Errorf("insert label %q of run %s: %w", key, r.ID, err)
			}
		}
		return nil
	})
}

// PutRun writes what changes about a run: everything but id, namespace, name,
// agent, harness, source, parent, key, labels, created_at and limits. It is
// Conflict when the run is not at wasVersion any more: decide again. The next
// version must be wasVersion+1.
func (tx *Tx) PutRun(next tallyman.Run, wasVersion int64) error {
	return tx.do("PutRun", func() error {
		if next.Version != wasVersion+1 {
			return tallyman.Errorf(tallyman.Internal, "run %s: version %d cannot follow %d", next.ID, next.Version, wasVersion)
		}
		was, found, err := first(tx.ctx, tx.conn, scanCount, `SELECT namespace, state FROM runs WHERE id = ?`, next.ID)
		if err != nil {
			return fmt.Errorf("read run %s: %w", next.ID, err)
		}
		if !found {
			return noRun(next.ID)
		}
		fields := append(changingFields(&next, waitingOf(next)), -next.Priority, next.ID, wasVersion)
		n, err := tx.conn.exec(tx.ctx, putRun, fields...)
		if err != nil {
			return fmt.Errorf("write run %s: %w", next.ID, err)
		}
		if n == 0 {
			return tallyman.Errorf(tallyman.Conflict, "run %s is not at version %d any more", next.ID, wasVersion)
		}
		tx.counts[was]--
		tx.counts[count{was.namespace, next.State}]++
		return nil
	})
}

// DeleteRun deletes a run with its details, attempts, timeline and artifacts'
// rows, or returns NotFound. Its idempotency key stays. Journals and blobs
// are elsewhere: ask for them before.
func (tx *Tx) DeleteRun(id string) error {
	return tx.do("DeleteRun", func() error {
		was, found, err := first(tx.ctx, tx.conn, scanCount, `SELECT namespace, state FROM runs WHERE id = ?`, id)
		if err != nil {
			return fmt.Errorf("read run %s: %w", id, err)
		}
		if !found {
			return noRun(id)
		}
		if _, err := tx.conn.exec(tx.ctx, `DELETE FROM runs WHERE id = ?`, id); err != nil {
			return fmt.Errorf("delete run %s: %w", id, err)
		}
		tx.counts[was]--
		return nil
	})
}

// RunIDsEndedBefore returns up to limit runs that ended before then, the
// longest ago first. A run whose processes may still live is not among them.
func (tx *Tx) RunIDsEndedBefore(then time.Time, limit int) (ids []string, err error) {
	err = tx.do("RunIDsEndedBefore", func() error {
		ids, err = all(tx.ctx, tx.conn, scanString, `SELECT id FROM runs
			WHERE ended_at IS NOT NULL AND ended_at < ?
			AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.run_id = runs.id AND NOT a.gone)
			ORDER BY ended_at, id LIMIT ?`, at{&then}, limit)
		if err != nil {
			return fmt.Errorf("list runs that ended: %w", err)
		}
		return nil
	})
	return ids, err
}

func scanCount(from row) (c count, err error) {
	err = from.Scan(&c.namespace, &c.state)
	return c, err
}

// flushCounts writes what the transaction did to the number of runs by state.
func (tx *Tx) flushCounts() error {
	for c, n := range tx.counts {
		if n == 0 {
			continue
		}
		_, err := tx.conn.exec(tx.ctx, `INSERT INTO run_counts (namespace, state, n) VALUES (?, ?, ?)
			ON CONFLICT (namespace, state) DO UPDATE SET n = run_counts.n + excluded.n`, c.namespace, c.state, n)
		if err != nil {
			return fmt.Errorf("count runs: %w", err)
		}
	}
	return nil
}

// Run finds a run by its id, by its name or NAMESPACE/NAME (the newest of that
// name), or by the beginning or end of its id, at least six long and in either
// case. NotFound when there is none; Conflict, naming some, when a part fits
// several.
func (s *Store) Run(ctx context.Context, idOrName string) (r tallyman.Run, err error) {
	err = s.snapshot(ctx, "Run", func(c conn) error {
		if r, err = findRun(ctx, c, idOrName); err != nil {
			return err
		}
		found := []tallyman.Run{r}
		if err := countPositions(ctx, c, found); err != nil {
			return err
		}
		r = found[0]
		return nil
	})
	return r, err
}

func findRun(ctx context.Context, c conn, idOrName string) (tallyman.Run, error) {
	r, found, err := first(ctx, c, scanRun, `SELECT `+runColumns+` FROM runs WHERE id IN (?, ?)`, clean(idOrName), clean(strings.ToUpper(idOrName)))
	if err == nil && !found {
		r, found, err = runNamed(ctx, c, idOrName)
	}
	if err != nil {
		return r, fmt.Errorf("read run %q: %w", idOrName, err)
	}
	if found {
		return r, nil
	}
	ids, err := idsWithPart(ctx, c, strings.ToUpper(idOrName))
	switch {
	case err != nil:
		return r, fmt.Errorf("read run %q: %w", idOrName, err)
	case len(ids) == 0:
		return r, noRun(idOrName)
	case len(ids) > 1:
		more := ""
		if len(ids) > maxCandidates {
			ids, more = ids[:maxCandidates], " …"
		}
		return r, tallyman.Errorf(tallyman.Conflict, "%q may be any of %s%s", idOrName, strings.Join(ids, ", "), more)
	}
	return runByID(ctx, c, ids[0])
}

// runNamed finds the newest run of a name, in any namespace or in the one that
// stands before it.
func runNamed(ctx context.Context, c conn, name string) (r tallyman.Run, found bool, err error) {
	spaces, args := `SELECT namespace FROM run_counts`, []any{}
	if namespace, within, ok := strings.Cut(name, "/"); ok {
		spaces, args, name = `?`, append(args, clean(namespace)), within
	}
	return first(ctx, c, scanRun, `SELECT `+runColumns+` FROM runs
		WHERE namespace IN (`+spaces+`) AND name = ? ORDER BY created_at DESC, id DESC LIMIT 1`, append(args, clean(name))...)
}

const (
	idLength      = 26
	minPart       = 6
	maxCandidates = 5
	idAlphabet    = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
)

// idsWithPart returns some of the ids that begin or end with part.
func idsWithPart(ctx context.Context, c conn, part string) ([]string, error) {
	if len(part) < minPart || len(part) >= idLength || strings.Trim(part, idAlphabet) != "" {
		return nil, nil
	}
	rest := idLength - len(part)
	low, high := strings.Repeat("0", rest), strings.Repeat("Z", rest)
	begin, err := all(ctx, c, scanString, `SELECT id FROM runs WHERE id >= ? AND id <= ? ORDER BY id DESC LIMIT ?`,
		part+low, part+high, maxCandidates+1)
	if err != nil {
		return nil, err
	}
	end, err := all(ctx, c, scanString, `SELECT id FROM runs WHERE id_reversed >= ? AND id_reversed <= ? ORDER BY id_reversed LIMIT ?`,
		reverse(part)+low, reverse(part)+high, maxCandidates+1)
	if err != nil {
		return nil, err
	}
	ids := append(begin, end...)
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

func reverse(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

// Detail returns what the run with that id was asked with, or NotFound.
func (s *Store) Detail(ctx context.Context, id string) (d Detail, err error) {
	err = s.read(ctx, "Detail", func(c conn) error {
		var found bool
		d, found, err = first(ctx, c, scanDetail, `SELECT prompt_blob, prompt_size, spec, request, prompt
			FROM run_details WHERE run_id = ?`, id)
		if err != nil {
			return fmt.Errorf("read details of run %s: %w", id, err)
		}
		if !found {
			return noRun(id)
		}
		return nil
	})
	return d, err
}

func scanDetail(from row) (d Detail, err error) {
	err = from.Scan(&d.PromptBlob, &d.PromptSize, &d.Spec, &d.Request, text{&d.Prompt})
	return d, err
}
