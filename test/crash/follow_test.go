//go:build faults

package crash_test

import (
	"bytes"
	"context"
	"fmt"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/client"
)

// follow follows a run to its end, over everything that happens to the
// server; a follower that is cut goes on where it was.
func (w *world) follow(ctx context.Context, j *job) {
	run, _ := j.acked()
	if j.cut > 0 {
		cut, cancel := context.WithTimeout(ctx, j.cut)
		err := w.client.Events(cut, run.ID, client.EventOptions{Follow: true}, j.take)
		cancel()
		if err == nil || cut.Err() == nil || ctx.Err() != nil {
			w.followed(ctx, j, err)
			return
		}
	}
	w.followed(ctx, j, w.client.Events(ctx, run.ID, client.EventOptions{After: j.after(), Follow: true}, j.take))
}

func (w *world) followed(ctx context.Context, j *job, err error) {
	if err != nil && ctx.Err() == nil {
		j.note("following: %v", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.whole = err == nil
}

// after is the id of the last event that was taken.
func (j *job) after() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.seen) == 0 {
		return ""
	}
	return j.seen[len(j.seen)-1].id.String()
}

// take takes an event, which must be the one after the last.
func (j *job) take(line []byte) error {
	e, err := splitEvent(line)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := follows(j.seen, e.id); err != nil {
		j.faults = append(j.faults, "the follower: "+err.Error())
	}
	j.seen = append(j.seen, e)
	return nil
}

// follows reports whether an event may come after others: the next of its
// attempt, or the first of a later one.
func follows(before []seenEvent, id tallyman.EventID) error {
	last := tallyman.EventID{Attempt: 0}
	if len(before) > 0 {
		last = before[len(before)-1].id
	}
	if id.Attempt == last.Attempt && id.Cursor == last.Cursor+1 || id.Attempt > last.Attempt && id.Cursor == 1 {
		return nil
	}
	return fmt.Errorf("event %s came after %s", id, last)
}

// splitEvent takes the id off an event's line.
func splitEvent(line []byte) (seenEvent, error) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"id":"`))
	if !ok {
		return seenEvent{}, fmt.Errorf("event without an id: %.100s", line)
	}
	text, rest, _ := bytes.Cut(rest, []byte(`",`))
	id, err := tallyman.ParseEventID(string(text))
	return seenEvent{id: id, line: "{" + string(rest)}, err
}
