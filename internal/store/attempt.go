package store

import (
	"context"
	"fmt"

	"github.com/tallyman-dev/tallyman"
)

// Attempts returns the run's attempts in order; none for a run that is not.
func (s *Store) Attempts(ctx context.Context, runID string) (items []tallyman.Attempt, err error) {
	err = s.read(ctx, "Attempts", func(c conn) error {
		items, err = attempts(ctx, c, runID)
		return err
	})
	return items, err
}

// Attempt returns one attempt, or NotFound.
func (s *Store) Attempt(ctx context.Context, ref tallyman.AttemptRef) (a tallyman.Attempt, err error) {
	err = s.read(ctx, "Attempt", func(c conn) error {
		a, err = attempt(ctx, c, ref)
		return err
	})
	return a, err
}

// ActiveAttempts returns every attempt that takes a slot, the oldest run
// first.
func (s *Store) ActiveAttempts(ctx context.Context) (items []tallyman.Active, err error) {
	err = s.read(ctx, "ActiveAttempts", func(c conn) error {
		items, err = all(ctx, c, scanActive, `SELECT `+activeColumns+` FROM attempts a CROSS JOIN runs r
			WHERE NOT a.gone AND r.id = a.run_id ORDER BY a.run_id, a.number`)
		if err != nil {
			return fmt.Errorf("list active attempts: %w", err)
		}
		return nil
	})
	return items, err
}

// OwedAttempts returns every attempt whose journal has events that History
// lacks, though nobody is left to bring them.
func (s *Store) OwedAttempts(ctx context.Context) (items []tallyman.Attempt, err error) {
	err = s.read(ctx, "OwedAttempts", func(c conn) error {
		items, err = all(ctx, c, scanAttempt, `SELECT `+attemptColumns+` FROM attempts WHERE owed ORDER BY run_id, number`)
		if err != nil {
			return fmt.Errorf("list attempts with events to deliver: %w", err)
		}
		return nil
	})
	return items, err
}

var activeColumns = of("r", runColumns) + ", " + of("a", attemptColumns)

func scanActive(from row) (tallyman.Active, error) {
	var a tallyman.Active
	var w waiting
	fields := append(bornFields(&a.Run), changingFields(&a.Run, &w)...)
	err := from.Scan(append(fields, attemptFields(&a.Attempt)...)...)
	w.put(&a.Run)
	return a, err
}

func attempts(ctx context.Context, c conn, runID string) ([]tallyman.Attempt, error) {
	items, err := all(ctx, c, scanAttempt, `SELECT `+attemptColumns+` FROM attempts WHERE run_id = ? ORDER BY number`, runID)
	if err != nil {
		return nil, fmt.Errorf("list attempts of run %s: %w", runID, err)
	}
	return items, nil
}

func attempt(ctx context.Context, c conn, ref tallyman.AttemptRef) (tallyman.Attempt, error) {
	a, found, err := first(ctx, c, scanAttempt, `SELECT `+attemptColumns+` FROM attempts WHERE run_id = ? AND number = ?`,
		ref.RunID, ref.Number)
	if err != nil {
		return a, fmt.Errorf("read attempt %s: %w", ref, err)
	}
	if !found {
		return a, noAttempt(ref)
	}
	return a, nil
}

func noAttempt(ref tallyman.AttemptRef) error {
	return tallyman.Errorf(tallyman.NotFound, "run %q has no attempt %d", ref.RunID, ref.Number)
}
