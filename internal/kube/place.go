package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tallyman-dev/tallyman"
)

// place is how far a journal follows a log: the time of its last line, and
// how many of its lines have that time. Logs have no numbers.
type place struct {
	at    time.Time
	lines int
	tail  []string       // its last lines
	ended *tallyman.Fact // its last event is there
}

// pass goes on over a line.
func (p *place) pass(line tallyman.Event) {
	if !line.Time.Equal(p.at) {
		p.at, p.lines = line.Time, 0
	}
	p.lines++
	p.tail = append(p.tail[max(0, len(p.tail)-int(keptLines)+1):], cutTo(line.Text, int(keptBytes)))
}

// has reports whether the journal has a line of that time already, of those
// that are read again.
func (p *place) has(at time.Time) bool {
	at = at.Truncate(time.Microsecond)
	switch {
	case p.at.IsZero() || at.After(p.at):
		return false
	case at.Before(p.at):
		return true
	}
	p.lines--
	return p.lines >= 0
}

// placeOf finds how far a journal is.
func (s *scribe) placeOf(ctx context.Context, journal string, next uint64) (place, error) {
	var p place
	err := s.history.Read(ctx, journal, 1, func(cursor uint64, line []byte) error {
		if cursor >= next {
			return nil
		}
		var e tallyman.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("event %d of journal %s: %w", cursor, journal, err)
		}
		if e.Type == tallyman.EventText {
			p.pass(e)
		}
		if e.Type != tallyman.EventRunnerEnded {
			return nil
		}
		var out tallyman.Outcome
		if err := json.Unmarshal(e.Data, &out); err != nil {
			return fmt.Errorf("event %d of journal %s: %w", cursor, journal, err)
		}
		p.ended = &tallyman.Fact{Cursor: cursor, Kind: tallyman.FactFinal, At: e.Time, Outcome: &out}
		return nil
	})
	return p, err
}

// lineEvent is what a line of a log becomes.
func lineEvent(at time.Time, line []byte) tallyman.Event {
	e := tallyman.Event{Type: tallyman.EventText, Time: at.UTC().Truncate(time.Microsecond), Text: string(line)}
	if !utf8.Valid(line) {
		e.Text, e.RawB64 = strings.ToValidUTF8(e.Text, "\uFFFD"), line
	}
	return e
}

// timeFor is a time as a cluster takes it: in seconds.
func timeFor(t time.Time) *metav1.Time { return new(metav1.NewTime(t.Truncate(time.Second))) }

func unlessEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}
