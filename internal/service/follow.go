package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/history"
)

// finalPatience is how long a reader waits for the rest of an attempt that
// has ended, before it says how much is missing.
const finalPatience = 10 * time.Second

// Transcript reads the events of runs, over their attempts.
type Transcript struct {
	service *Service
	history *history.History
}

// NewTranscript joins what the service knows of attempts with their events.
func NewTranscript(s *Service, h *history.History) *Transcript {
	return &Transcript{service: s, history: h}
}

// Each takes an event's line; a delta has no id and is for display only.
type Each func(id tallyman.EventID, line []byte, delta bool) error

// Events reads what is stored after an event, to the end as of now.
func (t *Transcript) Events(ctx context.Context, runID string, after tallyman.EventID, each Each) error {
	attempts, err := t.service.store.Attempts(ctx, runID)
	if err != nil {
		return err
	}
	for _, a := range attempts {
		if a.Number < after.Attempt || a.Journal == "" {
			continue
		}
		from := uint64(0)
		if a.Number == after.Attempt {
			from = after.Cursor
		}
		if _, err := t.read(ctx, a, from, each); err != nil {
			return err
		}
	}
	return nil
}

func (t *Transcript) read(ctx context.Context, a tallyman.Attempt, from uint64, each Each) (uint64, error) {
	last := from
	err := t.history.Read(ctx, a.Journal, from, func(cursor uint64, line []byte) error {
		last = cursor
		return each(tallyman.EventID{Attempt: a.Number, Cursor: cursor}, line, false)
	})
	return last, err
}

// MissingError says that an ended attempt's last events have not arrived.
// Missing is 0 when nobody knows how many there are.
type MissingError struct {
	Attempt int
	Missing uint64
}

// Error says how many events are still on their way, where that is known.
func (e *MissingError) Error() string {
	if e.Missing == 0 {
		return fmt.Sprintf("attempt %d has ended, but its last events may still be on their way", e.Attempt)
	}
	return fmt.Sprintf("attempt %d has ended, but its last events are still on their way: %d are missing", e.Attempt, e.Missing)
}

// Follow reads every event after one, exactly once and in order, and goes on
// until the run has ended and its last event was given, or ctx ends. Deltas
// come in between. *MissingError: the run has ended and the last events of an
// attempt did not come in time; those of the attempts after it were given.
func (t *Transcript) Follow(ctx context.Context, runID string, after tallyman.EventID, each Each) error {
	changed, end := t.service.Changed()
	defer end()
	number, cursor := max(after.Attempt, 1), after.Cursor
	if after.Attempt == 0 {
		cursor = 0
	}
	var missing error
	for {
		run, err := t.service.store.Run(ctx, runID)
		if err != nil {
			return err
		}
		attempts, err := t.service.store.Attempts(ctx, runID)
		if err != nil {
			return err
		}
		if number > len(attempts) {
			if run.State.Terminal() {
				return missing
			}
			if err := wait(ctx, changed); err != nil {
				return err
			}
			continue
		}
		a := attempts[number-1]
		if a.Journal == "" {
			if a.EndedAt != nil {
				number, cursor = number+1, 0
				continue
			}
			if err := wait(ctx, changed); err != nil {
				return err
			}
			continue
		}
		err = t.followAttempt(ctx, a, cursor, changed, each)
		switch {
		case err == nil:
		case errors.As(err, new(*MissingError)):
			missing = cmp.Or(missing, err)
		default:
			return err
		}
		number, cursor = number+1, 0
	}
}

func wait(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
	case <-time.After(time.Second):
	}
	return nil
}

// followAttempt follows one journal until the attempt has ended and its final
// cursor was given.
func (t *Transcript) followAttempt(ctx context.Context, a tallyman.Attempt, cursor uint64, changed <-chan struct{}, each Each) error {
	w := t.history.Watch(a.Journal)
	defer w.Close()
	var ended time.Time
	var deltas live
	give := func(line []byte) error { return each(tallyman.EventID{Attempt: a.Number}, line, true) }
	for {
		deltas.take(w.Deltas())
		last, err := t.read(ctx, a, cursor, func(id tallyman.EventID, line []byte, _ bool) error {
			if err := deltas.at(id.Cursor-1, give); err != nil {
				return err
			}
			return each(id, line, false)
		})
		if err == nil {
			err = deltas.at(last, give)
		}
		if err != nil {
			return err
		}
		if last > cursor {
			ended = time.Time{} // they still come
		}
		cursor = last
		if a.EndedAt != nil {
			if cursor >= a.FinalCursor && (a.FinalCursor > 0 || a.Gone) {
				return nil
			}
			if ended.IsZero() {
				ended = time.Now()
			}
			if time.Since(ended) > finalPatience {
				return &MissingError{Attempt: a.Number, Missing: a.FinalCursor - min(cursor, a.FinalCursor)}
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.C:
		case <-changed:
		case <-time.After(time.Second):
		}
		if a, err = t.service.store.Attempt(ctx, a.Ref()); err != nil {
			return err
		}
	}
}
