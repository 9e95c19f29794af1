package store

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tallyman-dev/tallyman"
)

// Filter says which runs to list. What is not given does not narrow.
type Filter struct {
	Namespace string
	States    []tallyman.State
	Agent     string
	Labels    map[string]string // all must be there
	// Text is words that must all occur, in any case, in the name, the agent,
	// the labels or the beginning of the prompt.
	Text  string
	Since time.Time // created then or later
	Limit int       // 1 to 1000; 0 is 50
	After string    // the cursor that the page before ended with
}

// The limits of a page.
const (
	DefaultLimit = 50
	MaxLimit     = 1000
)

// maxSearch bounds the column that text is looked for in, in bytes. Looking
// for what is nowhere reads it of every run.
const maxSearch = 200

// Runs returns a page of runs, the newest first, and the cursor of the next
// one, "" when there is none. Runs that come or end between two pages make no
// other run appear twice or not at all. A cursor that is not one of ours and
// a limit out of range are Invalid.
func (s *Store) Runs(ctx context.Context, f Filter) (items []tallyman.Run, next string, err error) {
	err = s.snapshot(ctx, "Runs", func(c conn) error {
		items, next, err = list(ctx, c, f)
		return err
	})
	return items, next, err
}

func list(ctx context.Context, c conn, f Filter) ([]tallyman.Run, string, error) {
	if f.Limit < 0 || f.Limit > MaxLimit {
		return nil, "", tallyman.Errorf(tallyman.Invalid, "limit %d: give 1 to %d", f.Limit, MaxLimit)
	}
	f.Limit = cmp.Or(f.Limit, DefaultLimit)
	from, err := parseCursor(f.After)
	if err != nil {
		return nil, "", err
	}
	spaces := []string{f.Namespace}
	if f.Namespace == "" {
		if spaces, err = namespaces(ctx, c); err != nil {
			return nil, "", err
		}
	}
	var items []tallyman.Run
	for _, f.Namespace = range spaces {
		for _, state := range f.walks() {
			query, args := f.query(state, from)
			more, err := all(ctx, c, scanRun, query, args...)
			if err != nil {
				return nil, "", fmt.Errorf("list runs: %w", err)
			}
			items = append(items, more...)
		}
	}
	slices.SortFunc(items, func(a, b tallyman.Run) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
	})
	next := ""
	if len(items) > f.Limit {
		items = items[:f.Limit]
		next = cursorOf(items[f.Limit-1])
	}
	return items, next, countPositions(ctx, c, items)
}

// namespaces returns those that have runs. Lists of all walk one after the
// other, each along its own part of an index.
func namespaces(ctx context.Context, c conn) ([]string, error) {
	names, err := all(ctx, c, scanString, `SELECT DISTINCT namespace FROM run_counts WHERE n <> 0 ORDER BY namespace`)
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	return names, nil
}

// walks says which states to walk one by one, each along an index that is in
// the order of the page; "" is all of them in one walk.
func (f Filter) walks() []tallyman.State {
	states := slices.Clone(f.States)
	slices.Sort(states)
	states = slices.Compact(states)
	switch {
	case len(states) > 0:
		return states
	case f.Agent != "" && len(f.Labels) == 0:
		return tallyman.States
	default:
		return []tallyman.State{""}
	}
}

// query is one walk. Labels, where given, are walked along the first of them.
func (f Filter) query(state tallyman.State, from cursor) (string, []any) {
	where := []string{"r.namespace = ?"}
	args := []any{f.Namespace}
	and := func(term string, values ...any) {
		where = append(where, term)
		args = append(args, values...)
	}
	tables, created, id := "runs r", "r.created_at", "r.id"
	for i, key := range slices.Sorted(maps.Keys(f.Labels)) {
		if i == 0 {
			tables, created, id = "run_labels l CROSS JOIN runs r", "l.created_at", "l.run_id"
			and("r.id = l.run_id AND l.namespace = ? AND l.key = ? AND l.value = ?", f.Namespace, clean(key), clean(f.Labels[key]))
			continue
		}
		and("EXISTS (SELECT 1 FROM run_labels m WHERE m.run_id = r.id AND m.key = ? AND m.value = ?)", clean(key), clean(f.Labels[key]))
	}
	if state != "" {
		and("r.state = ?", state)
	}
	if f.Agent != "" {
		and("r.agent = ?", f.Agent)
	}
	for _, word := range strings.Fields(f.Text) {
		and("r.search LIKE ? ESCAPE '!'", "%"+likeEscapes.Replace(strings.ToLower(clean(word)))+"%")
	}
	if !f.Since.IsZero() {
		and(created+" >= ?", f.Since.UnixMicro())
	}
	if from.id != "" {
		and("("+created+", "+id+") < (?, ?)", from.created, from.id)
	}
	query := "SELECT " + listColumns + " FROM " + tables + " WHERE " + strings.Join(where, " AND ") +
		" ORDER BY " + created + " DESC, " + id + " DESC LIMIT ?"
	return query, append(args, f.Limit+1)
}

var (
	listColumns = of("r", runColumns)
	likeEscapes = strings.NewReplacer("!", "!!", "%", "!%", "_", "!_")
)

// searchText is what Filter.Text looks in.
func searchText(r tallyman.Run, d Detail) string {
	var b strings.Builder
	b.WriteString(r.Name)
	if !strings.HasPrefix(r.Name, r.Agent) {
		b.WriteString(" " + r.Agent)
	}
	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		b.WriteString(" " + key + "=" + r.Labels[key])
	}
	b.WriteString(" ")
	b.WriteString(d.Prompt[:min(len(d.Prompt), maxSearch)])
	s := strings.ToLower(clean(b.String()))
	if len(s) <= maxSearch {
		return s
	}
	end := maxSearch
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// cursor is the place of a run in a list.
type cursor struct {
	created int64
	id      string
}

func cursorOf(r tallyman.Run) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(r.CreatedAt.UnixMicro(), 10) + " " + r.ID))
}

func parseCursor(s string) (cursor, error) {
	if s == "" {
		return cursor{}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	created, id, found := strings.Cut(string(b), " ")
	us, nerr := strconv.ParseInt(created, 10, 64)
	if err != nil || nerr != nil || !found || id == "" {
		return cursor{}, tallyman.Errorf(tallyman.Invalid, "%q is not the cursor of a page", s)
	}
	return cursor{us, clean(id)}, nil
}

// Counts returns how many runs of each namespace are in each state; what has
// none is not in it.
func (s *Store) Counts(ctx context.Context) (counts map[string]map[tallyman.State]int, err error) {
	err = s.read(ctx, "Counts", func(c conn) error {
		type entry struct {
			namespace string
			state     tallyman.State
			n         int
		}
		entries, err := all(ctx, c, func(from row) (e entry, err error) {
			err = from.Scan(&e.namespace, &e.state, &e.n)
			return e, err
		}, `SELECT namespace, state, n FROM run_counts WHERE n <> 0`)
		if err != nil {
			return fmt.Errorf("count runs: %w", err)
		}
		counts = map[string]map[tallyman.State]int{}
		for _, e := range entries {
			if counts[e.namespace] == nil {
				counts[e.namespace] = map[tallyman.State]int{}
			}
			counts[e.namespace][e.state] = e.n
		}
		return nil
	})
	return counts, err
}
