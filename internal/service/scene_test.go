package service_test

import (
	"context"
	"strings"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/service"
	"github.com/tallyman-dev/tallyman/internal/store"
)

// scene is one run, with the callers that act on it.
type scene struct {
	h       *faultHouse
	service *service.Service // as the callers have it
	key     string
	req     tallyman.Request
	run     tallyman.Run // as submitted
	other   tallyman.Run // the second one, where there are two
	secret  string       // the attempt's key

	versions map[string]tallyman.Run // the newest that was seen of each run
}

func (s *scene) ctx() context.Context { return s.h.t.Context() }

// must is for what is done on a sound store.
func (s *scene) must(err error) {
	s.h.t.Helper()
	if err != nil {
		s.h.t.Fatal(err)
	}
}

// The stages that a run goes through, on a sound store.

func (s *scene) queued() { s.must(s.submit()) }

func (s *scene) twoQueued() {
	s.queued()
	var err error
	s.other, _, err = s.service.Submit(s.ctx(), tallyman.Request{Agent: "worker", Key: s.key + "-other"})
	s.must(err)
}

func (s *scene) admitted() { s.queued(); s.must(s.admit()) }
func (s *scene) greeted()  { s.admitted(); s.must(s.greet()) }
func (s *scene) running()  { s.greeted(); s.must(s.reportStart()) }
func (s *scene) reported() { s.running(); s.must(s.reportEnd()) }
func (s *scene) ended()    { s.reported(); s.must(s.endWell()) }

func (s *scene) over() {
	s.ended()
	s.must(s.gone())
	_, err := s.h.history.Append(s.ctx(), s.journal(), 1, [][]byte{[]byte(`{}`), []byte(`{}`)})
	s.must(err)
}

// clear brings the run to its end and away, so that the next one finds all
// slots free.
func (s *scene) clear() {
	for _, run := range []tallyman.Run{s.run, s.other} {
		is, err := s.h.store.Run(s.ctx(), run.ID)
		if run.ID == "" || tallyman.CodeOf(err) == tallyman.NotFound {
			continue
		}
		s.must(err)
		if !is.State.Terminal() {
			_, err := s.service.Stop(s.ctx(), is.ID, tallyman.ReasonStopped, "the test")
			s.must(err)
		}
		attempts, err := s.h.store.Attempts(s.ctx(), is.ID)
		s.must(err)
		for _, a := range attempts {
			_, err := s.service.End(s.ctx(), a.Ref(), tallyman.Settlement{Reason: tallyman.RunnerLost})
			s.must(err)
			s.must(s.service.Gone(s.ctx(), a.Ref(), false, nil))
		}
		s.must(s.service.Delete(s.ctx(), is.ID, func(context.Context, []string) error { return nil }))
	}
}

// What the callers do, once.

func (s *scene) submit() error {
	run, _, err := s.service.Submit(s.ctx(), s.req)
	if err == nil {
		s.run = run
	}
	return err
}

// admit is what the scheduler does in a pass: it looks at what is queued.
func (s *scene) admit() error { return s.admitOne(s.run, 5) }

func (s *scene) admitOne(run tallyman.Run, global int) error {
	is, err := s.h.store.Run(s.ctx(), run.ID)
	s.must(err)
	if is.State != tallyman.Queued {
		return nil
	}
	_, err = s.service.Admit(s.ctx(), is, global, 0, "local")
	if tallyman.CodeOf(err) == tallyman.Conflict {
		return nil // no room, or somebody was faster
	}
	return err
}

// admitBoth is a pass that goes on after an error with what it had planned.
func (s *scene) admitBoth() error {
	first := s.admitOne(s.run, 1)
	if err := s.admitOne(s.other, 1); err != nil {
		return err
	}
	return first
}

func (s *scene) stop() error {
	_, err := s.service.Stop(s.ctx(), s.run.ID, tallyman.ReasonStopped, "somebody")
	return err
}

func (s *scene) wait() error {
	return s.service.Wait(s.ctx(), s.now(), &tallyman.Waiting{Reason: tallyman.GlobalCap, Detail: "full"})
}

// greet is a start by the executor and the hello of the runner, which keeps
// its key while it asks again.
func (s *scene) greet() error {
	if s.secret == "" {
		key, err := s.service.NewKey(s.ctx(), s.ref())
		if err != nil {
			return err
		}
		s.secret = key
	}
	_, err := s.hello()
	return err
}

func (s *scene) hello() (tallyman.Welcome, error) {
	w, verdict, err := s.service.Greet(s.ctx(), s.ref(), tallyman.Proof{Key: s.secret}, tallyman.Hello{JournalID: s.journal(), LastCursor: 9})
	if err == nil && verdict != tallyman.HelloWelcome {
		s.h.t.Errorf("hello was answered with %s", verdict)
	}
	return w, err
}

// report is a connection of a runner: hello, and the facts that control has
// not confirmed.
func (s *scene) report(facts ...tallyman.Fact) error {
	w, err := s.hello()
	if err != nil {
		return err
	}
	_, err = s.service.Report(s.ctx(), s.ref(), w.Epoch, tallyman.ControlReport{Facts: facts})
	return err
}

func (s *scene) reportStart() error {
	return s.report(tallyman.Fact{Cursor: 3, Kind: tallyman.FactStarted, At: time.Now()},
		tallyman.Fact{Cursor: 5, Kind: tallyman.FactUsage, At: time.Now(), Usage: &tallyman.Usage{InputTokens: 4}})
}

func (s *scene) outcome() tallyman.Outcome {
	return tallyman.Outcome{Reason: tallyman.Completed, Result: "done", Started: true, Usage: tallyman.Usage{InputTokens: 7}}
}

func (s *scene) reportEnd() error {
	out := s.outcome()
	return s.report(tallyman.Fact{Cursor: 9, Kind: tallyman.FactFinal, At: time.Now(), Outcome: &out})
}

func (s *scene) end(e tallyman.Settlement) error {
	_, err := s.service.End(s.ctx(), s.ref(), e)
	return err
}

func (s *scene) endWell() error {
	return s.end(tallyman.Settlement{Reason: tallyman.Completed, Outcome: s.outcome(), FinalCursor: 9})
}

func (s *scene) endLong() error {
	out := s.outcome()
	out.Result = strings.Repeat("r", tallyman.MaxInline+1)
	return s.end(tallyman.Settlement{Reason: tallyman.Completed, Outcome: out, FinalCursor: 9})
}

func (s *scene) endLost() error {
	return s.end(tallyman.Settlement{Reason: tallyman.RunnerLost, Message: "the runner is gone", FinalCursor: 5})
}

func (s *scene) gone() error { return s.service.Gone(s.ctx(), s.ref(), false, nil) }

// delete is what rm does; a run that is not there any more is as good.
func (s *scene) delete() error {
	err := s.service.Delete(s.ctx(), s.run.ID, func(ctx context.Context, journals []string) error {
		return s.h.history.Delete(ctx, journals...)
	})
	if tallyman.CodeOf(err) == tallyman.NotFound {
		return nil
	}
	return err
}

// What is true, as the sound store has it.

func (s *scene) ref() tallyman.AttemptRef { return tallyman.AttemptRef{RunID: s.run.ID, Number: 1} }
func (s *scene) journal() string          { return "journal of " + s.run.ID }

func (s *scene) now() tallyman.Run {
	run, err := s.h.store.Run(s.ctx(), s.run.ID)
	s.must(err)
	return run
}

func (s *scene) attempt() tallyman.Attempt {
	a, err := s.h.store.Attempt(s.ctx(), s.ref())
	s.must(err)
	return a
}

func (s *scene) load() int {
	l, err := s.h.store.Load(s.ctx())
	s.must(err)
	return l.Total
}

func (s *scene) prompt() int {
	body, size, err := s.h.sound.Prompt(s.ctx(), s.run.ID)
	s.must(err)
	s.must(body.Close())
	return int(size)
}

func (s *scene) events() int {
	next, err := s.h.history.Next(s.ctx(), s.journal())
	s.must(err)
	return int(next) - 1
}

// remembered reports whether the run is gone and its key still brings it.
func (s *scene) remembered() bool {
	_, err := s.h.store.Run(s.ctx(), s.run.ID)
	run, created, submitErr := s.h.sound.Submit(s.ctx(), s.req)
	s.must(submitErr)
	return tallyman.CodeOf(err) == tallyman.NotFound && !created && run.ID == s.run.ID && run.State == tallyman.Succeeded && run.Result == "done"
}

// hold holds what must be true at any moment.
func (s *scene) hold() {
	s.h.t.Helper()
	runs, _, err := s.h.store.Runs(s.ctx(), store.Filter{Limit: 100})
	s.must(err)
	keys, states := map[string]int{}, map[tallyman.State]int{}
	for _, run := range runs {
		keys[run.Key]++
		states[run.State]++
		s.holdRun(run)
	}
	for key, n := range keys {
		if n > 1 {
			s.h.t.Errorf("key %s has brought %d runs", key, n)
		}
	}
	counts, err := s.h.store.Counts(s.ctx())
	s.must(err)
	for _, state := range tallyman.States {
		if n := counts[tallyman.DefaultNamespace][state]; n != states[state] {
			s.h.t.Errorf("%d runs are %s, %d are counted", states[state], state, n)
		}
	}
}

// holdRun: a run, its attempts and its timeline tell one story, and a version
// stands for one state of it.
func (s *scene) holdRun(run tallyman.Run) {
	t := s.h.t
	was, known := s.versions[run.ID]
	s.versions[run.ID] = run
	if known && (run.Version < was.Version || run.Version == was.Version && run.State != was.State) {
		t.Errorf("run %s went from %s, version %d, to %s, version %d", run.ID, was.State, was.Version, run.State, run.Version)
	}
	attempts, err := s.h.store.Attempts(s.ctx(), run.ID)
	s.must(err)
	if len(attempts) != run.Attempt {
		t.Errorf("run %s is in attempt %d of %d", run.ID, run.Attempt, len(attempts))
	}
	var used tallyman.Usage
	open := 0
	for _, a := range attempts {
		used = used.Plus(a.Usage)
		if a.EndedAt == nil {
			open++
		}
	}
	if used != run.Usage {
		t.Errorf("run %s used %+v, its attempts %+v", run.ID, run.Usage, used)
	}
	inFlight := run.State == tallyman.Starting || run.State == tallyman.Running
	if inFlight != (open == 1) || open > 1 || run.State.Terminal() != (run.EndedAt != nil) {
		t.Errorf("run %s is %s with %d open attempts, ended at %v", run.ID, run.State, open, run.EndedAt)
	}
	timeline, err := s.h.store.Timeline(s.ctx(), run.ID)
	s.must(err)
	told := map[string]int{}
	for _, e := range timeline {
		told[e.Kind]++
	}
	ended := 0
	if run.State.Terminal() {
		ended = 1
	}
	if told["queued"] != 1 || told["admitted"] != run.Attempt || told["ended"] != ended || told["retry"] != len(attempts)-open-min(ended, len(attempts)) {
		t.Errorf("run %s is %s in attempt %d, its timeline tells %v", run.ID, run.State, run.Attempt, told)
	}
	if _, err := s.h.store.Detail(s.ctx(), run.ID); err != nil {
		t.Errorf("run %s: %v", run.ID, err)
	}
}
