package runner

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/harness"
)

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
