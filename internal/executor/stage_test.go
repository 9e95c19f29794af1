package executor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/executor"
)

var ref = tallyman.AttemptRef{RunID: "01JZ0000000000000000000001", Number: 1}

// play drives an attempt while the scene goes on, and holds what was done.
func play(t *testing.T, want string, scene func(*stage)) *stage {
	t.Helper()
	var s *stage
	synctest.Test(t, func(t *testing.T) {
		s = newStage()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		before := func() { // what is there when the server begins
			go func() { done <- s.x.Run(ctx) }()
			synctest.Wait()
		}
		s.serve = before
		scene(s)
		synctest.Wait()
		stop()
		if err := <-done; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	if diff := cmp.Diff(strings.Split(want, "\n"), s.did); diff != "" {
		t.Errorf("what was done:\n%s\nits log:\n%s", diff, s.log.String())
	}
	return s
}

// stage is everything around an executor, for one attempt, in memory and
// under the clock of a bubble. What was done about the attempt is in did.
type stage struct {
	mu      sync.Mutex
	began   time.Time
	active  []tallyman.Active
	owed    []tallyman.Attempt
	obs     tallyman.Observation
	obsErr  error
	errs    map[string]error // by what fails
	object  string           // what the backend says it has made
	contact time.Time
	journal []string // on the disk of the attempt
	history []string
	did     []string // WHAT@SECOND
	notice  chan struct{}
	ended   chan struct{}
	x       *executor.Executor
	serve   func() // begins to drive
	log     strings.Builder
}

func newStage() *stage {
	s := &stage{began: time.Now(), contact: time.Now(), errs: map[string]error{}, notice: make(chan struct{}, 1), ended: make(chan struct{}, 1)}
	run := tallyman.Run{ID: ref.RunID, Name: "test", State: tallyman.Starting, Attempt: 1}
	s.active = []tallyman.Active{{Run: run, Attempt: tallyman.Attempt{RunID: ref.RunID, Number: 1, AdmittedAt: s.began}}}
	s.x = executor.New(backend{s}, s, s, channel{s}, history{s}, executor.Patience{Stop: 30 * time.Second, Start: time.Minute, Drain: 10 * time.Minute, Quiet: time.Minute, Lost: 15 * time.Minute},
		slog.New(slog.NewTextHandler(&s.log, nil)))
	return s
}

func (s *stage) does(format string, args ...any) {
	s.did = append(s.did, fmt.Sprintf(format, args...)+fmt.Sprintf("@%v", time.Since(s.began).Seconds()))
}

// at goes on to a second of the scene, and changes the stage then.
func (s *stage) at(second int, change func()) {
	time.Sleep(time.Until(s.began.Add(time.Duration(second) * time.Second)))
	synctest.Wait()
	s.mu.Lock()
	change()
	s.mu.Unlock()
	select {
	case s.notice <- struct{}{}:
	default:
	}
	synctest.Wait()
}

// works makes the attempt one whose runner is known and whose agent runs.
func (s *stage) works() {
	now := time.Now()
	s.obs = tallyman.Observation{Running: true}
	s.attempt().Journal, s.attempt().StartedAt = "J", &now
	s.run().State = tallyman.Running
}

// stops asks the run to end.
func (s *stage) stops() {
	now := time.Now()
	s.run().StopRequestedAt, s.run().StopReason, s.run().Message = &now, tallyman.ReasonStopped, "stopped by a test"
}

// ends makes the runner's processes gone, with a final event in the journal.
func (s *stage) ends(final *tallyman.Outcome) {
	s.obs = tallyman.Observation{Gone: true, Journal: "J", Last: uint64(len(s.journal)), Final: final}
}

func (s *stage) run() *tallyman.Run         { return &s.active[0].Run }
func (s *stage) attempt() *tallyman.Attempt { return &s.active[0].Attempt }

func (s *stage) ActiveAttempts(context.Context) ([]tallyman.Active, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.active), s.errs["list"]
}

func (s *stage) Observe(_ context.Context, a tallyman.Attempt) (tallyman.Observation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Ref() != ref {
		return tallyman.Observation{}, errors.New("another attempt cannot be observed")
	}
	return s.obs, s.obsErr
}

func (s *stage) Start(ctx context.Context, w tallyman.Assignment) (string, error) {
	key, err := w.NewKey(ctx)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.does("start with %s", key)
	if s.errs["start"] == nil {
		s.obs = tallyman.Observation{Running: true}
	}
	return s.object, s.errs["start"]
}

func (s *stage) Kill(context.Context, tallyman.Attempt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.does("kill")
	return s.errs["kill"]
}

func (s *stage) Leftover(_ context.Context, _ tallyman.AttemptRef, after uint64, fn func(uint64, []byte) error) error {
	for i, line := range s.journal[after:] {
		if err := fn(after+uint64(i)+1, []byte(line)); err != nil {
			return err
		}
	}
	return s.errs["leftover"]
}

func (s *stage) Assign(_ context.Context, a tallyman.Active) (tallyman.Assignment, error) {
	return tallyman.Assignment{Run: a.Run, Attempt: a.Attempt, NewKey: func(context.Context) (string, error) { return "key", s.errs["key"] }}, s.errs["assign"]
}

func (s *stage) Made(_ context.Context, _ tallyman.AttemptRef, object string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.does("made %s", object)
	s.attempt().Object = object
	return s.errs["made"]
}

func (s *stage) Wait(_ context.Context, run tallyman.Run, w *tallyman.Waiting) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if run.Waiting.Same(w) {
		return nil
	}
	s.run().Waiting = w
	if w == nil {
		s.does("wait no more")
	} else {
		s.does("wait %s: %s", w.Reason, w.Detail)
	}
	return s.errs["wait"]
}

func (s *stage) End(_ context.Context, _ tallyman.AttemptRef, e tallyman.Settlement) (tallyman.Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.does("end %s", e.Reason)
	now := time.Now()
	s.attempt().EndedAt, s.attempt().Reason, s.attempt().Message = &now, e.Reason, e.Message
	select {
	case s.notice <- struct{}{}:
	default:
	}
	return *s.run(), nil
}

func (s *stage) Gone(_ context.Context, _ tallyman.AttemptRef, owed bool, _ *tallyman.Evidence) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.does("gone")
	if owed {
		s.owed = append(s.owed, *s.attempt())
	}
	s.active = nil
	return nil
}

func (s *stage) OwedAttempts(context.Context) ([]tallyman.Attempt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.owed), nil
}

func (s *stage) Delivered(context.Context, tallyman.AttemptRef) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.does("delivered")
	s.owed = nil
	return s.errs["delivered"]
}

func (s *stage) Note(_ context.Context, _ tallyman.AttemptRef, kind, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.does("note %s", kind)
	return nil
}

func (s *stage) Silent(_ context.Context, _ tallyman.AttemptRef, since *time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since != nil {
		s.does("silent since %v", since.Sub(s.began).Seconds())
	} else {
		s.does("heard of")
	}
	s.attempt().LastContact = since
	return s.errs["silent"]
}

// notices are those of the service and of the backend.
func (s *stage) AttemptsChanged() (<-chan struct{}, func()) { return s.notice, func() {} }

// backend is the stage as a backend.
type backend struct{ *stage }

func (b backend) Changed() <-chan struct{} { return b.ended }

type channel struct{ *stage }

func (c channel) Stop(_ tallyman.AttemptRef, o tallyman.StopOrder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.does("order %s", o.Reason)
}

func (c channel) Contact(tallyman.AttemptRef) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.contact
}

func (c channel) Forget(tallyman.AttemptRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.does("forget")
}

type history struct{ *stage }

func (h history) Delete(_ context.Context, journals ...string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.does("delete %s", strings.Join(journals, " "))
	h.history = nil
	return nil
}

func (h history) Next(context.Context, string) (uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return uint64(len(h.history) + 1), h.errs["history"]
}

func (h history) Append(_ context.Context, _ string, from uint64, lines [][]byte) (uint64, error) {
	if int(from) != len(h.history)+1 {
		return 0, &tallyman.GapError{Expected: uint64(len(h.history) + 1)}
	}
	if h.errs["append"] != nil {
		return 0, h.errs["append"]
	}
	for _, l := range lines {
		h.history = append(h.history, string(l))
	}
	return uint64(len(h.history) + 1), nil
}

func (h history) Compact(context.Context, string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.does("compact")
	return nil
}
