package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/tallyman-dev/tallyman"
)

// AgentCounts returns how many runs each agent of the namespace has in each
// state; what has none is not in it. It reads one index.
func (s *Store) AgentCounts(ctx context.Context, namespace string) (map[string]map[tallyman.State]int64, error) {
	counts := map[string]map[tallyman.State]int64{}
	err := s.read(ctx, "AgentCounts", func(c conn) error {
		type entry struct {
			agent string
			state tallyman.State
			n     int64
		}
		entries, err := all(ctx, c, func(from row) (e entry, err error) {
			err = from.Scan(&e.agent, &e.state, &e.n)
			return e, err
		}, `SELECT agent, state, count(*) FROM runs WHERE namespace = ? GROUP BY agent, state`, cmp.Or(namespace, tallyman.DefaultNamespace))
		if err != nil {
			return fmt.Errorf("count the runs of agents: %w", err)
		}
		for _, e := range entries {
			if counts[e.agent] == nil {
				counts[e.agent] = map[tallyman.State]int64{}
			}
			counts[e.agent][e.state] = e.n
		}
		return nil
	})
	return counts, err
}
