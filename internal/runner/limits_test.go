package runner

import (
	"context"
	"log/slog"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

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

	intent      *order
	interrupted bool
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
		up := newUplink(tallyman.Bootstrap{}, "", "", "", slog.New(slog.DiscardHandler))
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
			s.intent, s.interrupted = s.watch(ctx, s.agent, s.lost)
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

func TestLimitsEndTheHarness(t *testing.T) {
	usd := func(spent float64) harness.Progress {
		return harness.Progress{Usage: tallyman.Usage{CostUSD: spent, CostSource: tallyman.CostHarness}}
	}
	tokens := func(n int64) harness.Progress {
		return harness.Progress{Usage: tallyman.Usage{InputTokens: n / 4, OutputTokens: n / 4, CacheReadTokens: n / 4, CacheWriteTokens: n - n/4*3}}
	}
	for name, c := range map[string]struct {
		limits tallyman.Limits
		used   tallyman.Usage
		scene  func(*stage)
		want   tallyman.Reason // "": nothing has ended it
		says   string
	}{
		"the deadline counts from the start": {
			limits: tallyman.Limits{Deadline: seconds(60)},
			scene: func(s *stage) {
				s.at(30)
				s.says("text:main/busy")
				s.at(59.999)
				s.quiet()
				s.at(60)
				s.stopping()
			},
			want: tallyman.DeadlineExceeded, says: "1m0s",
		},
		"silence": {
			limits: tallyman.Limits{Idle: seconds(10)},
			scene: func(s *stage) {
				s.at(9)
				s.says("delta:main/life")
				s.at(18.9)
				s.quiet()
				s.at(19)
				s.stopping()
			},
			want: tallyman.IdleTimeout, says: "10s",
		},
		"standard error is no life": {
			limits: tallyman.Limits{Idle: seconds(10)},
			scene: func(s *stage) {
				s.at(9)
				s.rec.stderrLines(chunk{lines: [][]byte{[]byte("warning")}})
				s.at(10)
				s.stopping()
			},
			want: tallyman.IdleTimeout,
		},
		"silence does not count while a tool is open": {
			limits: tallyman.Limits{Idle: seconds(10)},
			scene: func(s *stage) {
				s.says("tool.started:a tool.started:b")
				s.at(100)
				s.says("tool.finished:a")
				s.at(200)
				s.quiet()
				s.says("tool.finished:b")
				s.at(209.9)
				s.quiet()
				s.at(210)
				s.stopping()
			},
			want: tallyman.IdleTimeout,
		},
		"one tool call": {
			limits: tallyman.Limits{Tool: seconds(30), Idle: seconds(10)},
			scene: func(s *stage) {
				s.at(5)
				s.says("tool.started:slow")
				s.at(20)
				s.says("tool.started:fast text:main/more")
				s.at(34.9)
				s.quiet()
				s.at(35)
				s.stopping()
			},
			want: tallyman.IdleTimeout, says: "slow",
		},
		"turns, one more than allowed": {
			limits: tallyman.Limits{MaxTurns: ptr(2)},
			scene: func(s *stage) {
				s.knows(harness.Progress{Turns: 2})
				s.quiet()
				s.knows(harness.Progress{Turns: 3})
				s.stopping()
			},
			want: tallyman.MaxTurns,
		},
		"money, with what earlier attempts have spent": {
			limits: tallyman.Limits{BudgetUSD: ptr(1.0)}, used: tallyman.Usage{CostUSD: 0.6, CostSource: tallyman.CostHarness},
			scene: func(s *stage) {
				s.knows(usd(0.39))
				s.quiet()
				s.knows(usd(0.41))
				s.stopping()
			},
			want: tallyman.BudgetExceeded, says: "$1.0100 of a budget of $1.0000",
		},
		"tokens of all kinds, with those of earlier attempts": {
			limits: tallyman.Limits{MaxTokens: ptr[int64](1000)}, used: tallyman.Usage{CacheReadTokens: 600},
			scene: func(s *stage) {
				s.knows(tokens(400))
				s.quiet()
				s.knows(tokens(401))
				s.stopping()
			},
			want: tallyman.TokenLimit, says: "1001 of 1000",
		},
		"zero is no limit": {
			limits: tallyman.Limits{Deadline: seconds(0), Idle: seconds(0), Tool: seconds(0), MaxTurns: ptr(0), BudgetUSD: ptr(0.0), MaxTokens: ptr[int64](0)},
			scene: func(s *stage) {
				s.says("tool.started:a")
				p := tokens(1 << 40)
				p.Turns, p.Usage.CostUSD = 1000, 1000
				s.knows(p)
				s.at(1e6)
				s.quiet()
			},
		},
		"nor is none": {
			scene: func(s *stage) { s.at(1e6); s.quiet() },
		},
		"of two limits the first counts": {
			limits: tallyman.Limits{Deadline: seconds(10), Idle: seconds(8)},
			scene: func(s *stage) {
				s.at(8)
				s.stopping()
				s.at(12)
			},
			want: tallyman.IdleTimeout,
		},
		"a limit after the result is none": {
			limits: tallyman.Limits{Deadline: seconds(10), MaxTurns: ptr(1)},
			scene: func(s *stage) {
				s.at(9)
				s.knows(harness.Progress{Result: true, Turns: 2})
				s.at(11)
				s.quiet()
			},
		},
		"a limit while more follows after a result": {
			limits: tallyman.Limits{Deadline: seconds(10)},
			scene: func(s *stage) {
				s.knows(harness.Progress{Result: true, More: true})
				s.at(10)
				s.stopping()
			},
			want: tallyman.DeadlineExceeded,
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := tallyman.RunnerSpec{Agent: tallyman.AgentSpec{Limits: c.limits}, Used: c.used, ResultGrace: tallyman.Duration(time.Hour)}
			s := onStage(t, spec, c.scene)
			switch {
			case s.interrupted:
				t.Error("a limit is no interruption")
			case c.want == "" && s.intent != nil:
				t.Errorf("it was ended for %v", *s.intent)
			case c.want != "" && (s.intent == nil || s.intent.reason != c.want || !strings.Contains(s.intent.message, c.says)):
				t.Errorf("the intent is %+v, want %s with %q", s.intent, c.want, c.says)
			}
		})
	}
}

func TestWhatElseEndsTheHarness(t *testing.T) {
	grace := tallyman.Duration(10 * time.Second)
	for name, c := range map[string]struct {
		spec        tallyman.RunnerSpec
		scene       func(*stage)
		reason      tallyman.Reason
		interrupted bool
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
			if reason != c.reason || s.interrupted != c.interrupted {
				t.Errorf("intent %q, interrupted %v; want %q, %v", reason, s.interrupted, c.reason, c.interrupted)
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
		s.at(10) // so that the first is due at once
		for n := range 50 {
			s.knows(harness.Progress{Usage: tallyman.Usage{OutputTokens: int64(n + 1)}})
			// As if control had taken it.
			s.up.mu.Lock()
			s.up.inFlight = len(s.up.facts)
			s.up.mu.Unlock()
			s.at(10 + float64(n+1)/10)
		}
		s.says("text:main/end")
		s.at(20)
		s.says("text:main/end")
	})
	var got []int64
	for _, f := range s.up.facts {
		got = append(got, f.Usage.OutputTokens)
	}
	if len(got) != 6 || got[0] != 1 || got[1] != 11 || got[5] != 50 {
		t.Errorf("reported were %v", got)
	}
}

func TestTheNextLookIsWhenALimitOfTimeIsReached(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := func(name string) *tallyman.Duration {
			if rapid.Bool().Draw(t, name+" given") {
				return seconds(float64(rapid.IntRange(0, 100).Draw(t, name)))
			}
			return nil
		}
		second := func(name string) time.Time {
			return epoch.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, name)) * time.Second)
		}
		l := tallyman.Limits{Deadline: limit("deadline"), Idle: limit("idle"), Tool: limit("tool")}
		w := watch{started: epoch, activity: second("activity"), tools: map[string]time.Time{}}
		for i := range rapid.IntRange(0, 3).Draw(t, "tools") {
			w.tools[string(rune('a'+i))] = second("tool start")
		}
		next := nextLook(l, w)
		if next.IsZero() {
			if o := exceeded(l, tallyman.Usage{}, w, epoch.Add(1e6*time.Hour)); o != nil {
				t.Fatalf("nobody would look, but %v", *o)
			}
			return
		}
		if o := exceeded(l, tallyman.Usage{}, w, next); o == nil {
			t.Fatalf("nothing is reached at %s", next)
		}
		if o := exceeded(l, tallyman.Usage{}, w, next.Add(-time.Nanosecond)); o != nil {
			t.Fatalf("%v is reached before %s", *o, next)
		}
	})
}

func TestJudge(t *testing.T) {
	said := func(r tallyman.Reason) tallyman.Outcome {
		return tallyman.Outcome{Reason: r, Message: "said the harness"}
	}
	exit := func(code int) tallyman.Exit { return tallyman.Exit{Code: code} }
	killed, ours := tallyman.Exit{Code: -1, Signal: "SIGKILL"}, tallyman.Exit{Code: -1, Signal: "SIGKILL", Sent: "SIGKILL"}
	deadline := &order{tallyman.DeadlineExceeded, "too long"}
	for name, c := range map[string]struct {
		out         tallyman.Outcome
		exit        tallyman.Exit
		intent      *order
		interrupted bool
		oom         int
		want        tallyman.Outcome
	}{
		"the harness says it all":                     {out: said(tallyman.Completed), exit: exit(0), want: tallyman.Outcome{Reason: tallyman.Completed, Message: "said the harness", ExitCode: ptr(0)}},
		"its failure, too":                            {out: said(tallyman.AgentError), exit: exit(3), want: tallyman.Outcome{Reason: tallyman.AgentError, Message: "said the harness", ExitCode: ptr(3)}},
		"a failure without words gets its name":       {out: tallyman.Outcome{Reason: tallyman.NoResult}, exit: exit(0), want: tallyman.Outcome{Reason: tallyman.NoResult, Message: "NoResult", ExitCode: ptr(0)}},
		"our intent stands above it":                  {out: said(tallyman.AgentError), exit: exit(143), intent: deadline, want: tallyman.Outcome{Reason: tallyman.DeadlineExceeded, Message: "too long", ExitCode: ptr(143)}},
		"even above a good end":                       {out: said(tallyman.Completed), exit: exit(0), intent: deadline, want: tallyman.Outcome{Reason: tallyman.DeadlineExceeded, Message: "too long", ExitCode: ptr(0)}},
		"and above an interruption and memory":        {out: said(tallyman.AgentError), exit: killed, intent: deadline, interrupted: true, oom: 1, want: tallyman.Outcome{Reason: tallyman.DeadlineExceeded, Message: "too long", Signal: "SIGKILL", OOMKills: 1}},
		"interrupted: nobody here knows why":          {out: said(tallyman.AgentError), exit: exit(143), interrupted: true, want: tallyman.Outcome{Interrupted: true, Message: "the runner was told to end while the agent was at work", ExitCode: ptr(143)}},
		"interrupted after the work was done":         {out: said(tallyman.Completed), exit: exit(0), interrupted: true, want: tallyman.Outcome{Reason: tallyman.Completed, Message: "said the harness", ExitCode: ptr(0)}},
		"killed for memory":                           {out: said(tallyman.AgentError), exit: killed, oom: 2, want: tallyman.Outcome{Reason: tallyman.OOMKilled, Message: "the kernel killed the agent for memory (2 kills in its control group)", Signal: "SIGKILL", OOMKills: 2}},
		"killed, and the counter did not move":        {out: said(tallyman.AgentError), exit: killed, want: tallyman.Outcome{Reason: tallyman.AgentError, Message: "said the harness", Signal: "SIGKILL"}},
		"a kill of ours is no sign of memory":         {out: said(tallyman.AgentError), exit: ours, oom: 2, want: tallyman.Outcome{Reason: tallyman.AgentError, Message: "said the harness", Signal: "SIGKILL"}},
		"another signal neither":                      {out: said(tallyman.AgentError), exit: tallyman.Exit{Code: -1, Signal: "SIGSEGV"}, oom: 2, want: tallyman.Outcome{Reason: tallyman.AgentError, Message: "said the harness", Signal: "SIGSEGV"}},
		"an exit while the counter moved beside us":   {out: said(tallyman.AgentError), exit: exit(1), oom: 2, want: tallyman.Outcome{Reason: tallyman.AgentError, Message: "said the harness", ExitCode: ptr(1)}},
		"a counter that went back is no kill":         {out: said(tallyman.Completed), exit: exit(0), oom: -1, want: tallyman.Outcome{Reason: tallyman.Completed, Message: "said the harness", ExitCode: ptr(0)}},
		"killed for memory after the result was said": {out: said(tallyman.Completed), exit: killed, oom: 1, want: tallyman.Outcome{Reason: tallyman.Completed, Message: "said the harness", Signal: "SIGKILL", OOMKills: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(c.out, c.exit, c.intent, c.interrupted, c.oom)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
