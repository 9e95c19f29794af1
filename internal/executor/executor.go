// Package executor drives attempts: it starts what is admitted, looks at what
// runs, and settles what has ended. It is level-triggered: each pass looks at
// every attempt whose slot is taken and makes right what is not.
package executor

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/fault"
	"github.com/tallyman-dev/tallyman/internal/pace"
)

const tick = 2 * time.Second

// Backend runs attempts somewhere. Start, Kill and Observe are safe to repeat.
type Backend interface {
	// Start starts an attempt and returns what the backend has made for it, ""
	// where it keeps nothing. An error with a Reason is final.
	Start(ctx context.Context, w tallyman.Assignment) (object string, err error)
	// Kill ends everything of an attempt that did not end when asked.
	Kill(ctx context.Context, a tallyman.Attempt) error
	// Observe looks at an attempt. When its runner is gone it makes sure that
	// nothing of it is left before it says so.
	Observe(ctx context.Context, a tallyman.Attempt) (tallyman.Observation, error)
	// Leftover reads what the journal of a gone attempt holds after a cursor.
	Leftover(ctx context.Context, ref tallyman.AttemptRef, after uint64, fn func(cursor uint64, line []byte) error) error
	// Changed gets a notice when an attempt may have ended.
	Changed() <-chan struct{}
}

// Service is what the executor changes and is woken by.
type Service interface {
	Assign(ctx context.Context, a tallyman.Active) (tallyman.Assignment, error)
	Made(ctx context.Context, ref tallyman.AttemptRef, object string) error
	Wait(ctx context.Context, run tallyman.Run, w *tallyman.Waiting) error
	End(ctx context.Context, ref tallyman.AttemptRef, s tallyman.Settlement) (tallyman.Run, error)
	Gone(ctx context.Context, ref tallyman.AttemptRef, owed bool, last *tallyman.Evidence) error
	Delivered(ctx context.Context, ref tallyman.AttemptRef) error
	Note(ctx context.Context, ref tallyman.AttemptRef, kind, message string) error
	// Silent records since when a living runner is not heard of; nil: it is.
	Silent(ctx context.Context, ref tallyman.AttemptRef, since *time.Time) error
	AttemptsChanged() (<-chan struct{}, func())
}

// Store is what the executor reads.
type Store interface {
	ActiveAttempts(ctx context.Context) ([]tallyman.Active, error)
	OwedAttempts(ctx context.Context) ([]tallyman.Attempt, error)
}

// Channel is what the executor needs of the gateway.
type Channel interface {
	Stop(ref tallyman.AttemptRef, o tallyman.StopOrder)
	Contact(ref tallyman.AttemptRef) time.Time
	Forget(ref tallyman.AttemptRef)
}

// History takes what a dead runner could not deliver.
type History interface {
	Next(ctx context.Context, journal string) (uint64, error)
	Append(ctx context.Context, journal string, from uint64, lines [][]byte) (uint64, error)
	Compact(ctx context.Context, journal string) error
	Delete(ctx context.Context, journals ...string) error
}

// Patience is how long the executor waits for others.
type Patience struct {
	Stop  time.Duration // for a runner to end after a stop was asked
	Start time.Duration // from admission to agent.started
	Drain time.Duration // for a runner to deliver the rest after its last word
	Quiet time.Duration // until a silent runner is worth a word
	Lost  time.Duration // for contact while the backend says running
}

// Executor drives attempts on one backend.
type Executor struct {
	backend  Backend
	store    Store
	service  Service
	channel  Channel
	history  History
	patience Patience
	log      *slog.Logger
	serving  bool // this process goes on to look after what it finds

	// Only passes touch these.
	seen    map[tallyman.AttemptRef]*memory
	payNext time.Time // what is owed is not tried again before
	told    string    // what was wrong with the last pass, "": nothing
	toldAt  time.Time
}

// memory is what this process has seen of an attempt and done about it. Its
// patience counts from what it has seen itself: nobody's fault is a time in
// which no server was up.
type memory struct {
	since     time.Time // first seen, or last held back at a gate: what follows is timed from there
	stopTold  time.Time // zero: not yet
	finalSeen time.Time // zero: not yet
	endSeen   time.Time // zero: not yet
	known     bool
	lateTold  bool

	unseen     time.Time // since when it cannot be looked at, zero: it can
	unseenTold bool
}

// New makes an executor.
func New(b Backend, st Store, sv Service, ch Channel, h History, p Patience, log *slog.Logger) *Executor {
	return &Executor{
		backend: b, store: st, service: sv, channel: ch, history: h, patience: p, log: log,
		seen: map[tallyman.AttemptRef]*memory{},
	}
}

// Run makes passes until ctx ends.
func (x *Executor) Run(ctx context.Context) error {
	x.serving = true
	changed, end := x.service.AttemptsChanged()
	defer end()
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		began := time.Now()
		if err := x.pass(ctx); ctx.Err() == nil {
			x.tell(ctx, err)
		}
		pace.Rest(ctx, began)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-x.backend.Changed():
		case <-t.C:
		}
	}
}

// again is how long the same words about a pass are not worth a line.
const again = time.Minute

// tell logs what is wrong with a pass, once while it stays the same.
func (x *Executor) tell(ctx context.Context, err error) {
	if err == nil {
		x.told = ""
		return
	}
	if words := err.Error(); words != x.told || time.Since(x.toldAt) > again {
		x.told, x.toldAt = words, time.Now()
		x.log.ErrorContext(ctx, "driving attempts", "err", err)
	}
}

// Settle is for who wants to see the truth once: a pass for what has ended,
// and one to free its slots.
func (x *Executor) Settle(ctx context.Context) error {
	return errors.Join(x.pass(ctx), x.pass(ctx))
}

// pass looks at every active attempt once. One that fails does not keep the
// others from being looked at.
func (x *Executor) pass(ctx context.Context) error {
	active, err := x.store.ActiveAttempts(ctx)
	if err != nil {
		return err
	}
	var errs []error
	told := map[string]bool{}
	for _, a := range active {
		if err := x.drive(ctx, a); err != nil && !told[err.Error()] {
			told[err.Error()] = true // what keeps one often keeps a thousand
			errs = append(errs, err)
		}
	}
	x.forget(active)
	return errors.Join(append(errs, x.payOwed(ctx))...)
}

// forget drops what is remembered of attempts that are active no more: another
// process may have freed their slots.
func (x *Executor) forget(active []tallyman.Active) {
	still := make(map[tallyman.AttemptRef]bool, len(active))
	for _, a := range active {
		still[a.Attempt.Ref()] = true
	}
	maps.DeleteFunc(x.seen, func(ref tallyman.AttemptRef, _ *memory) bool { return !still[ref] })
}

// drive makes right what is not, for one attempt.
func (x *Executor) drive(ctx context.Context, a tallyman.Active) error {
	ref := a.Attempt.Ref()
	obs, err := x.backend.Observe(ctx, a.Attempt)
	if err != nil {
		return x.unknown(ctx, a, err)
	}
	if m := x.seen[ref]; m != nil {
		m.unseen, m.unseenTold = time.Time{}, false
	}
	if !obs.Running && !obs.Gone && a.Attempt.EndedAt == nil {
		if a.Attempt.Journal == "" {
			if !x.serving {
				return nil // who only looks starts nothing
			}
			return x.start(ctx, a)
		}
		// Its runner was heard of: whatever has become of its folder, it is
		// not started twice.
		if err := x.backend.Kill(ctx, a.Attempt); err != nil {
			return err
		}
		obs = tallyman.Observation{Gone: true, JournalErr: "it is not there any more"}
	}
	if a.Attempt.EndedAt == nil {
		if obs.Running {
			if err := x.attend(ctx, a, obs); err != nil {
				return err
			}
		}
		if s, ok := Settle(x.factsOf(a, obs)); ok {
			if obs.Gone {
				// The end is told even so; releasing the slot tries again.
				if err := x.deliver(ctx, a.Attempt, obs); err != nil {
					x.log.ErrorContext(ctx, "delivering the rest of a journal", "attempt", ref.String(), "err", err)
				}
			}
			s.Evidence = obs.Evidence
			fault.Point(fault.ExecutorSettled)
			return x.end(ctx, ref, s)
		}
		return nil
	}
	return x.release(ctx, a, obs)
}

func (x *Executor) factsOf(a tallyman.Active, obs tallyman.Observation) Facts {
	f := Facts{
		Final: a.Attempt.Final, FinalCursor: a.Attempt.FinalCursor,
		Gone: obs.Gone, Last: obs.Last, JournalErr: obs.JournalErr, Process: obs.Process,
		Cause: obs.Cause, Blocked: obs.Blocked,
		StartedAt: a.Attempt.StartedAt,
	}
	if f.Final == nil && obs.Final != nil {
		f.Final, f.FinalCursor, f.FinalAt = obs.Final, obs.FinalCursor, obs.FinalAt
	}
	if f.StartedAt == nil {
		f.StartedAt = obs.StartedAt
	}
	f.Late = x.late(a.Attempt, obs)
	if a.Run.StopRequestedAt != nil {
		f.StopReason, f.StopAt, f.StopMessage = a.Run.StopReason, *a.Run.StopRequestedAt, a.Run.Message
	}
	return f
}

func (x *Executor) end(ctx context.Context, ref tallyman.AttemptRef, s tallyman.Settlement) error {
	_, err := x.service.End(ctx, ref, s)
	return err
}

// start starts an attempt that the backend does not know.
func (x *Executor) start(ctx context.Context, a tallyman.Active) error {
	ref := a.Attempt.Ref()
	if a.Run.StopRequestedAt != nil {
		// It may have been started, and nobody was told so.
		if err := x.backend.Kill(ctx, a.Attempt); err != nil {
			return err
		}
		return x.end(ctx, ref, tallyman.Settlement{Reason: a.Run.StopReason, Message: a.Run.Message})
	}
	w, err := x.service.Assign(ctx, a)
	if err != nil {
		return err
	}
	object, err := x.backend.Start(ctx, w)
	if err == nil {
		x.memory(ref).known = true
		if object == a.Attempt.Object {
			return nil
		}
		return x.service.Made(ctx, ref, object)
	}
	var e *tallyman.Error
	if errors.As(err, &e) && e.Reason.Valid() {
		s, _ := Settle(Facts{StartErr: err.Error(), StartReason: e.Reason})
		return x.end(ctx, ref, s)
	}
	return x.unknown(ctx, a, err)
}

// attend looks after an attempt whose runner lives.
func (x *Executor) attend(ctx context.Context, a tallyman.Active, obs tallyman.Observation) error {
	ref := a.Attempt.Ref()
	m := x.memory(ref)
	if !m.known && x.serving {
		m.known = true
		what := "a server found the runner at work and took it over"
		if obs.Deaf {
			what = "a server found it in its place and took it over"
		}
		if err := x.service.Note(ctx, ref, "adopted", what); err != nil {
			return err
		}
	}
	if obs.Blocked != nil && obs.Blocked.Wait != "" {
		m.since = time.Now()
	}
	never := obs.Blocked != nil && obs.Blocked.Hopeless
	if obs.Deaf && (never || a.Run.StopRequestedAt != nil || x.late(a.Attempt, obs) != "") {
		return x.backend.Kill(ctx, a.Attempt)
	}
	if err := x.held(ctx, a, obs.Blocked); err != nil || obs.Deaf {
		return err
	}
	if a.Run.StopRequestedAt != nil && m.stopTold.IsZero() {
		m.stopTold = time.Now()
		x.channel.Stop(ref, tallyman.StopOrder{Reason: a.Run.StopReason, Message: a.Run.Message})
	}
	if a.Attempt.Final != nil {
		return x.awaitDrain(ctx, a.Attempt, m)
	}
	if !m.stopTold.IsZero() {
		if time.Since(m.stopTold) > x.patience.Stop {
			return x.backend.Kill(ctx, a.Attempt)
		}
		return nil
	}
	if late := x.late(a.Attempt, obs); late != "" {
		if !m.lateTold {
			m.lateTold = true
			x.channel.Stop(ref, tallyman.StopOrder{Reason: tallyman.StartTimeout, Message: "the agent was not started within " + late})
		}
		if time.Since(x.began(a.Attempt)) > x.patience.Start+x.patience.Stop {
			return x.backend.Kill(ctx, a.Attempt)
		}
	}
	return x.listen(ctx, a)
}

// listen holds the silence of a living runner against what may be. Before its
// first word it counts from when that could be expected.
func (x *Executor) listen(ctx context.Context, a tallyman.Active) error {
	ref := a.Attempt.Ref()
	contact := later(x.channel.Contact(ref), x.began(a.Attempt))
	silent := time.Since(contact)
	switch told := a.Attempt.LastContact != nil; {
	case x.patience.Lost > 0 && silent > x.patience.Lost:
		return x.backend.Kill(ctx, a.Attempt)
	case silent >= x.patience.Quiet && !told && a.Attempt.Journal != "": // else it was never heard
		return x.service.Silent(ctx, ref, &contact)
	case silent < x.patience.Quiet && told:
		return x.service.Silent(ctx, ref, nil)
	}
	return nil
}

// awaitDrain gives a runner that has said its last word the time to deliver
// the rest. The word was that it was interrupted: any other has settled it.
func (x *Executor) awaitDrain(ctx context.Context, a tallyman.Attempt, m *memory) error {
	if m.finalSeen.IsZero() {
		m.finalSeen = time.Now()
	}
	if time.Since(m.finalSeen) > x.patience.Stop+x.patience.Drain {
		return x.backend.Kill(ctx, a)
	}
	return nil
}

// late says how long a start may take, when this one has taken longer. One that
// the backend has seen is no less a start while its journal cannot be written.
func (x *Executor) late(a tallyman.Attempt, obs tallyman.Observation) string {
	if x.patience.Start <= 0 || a.StartedAt != nil || obs.StartedAt != nil || a.Final != nil || time.Since(x.began(a)) < x.patience.Start {
		return ""
	}
	return x.patience.Start.String()
}

// began is when this process could first expect something of an attempt. Like
// all that patience is held against it was seen by this process: the clock by
// which the record was written may have been set since.
func (x *Executor) began(a tallyman.Attempt) time.Time { return x.memory(a.Ref()).since }

// release frees the slot of an ended attempt once its processes are gone. The
// slot does not wait for History: what that lacks is owed, and tried again,
// by the next server too.
func (x *Executor) release(ctx context.Context, a tallyman.Active, obs tallyman.Observation) error {
	ref := a.Attempt.Ref()
	if obs.Running {
		// It drains, or has nothing more to do, and has had its time for that.
		patience := x.patience.Stop
		if a.Attempt.Final != nil {
			patience += x.patience.Drain
		}
		m := x.memory(ref)
		if m.endSeen.IsZero() {
			m.endSeen = time.Now()
		}
		if time.Since(m.endSeen) > patience {
			return x.backend.Kill(ctx, a.Attempt)
		}
		return nil
	}
	err := x.bring(ctx, a.Attempt, obs)
	if err != nil {
		x.log.ErrorContext(ctx, "delivering the rest of a journal", "attempt", ref.String(), "err", err)
	}
	fault.Point(fault.ExecutorEnded)
	if err := x.service.Gone(ctx, ref, err != nil && !hopeless(err), obs.Evidence); err != nil {
		return err
	}
	x.channel.Forget(ref)
	return nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// memory returns what is remembered of an attempt.
func (x *Executor) memory(ref tallyman.AttemptRef) *memory {
	m := x.seen[ref]
	if m == nil {
		m = &memory{since: time.Now()}
		x.seen[ref] = m
	}
	return m
}
