package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallyman-dev/tallyman"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// queue makes runs of words like "a", "b!5" (priority 5) or "a+30s" (a retry
// that waits).
func queue(words string) []tallyman.Run {
	var all []tallyman.Run
	for i, w := range strings.Fields(words) {
		r := tallyman.Run{ID: string(rune('A' + i)), Namespace: "default", State: tallyman.Queued, Source: tallyman.SourceAPI}
		if name, d, ok := strings.Cut(w, "+"); ok {
			wait, err := time.ParseDuration(d)
			if err != nil {
				panic(err)
			}
			at := now.Add(wait)
			w, r.NotBefore = name, &at
		}
		name, p, _ := strings.Cut(w, "!")
		r.Agent, r.Priority = name, len(p)
		all = append(all, r)
	}
	return all
}

func TestPlan(t *testing.T) {
	cases := map[string]struct {
		snap  Snapshot
		admit string
		wait  map[string]tallyman.WaitReason
	}{
		"room for all":                     {Snapshot{Queue: queue("a b a")}, "ABC", nil},
		"the global cap":                   {Snapshot{Queue: queue("a b a"), Global: 2}, "AB", map[string]tallyman.WaitReason{"C": tallyman.GlobalCap}},
		"slots that are taken count":       {Snapshot{Queue: queue("a b"), Global: 2, Total: 1}, "A", map[string]tallyman.WaitReason{"B": tallyman.GlobalCap}},
		"more taken than the cap":          {Snapshot{Queue: queue("a"), Global: 2, Total: 5}, "", map[string]tallyman.WaitReason{"A": tallyman.GlobalCap}},
		"one agent's cap holds only it":    {Snapshot{Queue: queue("a a b"), Caps: map[string]int{"default/a": 1}}, "AC", map[string]tallyman.WaitReason{"B": tallyman.AgentCap}},
		"an agent's taken slots count":     {Snapshot{Queue: queue("a b"), Caps: map[string]int{"default/a": 1}, ByAgent: map[string]int{"default/a": 1}}, "B", map[string]tallyman.WaitReason{"A": tallyman.AgentCap}},
		"a retry waits for its time":       {Snapshot{Queue: queue("a+30s b")}, "B", map[string]tallyman.WaitReason{"A": tallyman.Backoff}},
		"a retry whose time has come":      {Snapshot{Queue: queue("a+0s")}, "A", nil},
		"higher priority goes first":       {Snapshot{Queue: queue("b!! a"), Global: 1}, "A", map[string]tallyman.WaitReason{"B": tallyman.GlobalCap}},
		"who holds fewer slots goes first": {Snapshot{Queue: queue("a a a b"), Global: 3, Total: 2, ByAgent: map[string]int{"default/a": 2}}, "D", map[string]tallyman.WaitReason{"A": tallyman.GlobalCap, "B": tallyman.GlobalCap, "C": tallyman.GlobalCap}},
		"agents take turns in a priority":  {Snapshot{Queue: queue("a a a b"), Global: 2}, "AD", map[string]tallyman.WaitReason{"B": tallyman.GlobalCap, "C": tallyman.GlobalCap}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.snap.Now = now
			p := Make(c.snap)
			admit := ""
			for _, r := range p.Admit {
				admit += r.ID
			}
			wait := map[string]tallyman.WaitReason{}
			for id, w := range p.Wait {
				wait[id] = w.Reason
			}
			if c.wait == nil {
				c.wait = map[string]tallyman.WaitReason{}
			}
			if admit != c.admit || !cmp.Equal(wait, c.wait) {
				t.Errorf("admits %q, waits %v", admit, wait)
			}
		})
	}
}

func TestThePlanWakesForTheEarliestRetry(t *testing.T) {
	p := Make(Snapshot{Now: now, Queue: queue("a+30s b+10s c+20s")})
	if !p.Next.Equal(now.Add(10 * time.Second)) {
		t.Errorf("next is %s", p.Next)
	}
}

func TestNoPlanOvershootsACap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Snapshot{
			Now: now, Global: rapid.IntRange(0, 5).Draw(t, "global"), Total: rapid.IntRange(0, 6).Draw(t, "total"),
			Caps: map[string]int{}, ByAgent: map[string]int{},
		}
		for _, a := range []string{"a", "b", "c"} {
			s.Caps["default/"+a] = rapid.IntRange(0, 3).Draw(t, "cap "+a)
			s.ByAgent["default/"+a] = rapid.IntRange(0, 4).Draw(t, "taken "+a)
		}
		words := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "a!", "b+1s"}), 0, 20).Draw(t, "queue")
		s.Queue = queue(strings.Join(words, " "))
		p := Make(s)
		taken := map[string]int{}
		for _, r := range p.Admit {
			taken[r.AgentKey()]++
			if limit := s.Caps[r.AgentKey()]; limit > 0 && s.ByAgent[r.AgentKey()]+taken[r.AgentKey()] > limit {
				t.Fatalf("agent %s is over its cap", r.Agent)
			}
		}
		if s.Global > 0 && len(p.Admit) > max(0, s.Global-s.Total) {
			t.Fatalf("%d admitted with %d of %d slots taken", len(p.Admit), s.Total, s.Global)
		}
		if len(p.Admit)+len(p.Wait) != len(s.Queue) {
			t.Fatalf("%d runs became %d admitted and %d waiting", len(s.Queue), len(p.Admit), len(p.Wait))
		}
	})
}
