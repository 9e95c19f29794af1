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

func (s *stage) Observe(_ context.Context, r tallyman.AttemptRef) (tallyman.Observation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r != ref {
		return tallyman.Observation{}, errors.New("another attempt cannot be observed")
	}
	return s.obs, s.obsErr
}

func (s *stage) Start(_ context.Context, _ tallyman.AttemptRef, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.does("start with %s", key)
	if s.errs["start"] == nil {
		s.obs = tallyman.Observation{Running: true}
	}
	return s.errs["start"]
}

func (s *stage) Kill(context.Context, tallyman.AttemptRef) error {
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

func (s *stage) NewKey(context.Context, tallyman.AttemptRef) (string, error) {
	return "key", s.errs["key"]
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

func (s *stage) Gone(_ context.Context, _ tallyman.AttemptRef, owed bool) error {
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
func (s *stage) Changed() (<-chan struct{}, func()) { return s.notice, func() {} }

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

func completed() *tallyman.Outcome {
	return &tallyman.Outcome{Reason: tallyman.Completed, Started: true}
}

func TestAnAttemptIsDriven(t *testing.T) {
	for name, c := range map[string]struct {
		want  string
		scene func(*stage)
	}{
		"from its start to its end": {
			"start with key@0\nend Completed@20\ncompact@20\ngone@20\nforget@20",
			func(s *stage) {
				s.serve()
				s.at(1, s.works)
				s.at(20, func() { s.ends(completed()) })
				s.at(30, func() {})
			},
		},
		"its last word is enough, its slot is free when it has drained": {
			"start with key@0\nend Completed@10\ncompact@50\ngone@50\nforget@50",
			func(s *stage) {
				s.serve()
				s.at(1, s.works)
				s.at(10, func() { s.attempt().Final = completed() })
				s.at(50, func() { s.ends(completed()) })
			},
		},
		"which may not take for ever": {
			"start with key@0\nend Completed@10\nkill@642",
			func(s *stage) {
				s.serve()
				s.at(1, s.works)
				s.at(10, func() { s.attempt().Final = completed() })
				time.Sleep(633 * time.Second)
			},
		},
		"without notices a tick sees it": {
			"start with key@0\nend RunnerLost@12\ncompact@12\ngone@12\nforget@12",
			func(s *stage) {
				s.serve()
				s.at(1, s.works)
				time.Sleep(10 * time.Second)
				s.mu.Lock()
				s.ends(nil)
				s.mu.Unlock()
				time.Sleep(10 * time.Second)
			},
		},
		"an earlier server's runner is adopted, and said so once": {
			"note adopted@0\nend Completed@20\ncompact@20\ngone@20\nforget@20",
			func(s *stage) {
				s.works()
				s.serve()
				s.at(10, func() {})
				s.at(20, func() { s.ends(completed()) })
				s.at(21, func() {})
			},
		},
		"stopped before it was started": {
			"end Stopped@0\ngone@0\nforget@0",
			func(s *stage) {
				s.stops()
				s.serve()
				time.Sleep(3 * time.Second)
			},
		},
		"stopped while it works: told once, killed when it does not listen": {
			"start with key@0\norder Stopped@10\nkill@42\nend Stopped@43\ncompact@43\ngone@43\nforget@43",
			func(s *stage) {
				s.serve()
				s.at(1, s.works)
				s.at(10, s.stops)
				s.at(20, func() {})
				s.at(43, func() { s.ends(nil) })
				s.at(44, func() {})
			},
		},
		"stopped, and it listens": {
			"start with key@0\norder Stopped@10\nend Stopped@15\ncompact@15\ngone@15\nforget@15",
			func(s *stage) {
				s.serve()
				s.at(1, s.works)
				s.at(10, s.stops)
				s.at(15, func() { s.ends(&tallyman.Outcome{Reason: tallyman.ReasonStopped, Started: true}) })
				s.at(16, func() {})
			},
		},
		"stopped after its last word: nothing is killed": {
			"start with key@0\norder Stopped@10\nend Completed@10",
			func(s *stage) {
				s.serve()
				s.at(1, s.works)
				s.at(10, func() { s.attempt().Final = completed(); s.stops() })
				s.at(100, func() {})
			},
		},
		"an interrupted one that does not end is killed, stopped or not": {
			"note adopted@0\norder Stopped@20\nkill@642\nend Stopped@643\ncompact@643\ngone@643\nforget@643",
			func(s *stage) {
				s.works()
				s.serve()
				s.at(10, func() { s.attempt().Final = &tallyman.Outcome{Interrupted: true, Started: true} })
				s.at(20, s.stops)
				time.Sleep(622 * time.Second)
				s.at(643, func() { s.ends(nil) })
				s.at(643, func() {})
			},
		},
		"ended otherwise, its runner lives on and is killed": {
			"note adopted@0\nend JournalMismatch@5\nkill@36\ncompact@37\ngone@37\nforget@37",
			func(s *stage) {
				s.works()
				s.serve()
				s.at(5, func() {
					s.does("end JournalMismatch")
					now := time.Now()
					s.attempt().EndedAt = &now
				})
				s.at(37, func() { s.obs = tallyman.Observation{Gone: true} })
			},
		},
		"an agent that does not start is told, then killed": {
			"start with key@0\norder StartTimeout@60\nsilent since 0@60\nkill@92\nkill@94\nend StartTimeout@95\ncompact@95\ngone@95\nforget@95",
			func(s *stage) {
				s.serve()
				s.at(1, func() { s.attempt().Journal = "J" })
				time.Sleep(94 * time.Second)
				s.at(95, func() { s.ends(nil) })
				s.at(95, func() {})
			},
		},
		"silence is noted, and ended when it lasts": {
			"start with key@0\nsilent since 0@60\nkill@902\nkill@904\nend RunnerLost@905\ncompact@905\ngone@905\nforget@905",
			func(s *stage) {
				s.serve()
				s.at(1, s.works)
				time.Sleep(904 * time.Second)
				s.at(905, func() { s.ends(nil) })
				s.at(905, func() {})
			},
		},
		"contact that comes back is lost anew": {
			"start with key@0\nsilent since 0@60\nheard of@70\nsilent since 70@130",
			func(s *stage) {
				s.serve()
				s.at(1, s.works)
				s.at(70, func() { s.contact = time.Now() })
				s.at(140, func() {})
			},
		},
		"before its first word it is not silent, however old the server": {
			"start with key@0",
			func(s *stage) {
				s.contact = s.began.Add(-time.Hour)
				s.serve()
				s.at(1, func() {})
			},
		},
		"what an earlier server called lost is heard of again": {
			"note adopted@0\nheard of@0",
			func(s *stage) {
				s.works()
				s.attempt().LastContact = ptr(s.began.Add(-time.Hour))
				s.serve()
			},
		},
		"a start that can never work": {
			"start with key@0\nend BackendError@0\ngone@0\nforget@0",
			func(s *stage) {
				s.errs["start"] = &tallyman.Error{Code: tallyman.Internal, Reason: tallyman.BackendError, Message: "no such program"}
				s.serve()
				time.Sleep(3 * time.Second)
			},
		},
		"a start that may work later": {
			"start with key@0\nstart with key@2",
			func(s *stage) {
				s.errs["start"] = errors.New("not now")
				s.serve()
				time.Sleep(time.Second)
				s.mu.Lock()
				delete(s.errs, "start")
				s.mu.Unlock()
				time.Sleep(5 * time.Second)
			},
		},
		"a runner that was heard of is not started twice": {
			"kill@0\nend RunnerLost@0\ncompact@0\ngone@0\nforget@0",
			func(s *stage) {
				s.works()
				s.obs = tallyman.Observation{} // somebody has removed its folder
				s.serve()
				time.Sleep(3 * time.Second)
			},
		},
	} {
		t.Run(name, func(t *testing.T) { play(t, c.want, c.scene) })
	}
}

func TestWhatARunnerCouldNotDeliverIsDelivered(t *testing.T) {
	lines := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint("event ", i+1, strings.Repeat("x", 300_000)))
		}
		return all
	}
	for name, c := range map[string]struct {
		have, journal int
		id            string
		want          int
	}{
		"all of it":               {0, 12, "J", 12},
		"the rest":                {5, 12, "J", 12},
		"nothing":                 {12, 12, "J", 12},
		"less than History has":   {12, 7, "J", 12},
		"another journal is none": {0, 12, "K", 0},
	} {
		t.Run(name, func(t *testing.T) {
			all := lines(12)
			s := play(t, "note adopted@0\nend RunnerLost@1\ncompact@1\ngone@1\nforget@1", func(s *stage) {
				s.works()
				s.serve()
				s.at(1, func() {
					s.journal, s.history = all[:c.journal], slices.Clone(all[:c.have])
					s.ends(nil)
					s.obs.Journal = c.id
				})
				s.at(1, func() {})
			})
			if diff := cmp.Diff(all[:c.want], s.history, cmp.Transformer("short", func(t string) string { return t[:10] })); diff != "" && c.want > 0 || len(s.history) != c.want {
				t.Errorf("History has %d:\n%s", len(s.history), diff)
			}
		})
	}
}

func TestTheSlotDoesNotWaitForHistory(t *testing.T) {
	s := play(t, "note adopted@0\nend RunnerLost@1\ngone@1\nforget@1\ncompact@16\ndelivered@16", func(s *stage) {
		s.works()
		s.serve()
		s.at(1, func() {
			s.journal = []string{"a", "b"}
			s.ends(nil)
			s.errs["history"] = errors.New("no history")
		})
		for second := 2; second < 10; second++ { // much goes on beside it
			s.at(second, func() {})
		}
		s.at(10, func() { delete(s.errs, "history") })
		s.at(20, func() {})
	})
	// At the end, when the slot became free, and by the first of the tries that follow.
	if tries := strings.Count(s.log.String(), "no history"); len(s.history) != 2 || tries != 3 {
		t.Errorf("History has %q, %d tries failed; the log:\n%s", s.history, tries, s.log.String())
	}
}

func TestWhatAnEarlierServerOwedIsDelivered(t *testing.T) {
	for name, c := range map[string]struct {
		obs  tallyman.Observation
		err  error
		want string
		has  int
	}{
		"all of it":                                      {obs: tallyman.Observation{Gone: true, Journal: "J", Last: 2}, want: "compact@0\ndelivered@0", has: 2},
		"nothing, where the folder is gone":              {want: "delivered@0"},
		"nothing, where History has others in its place": {tallyman.Observation{Gone: true, Journal: "J", Last: 2}, tallyman.Errorf(tallyman.Conflict, "other bytes"), "delivered@0", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, c.want, func(s *stage) {
				s.owed = []tallyman.Attempt{{RunID: ref.RunID, Number: 1, Journal: "J", Gone: true, Owed: true}}
				s.active, s.journal, s.obs, s.errs["append"] = nil, []string{"a", "b"}, c.obs, c.err
				s.serve()
				time.Sleep(5 * time.Second)
			})
			if len(s.history) != c.has {
				t.Errorf("History has %q", s.history)
			}
		})
	}
}

// A run may be removed while what it was owed is on its way.
func TestWhatWasDeliveredOfARemovedRunIsDeleted(t *testing.T) {
	s := play(t, "compact@0\ndelivered@0\ndelete J@0", func(s *stage) {
		s.owed = []tallyman.Attempt{{RunID: ref.RunID, Number: 1, Journal: "J", Gone: true, Owed: true}}
		s.active, s.journal, s.obs = nil, []string{"a"}, tallyman.Observation{Gone: true, Journal: "J", Last: 1}
		s.errs["delivered"] = tallyman.Errorf(tallyman.NotFound, "there is no such run")
		s.serve()
	})
	if len(s.history) != 0 {
		t.Errorf("History has %q", s.history)
	}
}

func TestATimeWithoutAServerIsNobodysFault(t *testing.T) {
	long := func(s *stage) time.Time { return s.began.Add(-24 * time.Hour) }
	for name, c := range map[string]struct {
		want  string
		scene func(*stage)
	}{
		"an agent that had not been started": {
			"note adopted@0\norder StartTimeout@60",
			func(s *stage) {
				s.obs = tallyman.Observation{Running: true}
				s.attempt().Journal, s.attempt().AdmittedAt = "J", long(s)
				s.contact = s.began.Add(time.Hour)
				s.serve()
				s.at(61, func() {})
			},
		},
		"a stop that nobody had passed on": {
			"note adopted@0\norder Stopped@0\nkill@32",
			func(s *stage) {
				s.works()
				s.stops()
				s.run().StopRequestedAt = ptr(long(s))
				s.serve()
				time.Sleep(33 * time.Second)
			},
		},
		"an end that it had not drained": {
			"kill@632",
			func(s *stage) {
				s.works()
				s.attempt().Final, s.attempt().EndedAt = completed(), ptr(long(s))
				s.serve()
				time.Sleep(633 * time.Second)
			},
		},
	} {
		t.Run(name, func(t *testing.T) { play(t, c.want, c.scene) })
	}
}

func TestWhoOnlyLooksStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		if err := s.x.Settle(t.Context()); err != nil || len(s.did) > 0 {
			t.Errorf("an attempt that was not started: %v, %v", s.did, err)
		}
		s.works()
		if err := s.x.Settle(t.Context()); err != nil || len(s.did) > 0 {
			t.Errorf("an attempt at work: %v, %v", s.did, err)
		}
		s.ends(completed())
		if err := s.x.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"end Completed@0", "compact@0", "gone@0", "forget@0"}, s.did); diff != "" {
			t.Errorf("an attempt that has ended:\n%s", diff)
		}
	})
}

func ptr[T any](v T) *T { return &v }

func TestOneAttemptThatCannotBeSeenHoldsUpNoOther(t *testing.T) {
	s := play(t, "start with key@0", func(s *stage) {
		other := s.active[0]
		other.Attempt.RunID = "01JZ0000000000000000000002"
		s.active = append([]tallyman.Active{other}, s.active...)
		s.serve()
	})
	if !strings.Contains(s.log.String(), "another attempt cannot be observed") {
		t.Errorf("the log:\n%s", s.log.String())
	}
}
