package scheduler_test

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
	"github.com/tallyman-dev/tallyman/internal/scheduler"
)

// stage is a queue and a service in memory, under a clock of the bubble's.
type stage struct {
	mu       sync.Mutex
	began    time.Time
	queue    []tallyman.Run
	taken    map[string]int
	caps     map[string]int
	refuse   map[string]error // by run or agent: what admitting or reading its cap says
	down     error            // of the whole store
	admitted []string         // ID@SECOND
	waits    []string         // ID:REASON, one for each write
	passes   int
	notice   chan struct{}
}

func newStage() *stage {
	return &stage{began: time.Now(), taken: map[string]int{}, caps: map[string]int{}, refuse: map[string]error{}, notice: make(chan struct{}, 1)}
}

func (s *stage) Queue(context.Context, int) ([]tallyman.Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passes++
	return slices.Clone(s.queue), s.down
}

func (s *stage) Load(context.Context) (total int, byAgent map[string]int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	byAgent = map[string]int{}
	for k, n := range s.taken {
		byAgent[k], total = n, total+n
	}
	return total, byAgent, nil
}

func (s *stage) AgentCap(_ context.Context, r tallyman.Run) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caps[r.Agent], s.refuse[r.Agent]
}

func (s *stage) Admit(_ context.Context, r tallyman.Run, _, _ int, backend string) (a tallyman.Attempt, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refuse[r.ID]; err != nil {
		return a, err
	}
	if backend != "test" {
		return a, errors.New("another backend: " + backend)
	}
	s.queue = slices.DeleteFunc(s.queue, func(q tallyman.Run) bool { return q.ID == r.ID })
	s.taken[r.AgentKey()]++
	s.admitted = append(s.admitted, fmt.Sprintf("%s@%v", r.ID, time.Since(s.began).Round(time.Millisecond).Seconds()))
	return a, nil
}

func (s *stage) Wait(_ context.Context, r tallyman.Run, w *tallyman.Waiting) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Waiting.Same(w) {
		return nil
	}
	for i := range s.queue {
		if s.queue[i].ID == r.ID {
			s.queue[i].Waiting = w
		}
	}
	s.waits = append(s.waits, r.ID+":"+string(w.Reason))
	return s.refuse[r.ID]
}

func (s *stage) QueueChanged() (<-chan struct{}, func()) { return s.notice, func() {} }

// set changes the stage; with a notice the scheduler is woken.
func (s *stage) set(notice bool, f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	if notice {
		s.notice <- struct{}{}
	}
	synctest.Wait()
}

func run(id, agent string, change ...func(*tallyman.Run)) tallyman.Run {
	r := tallyman.Run{ID: id, Name: id, Namespace: "default", Agent: agent, State: tallyman.Queued}
	for _, c := range change {
		c(&r)
	}
	return r
}

// play runs a scheduler while the scene goes on, and returns its log.
func play(t *testing.T, global int, scene func(*stage)) (s *stage, log string) {
	synctest.Test(t, func(t *testing.T) {
		s = newStage()
		var text strings.Builder
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- scheduler.New(s, s, global, "test", slog.New(slog.NewTextHandler(&text, nil))).Run(ctx)
		}()
		synctest.Wait()
		scene(s)
		stop()
		if err := <-done; err != nil {
			t.Errorf("it ended with %v", err)
		}
		log = text.String()
	})
	return s, log
}

func TestANoticeAdmitsAtOnceAndATickForCertain(t *testing.T) {
	s, log := play(t, 0, func(s *stage) {
		time.Sleep(time.Second)
		s.set(true, func() { s.queue = append(s.queue, run("told", "a")) })
		time.Sleep(time.Second)
		s.set(false, func() { s.queue = append(s.queue, run("untold", "a")) })
		time.Sleep(10 * time.Second)
	})
	if diff := cmp.Diff([]string{"told@1", "untold@6"}, s.admitted); diff != "" || log != "" {
		t.Errorf("%s\n%s", diff, log)
	}
}

func TestABackoffEndsOnTime(t *testing.T) {
	s, _ := play(t, 0, func(s *stage) {
		at := s.began.Add(93*time.Second + 250*time.Millisecond)
		s.set(true, func() { s.queue = append(s.queue, run("later", "a", func(r *tallyman.Run) { r.NotBefore = &at })) })
		time.Sleep(5 * time.Minute)
	})
	if diff := cmp.Diff([]string{"later@93.25"}, s.admitted); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"later:Backoff"}, s.waits); diff != "" {
		t.Errorf("what holds it back was written:\n%s", diff)
	}
}

func TestWhatHoldsARunBackIsWrittenWhenItChanges(t *testing.T) {
	s, _ := play(t, 2, func(s *stage) {
		s.set(true, func() {
			s.caps["a"], s.taken["default/a"] = 1, 1
			s.queue = append(s.queue, run("one", "a"), run("two", "b"), run("three", "b"))
		})
		time.Sleep(time.Minute)
		s.set(true, func() { s.taken["default/b"] = 0 })
		time.Sleep(time.Minute)
		s.set(true, func() { s.taken["default/a"] = 0 })
		time.Sleep(time.Minute)
	})
	// two takes the last slot; three gets it when two has gone. one waits for a
	// slot of its agent all the time.
	if diff := cmp.Diff([]string{"two@0", "three@60", "one@120"}, s.admitted); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"one:AgentCap", "three:GlobalCap"}, s.waits); diff != "" {
		t.Errorf("written was:\n%s", diff)
	}
}

func TestOneRunThatCannotBeAdmittedHoldsUpNoOther(t *testing.T) {
	for name, c := range map[string]struct {
		refuse error
		logged bool
	}{
		"it has moved":   {tallyman.Errorf(tallyman.Conflict, "moved"), false},
		"it was removed": {tallyman.Errorf(tallyman.NotFound, "removed"), false},
	} {
		s, log := play(t, 0, func(s *stage) {
			s.set(true, func() {
				s.refuse["one"] = c.refuse
				s.queue = append(s.queue, run("one", "a"), run("two", "a"))
			})
		})
		if diff := cmp.Diff([]string{"two@0"}, s.admitted); diff != "" || (log != "") != c.logged {
			t.Errorf("%s: %s\n%s", name, diff, log)
		}
	}
	s, log := play(t, 0, func(s *stage) {
		s.set(true, func() {
			s.refuse["broken"] = errors.New("its spec cannot be read")
			s.queue = append(s.queue, run("one", "broken"), run("two", "a"), run("three", "broken"))
		})
	})
	if diff := cmp.Diff([]string{"two@0"}, s.admitted); diff != "" || strings.Count(log, "its spec cannot be read") != 1 {
		t.Errorf("an agent whose cap cannot be read: %s\n%s", diff, log)
	}
}

func TestAStoreThatFailsIsAskedAgain(t *testing.T) {
	s, log := play(t, 0, func(s *stage) {
		s.set(true, func() { s.down, s.queue = errors.New("no store"), []tallyman.Run{run("one", "a")} })
		time.Sleep(12 * time.Second)
		s.set(false, func() { s.down = nil })
		time.Sleep(12 * time.Second)
	})
	if diff := cmp.Diff([]string{"one@15"}, s.admitted); diff != "" {
		t.Error(diff)
	}
	if n := strings.Count(log, "no store"); n != 3 {
		t.Errorf("it was told %d times:\n%s", n, log)
	}
}

func TestNothingToDoCostsAPassEveryFiveSeconds(t *testing.T) {
	s, _ := play(t, 0, func(*stage) { time.Sleep(time.Minute - time.Second) })
	if s.passes != 12 {
		t.Errorf("%d passes in a minute", s.passes)
	}
}
