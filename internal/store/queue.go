package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tallyman-dev/tallyman"
)

// maxDelayed bounds how many runs that wait for their time Queue returns.
const maxDelayed = 1000

// Queue returns the first perAgent queued runs of each (namespace, source,
// agent) that wait for no time of their own, and of the runs that do wait
// (NotBefore) the thousand that are due next, so that neither hides the other.
// They are in the order of the queue: higher priority first, then by id. Its
// cost does not depend on how many more are queued.
func (s *Store) Queue(ctx context.Context, perAgent int) (items []tallyman.Run, err error) {
	err = s.snapshot(ctx, "Queue", func(c conn) error {
		if items, err = queue(ctx, c, perAgent); err != nil {
			return fmt.Errorf("list queued runs: %w", err)
		}
		return nil
	})
	return items, err
}

type queueGroup struct{ namespace, source, agent string }

func queue(ctx context.Context, c conn, perAgent int) ([]tallyman.Run, error) {
	items, err := all(ctx, c, scanRun, `SELECT `+runColumns+` FROM runs
		WHERE state = 'queued' AND not_before IS NOT NULL ORDER BY not_before, id LIMIT ?`, maxDelayed)
	if err != nil {
		return nil, err
	}
	for g := (queueGroup{}); ; {
		var found bool
		if g, found, err = nextGroup(ctx, c, g); err != nil {
			return nil, err
		}
		if !found {
			break
		}
		more, err := all(ctx, c, scanRun, `SELECT `+runColumns+` FROM runs
			WHERE state = 'queued' AND not_before IS NULL AND namespace = ? AND source = ? AND agent = ?
			ORDER BY queue_order, id LIMIT ?`, g.namespace, g.source, g.agent, perAgent)
		if err != nil {
			return nil, err
		}
		items = append(items, more...)
	}
	slices.SortFunc(items, inQueue)
	return items, nil
}

// nextGroup returns the first group after g in which something is ready. It
// steps over the runs of a group; one comparison of all three columns would
// walk through them, since SQLite looks up such a bound with "at least".
func nextGroup(ctx context.Context, c conn, g queueGroup) (queueGroup, bool, error) {
	for _, step := range []struct {
		where string
		args  []any
	}{
		{"namespace = ? AND source = ? AND agent > ?", []any{g.namespace, g.source, g.agent}},
		{"namespace = ? AND source > ?", []any{g.namespace, g.source}},
		{"namespace > ?", []any{g.namespace}},
	} {
		next, found, err := first(ctx, c, scanGroup, `SELECT namespace, source, agent FROM runs
			WHERE state = 'queued' AND not_before IS NULL AND `+step.where+`
			ORDER BY namespace, source, agent LIMIT 1`, step.args...)
		if err != nil || found {
			return next, found, err
		}
	}
	return queueGroup{}, false, nil
}

func scanGroup(from row) (g queueGroup, err error) {
	err = from.Scan(&g.namespace, &g.source, &g.agent)
	return g, err
}

// inQueue is the order of the queue.
func inQueue(a, b tallyman.Run) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID))
}

// countPositions fills in the place of each waiting run in the queue of its
// namespace and agent. It walks each such queue once.
func countPositions(ctx context.Context, c conn, runs []tallyman.Run) error {
	type queueOf struct{ namespace, agent string }
	waiting := map[queueOf][]*tallyman.Run{}
	for i := range runs {
		if r := &runs[i]; r.State == tallyman.Queued && r.Waiting != nil {
			q := queueOf{r.Namespace, r.Agent}
			waiting[q] = append(waiting[q], r)
		}
	}
	for q, members := range waiting {
		slices.SortFunc(members, func(a, b *tallyman.Run) int { return inQueue(*a, *b) })
		ahead := 0
		var last *tallyman.Run
		for _, r := range members {
			query := `SELECT count(*) FROM runs WHERE state = 'queued' AND namespace = ? AND agent = ? AND (queue_order, id) < (?, ?)`
			args := []any{q.namespace, q.agent, -r.Priority, r.ID}
			if last != nil {
				query += ` AND (queue_order, id) >= (?, ?)`
				args = append(args, -last.Priority, last.ID)
			}
			n, _, err := first(ctx, c, scanInt, query, args...)
			if err != nil {
				return fmt.Errorf("count the queue of agent %s: %w", q.agent, err)
			}
			ahead += n
			r.Waiting.Position = ahead + 1
			last = r
		}
	}
	return nil
}

func scanInt(from row) (n int, err error) {
	err = from.Scan(&n)
	return n, err
}

// Load is how many attempts take a slot: all whose processes are not known
// to be gone.
type Load struct {
	Total   int
	ByAgent map[string]int // by tallyman.AgentKey
}

// Load counts the attempts that take a slot.
func (s *Store) Load(ctx context.Context) (l Load, err error) {
	err = s.read(ctx, "Load", func(c conn) error {
		l, err = load(ctx, c)
		return err
	})
	return l, err
}

func load(ctx context.Context, c conn) (Load, error) {
	type entry struct {
		namespace, agent string
		n                int
	}
	entries, err := all(ctx, c, func(from row) (e entry, err error) {
		err = from.Scan(&e.namespace, &e.agent, &e.n)
		return e, err
	}, `SELECT r.namespace, r.agent, count(*) FROM attempts a CROSS JOIN runs r
		WHERE NOT a.gone AND r.id = a.run_id GROUP BY r.namespace, r.agent`)
	if err != nil {
		return Load{}, fmt.Errorf("count attempts: %w", err)
	}
	l := Load{ByAgent: make(map[string]int, len(entries))}
	for _, e := range entries {
		l.Total += e.n
		l.ByAgent[tallyman.AgentKey(e.namespace, e.agent)] = e.n
	}
	return l, nil
}
