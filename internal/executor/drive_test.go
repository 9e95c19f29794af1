package executor_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
)

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
		"stopped before it was started, as far as anybody knows": {
			"kill@0\nend Stopped@0\ngone@0\nforget@0",
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
		"what keeps it from starting is told once, and is not the gate's patience": {
			"start with key@0\nwait Quota: full@1\nwait PodPending: no node@300\nkill@360\nend Unschedulable@360\ngone@361\nforget@361",
			func(s *stage) {
				s.serve()
				s.at(1, func() { s.obs = blockedBy(tallyman.Quota, "full") })
				s.at(300, func() { s.obs = blockedBy("", "no node") })
				time.Sleep(60 * time.Second)
				s.at(361, func() { s.ends(nil) })
				s.at(361, func() {})
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
		"who was never heard is not lost": {
			"note adopted@0\nkill@902",
			func(s *stage) {
				s.works()
				s.attempt().Journal = ""
				s.serve()
				time.Sleep(903 * time.Second)
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

// Neither is a clock that was set meanwhile.
func TestATimeWithoutAServerIsNobodysFault(t *testing.T) {
	for name, ago := range map[string]time.Duration{"": 24 * time.Hour, ", by a clock that was ahead": -24 * time.Hour} {
		timeWithoutAServer(t, name, func(s *stage) time.Time { return s.began.Add(-ago) })
	}
}

func timeWithoutAServer(t *testing.T, clock string, long func(*stage) time.Time) {
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
		t.Run(name+clock, func(t *testing.T) { play(t, c.want, c.scene) })
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
		s.active = append([]tallyman.Active{other, other}, s.active...)
		s.serve()
		s.at(1, func() { s.active = s.active[:2] }) // it would be started again and again
		for second := range 120 {
			s.at(second+2, func() {})
		}
	})
	// What keeps both of them is said once, now and a minute later.
	if n := strings.Count(s.log.String(), "another attempt cannot be observed"); n != 2 {
		t.Errorf("%d lines in two minutes:\n%s", n, s.log.String())
	}
}

func blockedBy(gate tallyman.WaitReason, words string) tallyman.Observation {
	return tallyman.Observation{Running: true, Deaf: true, Blocked: &tallyman.Blocked{Wait: gate, Cause: tallyman.Cause{Reason: tallyman.Unschedulable, Message: words}}}
}

// Another process may free a slot: nothing is remembered of an attempt then.
func TestAnAttemptThatIsActiveNoMoreIsForgotten(t *testing.T) {
	play(t, "note adopted@0", func(s *stage) {
		s.works()
		s.serve()
		s.at(1, func() {})
		if n := s.x.Remembered(); n != 1 {
			t.Errorf("%d attempts are remembered while it is at work", n)
		}
		s.at(2, func() { s.active = nil })
		if n := s.x.Remembered(); n != 0 {
			t.Errorf("%d attempts are remembered", n)
		}
	})
}
