package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/tallyman-dev/tallyman"
)

const (
	// lastSpace is what the disk must have left while an agent works: there the
	// outcomes are recorded, the journal's and the server's.
	lastSpace = 8 << 20
	// spaceEvery is after how many bytes of journal the space is looked at.
	spaceEvery = 1 << 20
)

// checkSpace looks at the disk now and then, and gives the agent up while
// there is room for its outcome and for what History, maybe on the same disk,
// does not have yet. It is called with the lock held.
func (r *recorder) checkSpace(size int) {
	r.written += int64(size)
	if r.written-r.looked < spaceEvery {
		return
	}
	r.looked = r.written
	// A store on this disk takes it twice: in its log, then in its file.
	if r.err == nil && r.journal.LowSpace(2*backlog(r.written, r.last, r.sent())) {
		r.err = fmt.Errorf("no space left on device: the last %d MB are kept for the outcome", lastSpace>>20)
		close(r.failed)
	}
}

// backlog is about how many bytes of a journal lie behind a cursor.
func backlog(written int64, last, sent uint64) int64 {
	return written / int64(max(last, 1)) * int64(last-min(sent, last))
}

func brokenMessage(dir string, err error) string {
	return fmt.Sprintf("the journal in %s cannot be written: %v", dir, err)
}

// broken returns why a record will never be on the disk; nil once it is.
func (r *run) broken(cursor uint64) error {
	if err := r.journal.Wait(context.Background(), cursor); err != nil {
		return err
	}
	return r.journal.Err()
}

// endBroken tells control the end of an attempt whose journal takes nothing
// any more. What the agent has achieved cannot be shown, so it is no success.
// It returns the cursor up to which the journal is good.
func (r *run) endBroken(out tallyman.Outcome, err error) uint64 {
	out.Reason, out.Message, out.Interrupted = tallyman.BackendError, brokenMessage(r.up.dir, err), false
	last := r.journal.Durable()
	r.up.conclude(tallyman.Fact{Cursor: last, Kind: tallyman.FactFinal, At: time.Now(), Outcome: &out})
	return last
}

// delivered is the last cursor that History has.
func (u *uplink) delivered() uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sent
}

// conclude replaces the facts about records that never became durable by the
// final one.
func (u *uplink) conclude(final tallyman.Fact) {
	u.mu.Lock()
	for n, f := range u.facts {
		if f.Cursor > final.Cursor {
			u.facts = u.facts[:n:n]
			break
		}
	}
	u.facts = append(u.facts, final)
	u.mu.Unlock()
	poke(u.wake)
}
