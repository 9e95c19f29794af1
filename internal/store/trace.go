package store

import (
	"context"
	"fmt"

	"github.com/tallyman-dev/tallyman"
)

// Timeline returns what the server decided and saw about a run, in the order
// in which it was written.
func (s *Store) Timeline(ctx context.Context, runID string) (items []tallyman.TimelineEntry, err error) {
	err = s.read(ctx, "Timeline", func(c conn) error {
		items, err = all(ctx, c, scanEntry, `SELECT at, attempt, kind, message, data FROM timeline WHERE run_id = ? ORDER BY seq`, runID)
		if err != nil {
			return fmt.Errorf("read timeline of run %s: %w", runID, err)
		}
		return nil
	})
	return items, err
}

func scanEntry(from row) (e tallyman.TimelineEntry, err error) {
	err = from.Scan(at{&e.At}, &e.Attempt, &e.Kind, text{&e.Message}, (*[]byte)(&e.Data))
	return e, err
}

// Timeline adds an entry to a run's timeline.
func (tx *Tx) Timeline(runID string, e tallyman.TimelineEntry) error {
	return tx.do("Timeline", func() error {
		_, err := tx.conn.exec(tx.ctx, `INSERT INTO timeline (run_id, seq, at, attempt, kind, message, data)
			VALUES (?, (SELECT COALESCE(MAX(seq), 0) + 1 FROM timeline WHERE run_id = ?), ?, ?, ?, ?, ?)`,
			runID, runID, at{&e.At}, e.Attempt, e.Kind, text{&e.Message}, []byte(e.Data))
		if err != nil {
			return fmt.Errorf("write timeline of run %s: %w", runID, err)
		}
		return nil
	})
}

// Artifacts returns what the run's attempts left behind, by attempt and name.
func (s *Store) Artifacts(ctx context.Context, runID string) (items []tallyman.Artifact, err error) {
	err = s.read(ctx, "Artifacts", func(c conn) error {
		items, err = all(ctx, c, scanArtifact, `SELECT run_id, attempt, name, size, digest, at FROM artifacts
			WHERE run_id = ? ORDER BY attempt, name`, runID)
		if err != nil {
			return fmt.Errorf("list artifacts of run %s: %w", runID, err)
		}
		return nil
	})
	return items, err
}

func scanArtifact(from row) (a tallyman.Artifact, err error) {
	err = from.Scan(&a.RunID, &a.Attempt, text{&a.Name}, &a.Size, &a.Digest, at{&a.At})
	return a, err
}

// PutArtifact records an artifact; one of the same attempt and name is
// replaced.
func (tx *Tx) PutArtifact(a tallyman.Artifact) error {
	return tx.do("PutArtifact", func() error {
		_, err := tx.conn.exec(tx.ctx, `INSERT INTO artifacts (run_id, attempt, name, size, digest, at) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (run_id, attempt, name) DO UPDATE SET size = excluded.size, digest = excluded.digest, at = excluded.at`,
			a.RunID, a.Attempt, text{&a.Name}, a.Size, a.Digest, at{&a.At})
		if err != nil {
			return fmt.Errorf("write artifact %q of run %s: %w", a.Name, a.RunID, err)
		}
		return nil
	})
}

// BlobInUse reports whether a prompt, a result or an artifact is the blob of
// that digest. A blob that is being put now may not be yet.
func (s *Store) BlobInUse(ctx context.Context, digest string) (used bool, err error) {
	err = s.read(ctx, "BlobInUse", func(c conn) error {
		_, used, err = first(ctx, c, scanInt, `SELECT 1 WHERE EXISTS (SELECT 1 FROM artifacts WHERE digest = ?)
			OR EXISTS (SELECT 1 FROM run_details WHERE prompt_blob <> '' AND prompt_blob = ?)
			OR EXISTS (SELECT 1 FROM runs WHERE result_blob <> '' AND result_blob = ?)`, digest, digest, digest)
		if err != nil {
			return fmt.Errorf("look for users of blob %s: %w", digest, err)
		}
		return nil
	})
	return used, err
}
