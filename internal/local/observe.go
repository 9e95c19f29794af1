package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/journal"
	"github.com/tallyman-dev/tallyman/internal/runner"
)

// Observe looks at an attempt: its runner lives, or nothing of it is left
// (it kills what is), or it was never started.
func (b *Backend) Observe(ctx context.Context, a tallyman.Attempt) (tallyman.Observation, error) {
	ref := a.Ref()
	dir := b.Dir(ref)
	if _, err := os.Stat(filepath.Join(dir, "lock")); errors.Is(err, fs.ErrNotExist) {
		return tallyman.Observation{}, nil
	}
	lock, err := lockFile(filepath.Join(dir, "lock"))
	if errors.Is(err, errHeld) {
		return b.peek(dir), nil
	}
	if err != nil {
		return tallyman.Observation{}, err
	}
	defer lock.Close()
	b.reap()
	b.mu.Lock()
	how, ours := b.exited[ref]
	_, ending := b.children[ref]
	b.mu.Unlock()
	if ending {
		return tallyman.Observation{Running: true}, nil // it has let go of the lock and cannot be waited for yet
	}
	h, last, rec, err := journal.Last(filepath.Join(dir, "journal"))
	var damaged *journal.CorruptError
	switch {
	case tallyman.CodeOf(err) == tallyman.NotFound && !ours:
		return tallyman.Observation{}, nil
	case tallyman.CodeOf(err) == tallyman.NotFound:
		how += ": " + b.logTail(dir)
	case errors.As(err, &damaged), err == nil:
	default:
		return tallyman.Observation{}, fmt.Errorf("look at the journal of attempt %s: %w", ref, err)
	}
	killing, cancel := context.WithTimeout(ctx, killPatience)
	defer cancel()
	killed, killErr := runner.KillAll(killing, ref.String(), 0)
	if killErr != nil {
		return tallyman.Observation{Running: true}, killErr
	}
	if killed > 0 {
		b.o.Log.WarnContext(ctx, "killed what a dead runner left", "attempt", ref.String(), "processes", killed)
	}
	s := tallyman.Observation{Gone: true, Process: how, Journal: h.Journal, Last: last}
	if damaged != nil {
		s.JournalErr = damaged.Error()
	} else if s.Final, s.FinalAt = finalOf(rec); s.Final != nil {
		s.FinalCursor = last
	}
	if last == 0 || s.Final != nil && !s.Final.Started {
		return s, nil
	}
	s.StartedAt, err = startOf(ctx, filepath.Join(dir, "journal"))
	return s, err
}

// finalOf reads a journal's last record, if it is the final event.
func finalOf(rec []byte) (*tallyman.Outcome, time.Time) {
	var e struct {
		Time time.Time          `json:"time"`
		Type tallyman.EventType `json:"type"`
		Data tallyman.Outcome   `json:"data"`
	}
	if !strings.Contains(string(rec[:min(len(rec), 100)]), string(tallyman.EventRunnerEnded)) || json.Unmarshal(rec, &e) != nil || e.Type != tallyman.EventRunnerEnded {
		return nil, time.Time{}
	}
	return &e.Data, e.Time
}

// errFound ends a reading of a journal.
var errFound = errors.New("found")

// startOf is when the agent of a gone attempt started. A runner makes the end
// of its set-up durable before it starts the agent and records the start
// after it: with the former alone the agent may have run, and is taken to have.
func startOf(ctx context.Context, dir string) (*time.Time, error) {
	var at *time.Time
	err := readJournal(ctx, dir, 0, func(_ uint64, line []byte) error {
		var e struct {
			Time   time.Time          `json:"time"`
			Type   tallyman.EventType `json:"type"`
			Failed bool               `json:"failed"`
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return nil // not written by us; nothing follows from it
		}
		if e.Type == tallyman.EventSetupFinished && !e.Failed || e.Type == tallyman.EventAgentStarted {
			at = &e.Time
		}
		if e.Type == tallyman.EventAgentStarted {
			return errFound
		}
		return nil
	})
	if err != nil && !errors.Is(err, errFound) {
		return nil, fmt.Errorf("look for the agent's start: %w", err)
	}
	return at, nil
}

func (b *Backend) logTail(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil || len(text) == 0 {
		return "it wrote nothing to its log"
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// Leftover reads the good part of an attempt's journal after a cursor.
func (b *Backend) Leftover(ctx context.Context, ref tallyman.AttemptRef, after uint64, fn func(cursor uint64, line []byte) error) error {
	return readJournal(ctx, filepath.Join(b.Dir(ref), "journal"), after, fn)
}

// readJournal reads the good part of a journal after a cursor.
func readJournal(ctx context.Context, dir string, after uint64, fn func(cursor uint64, line []byte) error) error {
	r, _, err := journal.Open(dir)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.Seek(after); err != nil {
		return err
	}
	for ctx.Err() == nil {
		cursor, rec, err := r.Next()
		var damaged *journal.CorruptError
		if err != nil {
			if errors.As(err, &damaged) || errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := fn(cursor, rec); err != nil {
			return err
		}
	}
	return ctx.Err()
}
