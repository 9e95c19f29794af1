package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/fault"
	"github.com/tallyman-dev/tallyman/internal/journal"
)

// pushFacts brings facts to control, and a heartbeat when there are none.
func (u *uplink) pushFacts(ctx context.Context) error {
	beat := time.NewTicker(u.beat())
	defer beat.Stop()
	for {
		if err := patiently(ctx, u.report); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-u.wake:
		case <-beat.C:
		}
	}
}

// beat is how often control is to hear of the runner at least: three times in
// the lease that hello has told.
func (u *uplink) beat() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lease <= 0 {
		return heartbeat
	}
	return min(heartbeat, u.lease/3)
}

// report sends the facts whose cursors are durable, and forgets those that
// control has taken.
func (u *uplink) report(ctx context.Context) error {
	u.mu.Lock()
	facts := append([]tallyman.Fact(nil), u.facts...)
	u.inFlight = len(facts)
	u.mu.Unlock()
	if n := len(facts); n > 0 {
		if err := u.journal.Wait(ctx, facts[n-1].Cursor); err != nil {
			return fmt.Errorf("wait for the journal: %w", err)
		}
	}
	fault.Point(fault.RunnerReporting)
	body, err := encode(tallyman.ControlReport{Facts: facts})
	if err != nil {
		return fmt.Errorf("encode facts: %w", err)
	}
	var answer tallyman.ControlAnswer
	if err := u.call(ctx, http.MethodPost, "control?epoch="+u.epochText(), bytes.NewReader(body), &answer); err != nil {
		return err
	}
	fault.Point(fault.RunnerReported)
	if answer.Stop != nil {
		u.order(*answer.Stop)
	}
	u.mu.Lock()
	u.facts, u.inFlight = u.facts[len(facts):], 0
	u.mu.Unlock()
	poke(u.moved)
	return nil
}

// pushEvents brings events to History in the journal's order, and deltas to
// whoever watches. A server that cannot take them now is asked again; facts
// and orders flow on meanwhile.
func (u *uplink) pushEvents(ctx context.Context) error {
	in, _, err := journal.Open(u.dir)
	if err != nil {
		return err
	}
	defer in.Close()
	r := &batcher{in: in}
	sent := u.delivered()
	if err := r.seek(sent); err != nil {
		return err
	}
	var body []byte
	wait := shortest
	for u.more(ctx, sent) {
		body = u.takeDeltas(body[:0])
		last, b, err := r.gather(body, sent, u.journal.Durable())
		if err != nil {
			return err
		}
		body = b
		next, err := u.sendEvents(ctx, sent+1, body)
		var gap *tallyman.GapError
		switch {
		case err == nil:
			wait = shortest
		case errors.As(err, &gap):
			next = gap.Expected
		case errors.Is(err, errBusy):
			u.log.DebugContext(ctx, "the server takes no events now", "err", err)
			next = sent + 1
			pause(ctx, &wait)
		case tallyman.CodeOf(err) == tallyman.TooLarge:
			return fmt.Errorf("the server will never take events %d to %d, they stay on disk: %w", sent+1, last, err)
		default:
			return err
		}
		if next != last+1 {
			if next > u.journal.Durable()+1 {
				return tallyman.Errorf(tallyman.Conflict, "history has %d events of a journal with %d", next-1, u.journal.Durable())
			}
			if err := r.seek(next - 1); err != nil {
				return err
			}
		}
		sent = next - 1
		u.mu.Lock()
		u.sent = sent
		u.mu.Unlock()
		poke(u.moved)
	}
	return nil
}

// How long a busy server is left alone, growing.
const (
	shortest = 50 * time.Millisecond
	longest  = 5 * time.Second
)

// pause waits, the next time twice as long, or until ctx ends.
func pause(ctx context.Context, wait *time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(*wait):
		*wait = min(2**wait, longest)
	}
}

// patiently does something again until the server is not too busy for it.
func patiently(ctx context.Context, do func(context.Context) error) error {
	for wait := shortest; ; pause(ctx, &wait) {
		if err := do(ctx); !errors.Is(err, errBusy) || ctx.Err() != nil {
			return err
		}
	}
}

// more waits until there is something to send after a cursor; false when ctx
// has ended.
func (u *uplink) more(ctx context.Context, sent uint64) bool {
	for ctx.Err() == nil {
		changed := u.journal.Changed()
		if u.journal.Durable() != sent {
			select {
			case <-u.delta:
			default:
			}
			return true
		}
		if u.journal.Err() != nil {
			changed = nil // nothing will follow
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-u.delta:
			return true
		}
	}
	return false
}

func (u *uplink) takeDeltas(body []byte) []byte {
	u.mu.Lock()
	deltas := u.deltas
	u.deltas, u.deltaLen = nil, 0
	u.mu.Unlock()
	for _, d := range deltas {
		body = append(body, tallyman.Provisional...)
		body = tallyman.AppendString(body, d.Delta)
		body = append(body, `,"type":"`...)
		body = append(body, d.Type...)
		body = append(body, `","parent":`...)
		body = tallyman.AppendString(body, d.Parent)
		body = append(body, `,"block":`...)
		body = tallyman.AppendString(body, d.Block)
		body = append(body, `,"after":`...)
		body = strconv.AppendUint(body, d.After, 10)
		body = append(body, "}\n"...)
	}
	return body
}

// batcher reads a journal a batch at a time. The record that does not fit in
// one begins the next.
type batcher struct {
	in     *journal.Reader
	cursor uint64
	rec    []byte // nil: none was left over
}

func (b *batcher) seek(after uint64) error {
	b.rec = nil
	return b.in.Seek(after)
}

// gather appends the records after sent, up to the durable one and as many as
// a batch may have, one of them at least.
func (b *batcher) gather(body []byte, sent, durable uint64) (last uint64, _ []byte, _ error) {
	for last = sent; last < durable; {
		if b.rec == nil {
			cursor, rec, err := b.in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return last, body, err
			}
			b.cursor, b.rec = cursor, rec
		}
		if last > sent && len(body)+len(b.rec) >= maxBatch {
			break
		}
		body = append(append(body, b.rec...), '\n')
		last, b.rec = b.cursor, nil
	}
	return last, body, nil
}

func (u *uplink) sendEvents(ctx context.Context, from uint64, body []byte) (next uint64, err error) {
	var answer tallyman.EventsAnswer
	err = u.call(ctx, http.MethodPost, "events?from="+strconv.FormatUint(from, 10), bytes.NewReader(body), &answer)
	return answer.Next, err
}

// drained reports whether History has every event and control every fact.
func (u *uplink) drained(last uint64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sent >= last && (len(u.facts) == 0 || u.isFinal)
}
