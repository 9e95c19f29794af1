package runner

import (
	"context"
	"log/slog"
	"os/exec"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/harness"
	"github.com/tallyman-dev/tallyman/internal/journal"
)

func ptr[T any](v T) *T { return &v }

func seconds(n float64) *tallyman.Duration {
	return ptr(tallyman.Duration(n * float64(time.Second)))
}

// stage is a harness under watch, in a bubble with a clock of its own. The
// process is a real one, so that signals reach something; when it ends is the
// test's to say.
type stage struct {
	*run
	t      *testing.T
	agent  *agent
	parser *words
	began  time.Time
	stop   context.CancelFunc
	lost   chan struct{}
	done   chan struct{}

	ending
}

// adapter is a harness that is asked to stop in its own way.
type adapter struct{ harness.Adapter }

func (adapter) StopOrder() []harness.StopStep {
	return []harness.StopStep{{Signal: syscall.SIGINT, Wait: time.Second}}
}

// onStage plays a scene. It ends when the harness's process has ended, which
// the scene may bring about with exit.
func onStage(t *testing.T, spec tallyman.RunnerSpec, scene func(*stage)) *stage {
	process := exec.Command("sleep", "600")
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = process.Process.Kill(), process.Wait() }()
	dir := t.TempDir()
	var s *stage
	synctest.Test(t, func(t *testing.T) {
		w, err := journal.Create(dir+"/journal", journal.Header{Journal: "J", Run: testRun, Attempt: 1}, journal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if spec.Grace == 0 {
			spec.Grace = tallyman.Duration(10 * time.Second)
		}
		up, err := newUplink(tallyman.Bootstrap{}, "", "", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		s = &stage{
			t: t, parser: &words{}, began: time.Now(), lost: make(chan struct{}), done: make(chan struct{}),
			agent: &agent{cmd: process, exited: make(chan struct{})},
			run:   &run{spec: spec, adapter: adapter{}, rec: newRecorder(w, up.provisional), up: up},
		}
		s.rec.started(s.began, s.parser)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s.stop = stop
		go func() {
			defer close(s.done)
			s.ending = s.watch(ctx, s.agent, s.lost)
		}()
		defer func() { close(s.agent.exited); <-s.done; synctest.Wait() }()
		scene(s)
	})
	return s
}

// at goes on to a time of the scene.
func (s *stage) at(second float64) {
	time.Sleep(time.Until(s.began.Add(time.Duration(second * float64(time.Second)))))
	synctest.Wait()
}

func (s *stage) says(line string) {
	s.t.Helper()
	s.rec.stdout(chunk{lines: [][]byte{[]byte(line)}})
	synctest.Wait()
}

// knows makes the parser know more, and say something.
func (s *stage) knows(p harness.Progress) {
	s.t.Helper()
	s.rec.mu.Lock()
	s.parser.progress = p
	s.rec.mu.Unlock()
	s.says("text:main/more")
}

// sent is the last signal that the harness got, 0 for none.
func (s *stage) sent() syscall.Signal {
	s.agent.mu.Lock()
	defer s.agent.mu.Unlock()
	return s.agent.sent
}

// quiet holds that nothing was done until now.
func (s *stage) quiet() {
	s.t.Helper()
	if got := s.sent(); got != 0 {
		s.t.Fatalf("after %s it was sent %s", time.Since(s.began), got)
	}
}

// stopping holds that the harness is being stopped now.
func (s *stage) stopping() {
	s.t.Helper()
	if got := s.sent(); got != syscall.SIGINT {
		s.t.Fatalf("after %s it was sent %s, want its own stop order", time.Since(s.began), got)
	}
}

func TestWhatElseEndsTheHarness(t *testing.T) {
	grace := tallyman.Duration(10 * time.Second)
	for name, c := range map[string]struct {
		spec        tallyman.RunnerSpec
		scene       func(*stage)
		reason      tallyman.Reason
		interrupted bool
		said        bool
	}{
		"a result that the process outlives": {
			scene: func(s *stage) {
				s.at(5)
				s.knows(harness.Progress{Result: true})
				s.at(14.9)
				s.quiet()
				s.at(15)
				s.stopping()
			},
			said: true,
		},
		"even when it goes on talking": {
			scene: func(s *stage) {
				s.at(5)
				s.knows(harness.Progress{Result: true})
				for n := range 9 {
					s.at(float64(6 + n))
					s.says("text:main/chatter")
				}
				s.quiet()
				s.at(15)
				s.stopping()
			},
			said: true,
		},
		"a new turn after a result begins anew": {
			scene: func(s *stage) {
				s.knows(harness.Progress{Result: true})
				s.at(8)
				s.knows(harness.Progress{Turns: 1})
				s.at(60)
				s.quiet()
				s.knows(harness.Progress{Turns: 1, Result: true})
				s.at(69.9)
				s.quiet()
				s.at(70)
				s.stopping()
			},
			said: true,
		},
		"an order": {
			scene: func(s *stage) {
				s.at(5)
				s.up.order(tallyman.StopOrder{Reason: tallyman.ReasonStopped, Message: "stopped by a test"})
				synctest.Wait()
				s.stopping()
			},
			reason: tallyman.ReasonStopped,
		},
		"an order after a limit changes no reason": {
			spec: tallyman.RunnerSpec{Agent: tallyman.AgentSpec{Limits: tallyman.Limits{Deadline: seconds(5)}}},
			scene: func(s *stage) {
				s.at(5)
				s.up.order(tallyman.StopOrder{Reason: tallyman.ReasonStopped})
				synctest.Wait()
			},
			reason: tallyman.DeadlineExceeded,
		},
		"an order after the result ends the process and means nothing": {
			scene: func(s *stage) {
				s.knows(harness.Progress{Result: true})
				s.up.order(tallyman.StopOrder{Reason: tallyman.ReasonStopped})
				synctest.Wait()
				s.stopping()
			},
			said: true,
		},
		"something that cannot end well": {
			scene: func(s *stage) {
				s.knows(harness.Progress{Fatal: "a required MCP server is not there"})
				s.stopping()
			},
		},
		"the runner's own end": {
			scene: func(s *stage) {
				s.stop()
				synctest.Wait()
				s.stopping()
			},
			interrupted: true,
		},
		"the runner's own end after the result": {
			scene: func(s *stage) {
				s.knows(harness.Progress{Result: true})
				s.stop()
				synctest.Wait()
				s.stopping()
			},
			interrupted: true, said: true,
		},
		"a result that comes after our signal": {
			scene: func(s *stage) {
				s.stop()
				synctest.Wait()
				s.stopping()
				s.knows(harness.Progress{Result: true})
			},
			interrupted: true,
		},
		"a server that has closed the attempt": {
			scene: func(s *stage) {
				s.up.closeState()
				synctest.Wait()
				s.stopping()
			},
			interrupted: true,
		},
		"a server that refuses the runner": {
			scene: func(s *stage) {
				close(s.lost)
				synctest.Wait()
				s.stopping()
			},
			interrupted: true,
		},
		"no server for too long": {
			spec: tallyman.RunnerSpec{OrphanBudget: tallyman.Duration(time.Minute)},
			scene: func(s *stage) {
				s.at(30)
				s.up.touch()
				s.at(89)
				s.quiet()
				s.at(90)
				s.stopping()
			},
			interrupted: true,
		},
		"no server, and patience without end": {
			scene: func(s *stage) { s.at(1e6); s.quiet() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.spec.ResultGrace = grace
			s := onStage(t, c.spec, c.scene)
			var reason tallyman.Reason
			if s.intent != nil {
				reason = s.intent.reason
			}
			if reason != c.reason || s.interrupted != c.interrupted || s.said != c.said {
				t.Errorf("intent %q, interrupted %v, said %v; want %q, %v, %v", reason, s.interrupted, s.said, c.reason, c.interrupted, c.said)
			}
		})
	}
}

func TestAHarnessThatDoesNotListenIsKilled(t *testing.T) {
	onStage(t, tallyman.RunnerSpec{Grace: tallyman.Duration(5 * time.Second)}, func(s *stage) {
		s.up.order(tallyman.StopOrder{Reason: tallyman.ReasonStopped})
		synctest.Wait()
		for _, step := range []struct {
			at  float64
			sig syscall.Signal
		}{{0, syscall.SIGINT}, {0.9, syscall.SIGINT}, {1, syscall.SIGTERM}, {5.9, syscall.SIGTERM}, {6, syscall.SIGKILL}} {
			s.at(step.at)
			if got := s.sent(); got != step.sig {
				t.Errorf("after %v s it got %s, want %s", step.at, got, step.sig)
			}
		}
	})
}

func TestUsageIsReportedOnceASecondAtMost(t *testing.T) {
	s := onStage(t, tallyman.RunnerSpec{}, func(s *stage) {
		for n := range 50 {
			s.at(10 + float64(n)/10)
			s.knows(harness.Progress{Usage: tallyman.Usage{OutputTokens: int64(n + 1)}})
			s.takes()
		}
		s.at(15.1) // the last is told even when nothing more happens
		s.takes()
		s.at(100)
	})
	var got []int64
	for _, f := range s.up.facts {
		if f.Kind == tallyman.FactUsage {
			got = append(got, f.Usage.OutputTokens)
		}
	}
	if diff := cmp.Diff([]int64{1, 10, 20, 30, 40, 50}, got); diff != "" {
		t.Errorf("reported were:\n%s", diff)
	}
}

// takes makes as if control had taken what it was told.
func (s *stage) takes() {
	s.up.mu.Lock()
	defer s.up.mu.Unlock()
	s.up.inFlight = len(s.up.facts)
}
