package scheduler

import (
	"fmt"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// Snapshot is what a plan is made from.
type Snapshot struct {
	Now     time.Time
	Queue   []tallyman.Run // queued ones, in the order they would be admitted alone
	Total   int            // slots taken
	ByAgent map[string]int // by tallyman.AgentKey
	Global  int            // cap, 0: none
	Caps    map[string]int // per agent by tallyman.AgentKey, 0: none
}

// Plan is what to do: admit these in this order, and tell these why not.
type Plan struct {
	Admit []tallyman.Run
	Wait  map[string]*tallyman.Waiting // by run id
	// Next is when the earliest backoff ends, zero: none.
	Next time.Time
}

// group is one line of the queue: runs that share source and agent.
type group struct {
	namespace, agent string
	source           tallyman.Source
}

// Make plans one pass: higher priority first; inside a priority the groups
// take turns, those whose agents hold the fewest slots first, so that a flood
// from one of them does not starve the others, in one pass or over many.
func Make(s Snapshot) Plan {
	p := Plan{Wait: map[string]*tallyman.Waiting{}}
	total, byAgent := s.Total, map[string]int{}
	for k, n := range s.ByAgent {
		byAgent[k] = n
	}
	for _, r := range turns(s.Queue, s.ByAgent) {
		key := r.AgentKey()
		limit := s.Caps[key]
		switch {
		case r.NotBefore != nil && r.NotBefore.After(s.Now):
			p.Wait[r.ID] = &tallyman.Waiting{Reason: tallyman.Backoff, Detail: "next attempt at " + r.NotBefore.UTC().Format(time.RFC3339)}
			if p.Next.IsZero() || r.NotBefore.Before(p.Next) {
				p.Next = *r.NotBefore
			}
		case limit > 0 && byAgent[key] >= limit:
			p.Wait[r.ID] = &tallyman.Waiting{Reason: tallyman.AgentCap, Detail: fmt.Sprintf("%d of %d slots of agent %s are taken (concurrency.max)", limit, limit, r.Agent)}
		case s.Global > 0 && total >= s.Global:
			p.Wait[r.ID] = &tallyman.Waiting{Reason: tallyman.GlobalCap, Detail: fmt.Sprintf("%d of %d slots are taken (--max-running)", s.Global, s.Global)}
		default:
			p.Admit = append(p.Admit, r)
			total++
			byAgent[key]++
		}
	}
	return p
}

// turns orders a queue by priority, and inside one by turns of its groups,
// where each begins behind by the slots that its agent holds. The order inside
// a group stays.
func turns(queue []tallyman.Run, held map[string]int) []tallyman.Run {
	ordered := make([]tallyman.Run, 0, len(queue))
	for start := 0; start < len(queue); {
		end := start
		for end < len(queue) && queue[end].Priority == queue[start].Priority {
			end++
		}
		lines := map[group][]tallyman.Run{}
		var order []group
		for _, r := range queue[start:end] {
			g := group{r.Namespace, r.Agent, r.Source}
			if lines[g] == nil {
				order = append(order, g)
			}
			lines[g] = append(lines[g], r)
		}
		had := map[group]int{}
		for _, g := range order {
			had[g] = held[tallyman.AgentKey(g.namespace, g.agent)]
		}
		for range end - start {
			next := -1
			for i, g := range order {
				if len(lines[g]) > 0 && (next < 0 || had[g] < had[order[next]]) {
					next = i
				}
			}
			g := order[next]
			ordered = append(ordered, lines[g][0])
			lines[g] = lines[g][1:]
			had[g]++
		}
		start = end
	}
	return ordered
}
