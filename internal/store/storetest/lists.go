package storetest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/store"
)

func pages(t *testing.T, s *store.Store) {
	var want []string
	var runs []tallyman.Run
	for n := range 37 {
		runs = append(runs, newRun(n, func(r *tallyman.Run) {
			r.State = tallyman.States[n%len(tallyman.States)]
			r.CreatedAt = epoch.Add(time.Duration(n/3) * time.Second) // several at one time
			r.Labels = map[string]string{"x": "y"}
		}))
		want = append([]string{id(n)}, want...)
	}
	insert(t, s, runs...)
	for what, f := range map[string]store.Filter{
		"all": {}, "by agent": {Agent: "demo"}, "by state": {States: append(tallyman.States, tallyman.Queued)},
		"by label": {Labels: map[string]string{"x": "y"}}, "by text": {Text: "DEMO"}, "since": {Since: epoch},
	} {
		for _, limit := range []int{1, 5, 36, 37, 38, 1000} {
			f.Limit = limit
			var got []string
			for f.After = ""; ; {
				items, next, err := s.Runs(t.Context(), f)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, ids(items)...)
				if f.After = next; next == "" {
					break
				}
				if len(items) != limit {
					t.Fatalf("%s: a page of %d with more to come, want %d", what, len(items), limit)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s by %d: %d runs in another order or number:\n%v", what, limit, len(got), got)
			}
		}
	}
	insertMore := make([]tallyman.Run, 0, 60)
	for n := 100; n < 160; n++ {
		insertMore = append(insertMore, newRun(n))
	}
	insert(t, s, insertMore...)
	if got := listIDs(t, s, store.Filter{}); len(got) != store.DefaultLimit {
		t.Errorf("a page without a limit has %d runs, want %d", len(got), store.DefaultLimit)
	}
}

func pagesWhileInserting(t *testing.T, s *store.Store) {
	var want []string
	for n := range 40 {
		insert(t, s, newRun(n))
		want = append([]string{id(n)}, want...)
	}
	var got []string
	for after, n := "", 1000; ; n++ {
		items, next, err := s.Runs(t.Context(), store.Filter{Limit: 7, After: after})
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ids(items)...)
		insert(t, s, newRun(n))
		if after = next; after == "" {
			break
		}
	}
	same(t, got, want)
}

func filters(t *testing.T, s *store.Store) {
	insert(t, s,
		newRun(1, func(r *tallyman.Run) { r.Agent = "alpha"; r.Labels = map[string]string{"team": "x", "tier": "1"} }),
		newRun(2, func(r *tallyman.Run) {
			r.Agent = "alpha"
			r.State = tallyman.Running
			r.Labels = map[string]string{"team": "x"}
		}),
		newRun(3, func(r *tallyman.Run) {
			r.State = tallyman.Failed
			r.Labels = map[string]string{"team": "y", "tier": "1"}
		}),
		newRun(4, func(r *tallyman.Run) { r.Namespace = "other" }),
		newRun(5, func(r *tallyman.Run) { r.Name = "Über-Lauf" }),
	)
	mustTx(t, s, func(tx *store.Tx) error {
		long := strings.Repeat("x", 100) + " Needle " + strings.Repeat("é", 100)
		return tx.InsertRun(newRun(6), store.Detail{Prompt: long})
	})
	states := func(s ...tallyman.State) []tallyman.State { return s }
	team := func(v string) map[string]string { return map[string]string{"team": v} }
	for what, tc := range map[string]struct {
		filter store.Filter
		want   []int
	}{
		"nothing":                 {store.Filter{}, []int{6, 5, 4, 3, 2, 1}},
		"a page of all":           {store.Filter{Limit: 4}, []int{6, 5, 4, 3}},
		"the default namespace":   {store.Filter{Namespace: "default"}, []int{6, 5, 3, 2, 1}},
		"another namespace":       {store.Filter{Namespace: "other"}, []int{4}},
		"no such namespace":       {store.Filter{Namespace: "none"}, nil},
		"a state":                 {store.Filter{States: states(tallyman.Failed)}, []int{3}},
		"two states, one twice":   {store.Filter{States: states(tallyman.Running, tallyman.Failed, tallyman.Failed)}, []int{3, 2}},
		"no such state":           {store.Filter{States: states("odd")}, nil},
		"an agent":                {store.Filter{Agent: "alpha"}, []int{2, 1}},
		"an agent in a state":     {store.Filter{Agent: "alpha", States: states(tallyman.Running)}, []int{2}},
		"a label":                 {store.Filter{Labels: team("x")}, []int{2, 1}},
		"two labels":              {store.Filter{Labels: map[string]string{"team": "x", "tier": "1"}}, []int{1}},
		"a label and a state":     {store.Filter{Labels: team("x"), States: states(tallyman.Queued, tallyman.Running)}, []int{2, 1}},
		"a state, in a namespace": {store.Filter{Namespace: "other", States: states(tallyman.Queued)}, []int{4}},
		"a label and an agent":    {store.Filter{Labels: map[string]string{"tier": "1"}, Agent: "demo"}, []int{3}},
		"a label's value":         {store.Filter{Labels: team("z")}, nil},
		"text of a prompt":        {store.Filter{Text: "nEEdle"}, []int{6}},
		"text of a name":          {store.Filter{Text: "ÜBER-LAUF"}, []int{5}},
		"text of a label":         {store.Filter{Text: "team=x"}, []int{2, 1}},
		"text of an agent":        {store.Filter{Text: "alpha"}, []int{2, 1}},
		"all words of a text":     {store.Filter{Text: " tier=1  team=x "}, []int{1}},
		"text and a state":        {store.Filter{Text: "team", States: states(tallyman.Failed)}, []int{3}},
		"since":                   {store.Filter{Since: epoch.Add(3 * time.Second)}, []int{6, 5, 4, 3}},
		"since, by state":         {store.Filter{Since: epoch.Add(3 * time.Second), States: states(tallyman.Queued)}, []int{6, 5, 4}},
		"since, by label":         {store.Filter{Since: epoch.Add(2 * time.Second), Labels: team("x")}, []int{2}},
	} {
		var want []string
		for _, n := range tc.want {
			want = append(want, id(n))
		}
		if got := listIDs(t, s, tc.filter); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
}

func searchEscapes(t *testing.T, s *store.Store) {
	for n, name := range []string{"100%", "a_b", "axb", "wow!", "100x", `back\slash`, "q?"} {
		insert(t, s, newRun(n, func(r *tallyman.Run) { r.Name = name }))
	}
	for text, want := range map[string][]string{
		"100%": {id(0)}, "a_b": {id(1)}, "w!": {id(3)}, "%": {id(0)}, "_": {id(1)}, "!": {id(3)}, `\`: {id(5)}, "?": {id(6)},
		"'": nil, "!%": nil,
	} {
		if got := listIDs(t, s, store.Filter{Text: text}); !slices.Equal(got, want) {
			t.Errorf("text %q: got %v, want %v", text, got, want)
		}
	}
}

func badPages(t *testing.T, s *store.Store) {
	for _, f := range []store.Filter{{Limit: -1}, {Limit: 1001}, {After: "x"}, {After: "!!"}, {After: "MTIz"}, {After: "MTIzIA"}} {
		_, _, err := s.Runs(t.Context(), f)
		if tallyman.CodeOf(err) != tallyman.Invalid {
			t.Errorf("Runs(%+v): %v, want Invalid", f, err)
		}
	}
}

func counts(t *testing.T, s *store.Store) {
	type states = map[tallyman.State]int
	want := func(want map[string]states) {
		t.Helper()
		got, err := s.Counts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, want)
	}
	want(map[string]states{})
	insert(t, s, newRun(1), newRun(2), newRun(3, func(r *tallyman.Run) { r.State = tallyman.Failed }),
		newRun(4, func(r *tallyman.Run) { r.Namespace = "other" }))
	other := states{tallyman.Queued: 1}
	want(map[string]states{"default": {tallyman.Queued: 2, tallyman.Failed: 1}, "other": other})
	if err := put(t.Context(), s, id(1), func(r *tallyman.Run) { r.State = tallyman.Starting }); err != nil {
		t.Fatal(err)
	}
	want(map[string]states{"default": {tallyman.Queued: 1, tallyman.Starting: 1, tallyman.Failed: 1}, "other": other})
	mustTx(t, s, func(tx *store.Tx) error { return tx.DeleteRun(id(3)) })
	want(map[string]states{"default": {tallyman.Queued: 1, tallyman.Starting: 1}, "other": other})
	_ = s.InTx(t.Context(), func(tx *store.Tx) error {
		if err := tx.DeleteRun(id(2)); err != nil {
			t.Error(err)
		}
		return ErrFault
	})
	want(map[string]states{"default": {tallyman.Queued: 1, tallyman.Starting: 1}, "other": other})
}

func queue(t *testing.T, s *store.Store) {
	n := 0
	add := func(change ...func(*tallyman.Run)) string {
		n++
		insert(t, s, newRun(n, change...))
		return id(n)
	}
	agent := func(a string) func(*tallyman.Run) { return func(r *tallyman.Run) { r.Agent = a } }
	prio := func(p int) func(*tallyman.Run) { return func(r *tallyman.Run) { r.Priority = p } }
	a1, a2 := add(agent("a")), add(agent("a"))
	add(agent("a"))
	b1 := add(agent("b"), prio(-1))
	urgent := add(agent("a"), prio(5), func(r *tallyman.Run) { r.Source = tallyman.SourceKafka })
	high := add(agent("b"), prio(1))
	other := add(agent("a"), func(r *tallyman.Run) { r.Namespace = "other" })
	add(func(r *tallyman.Run) { r.State = tallyman.Running })
	delayed := add(agent("a"), func(r *tallyman.Run) { r.NotBefore = ptr(epoch.Add(time.Hour)) })
	got, err := s.Queue(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	same(t, ids(got), []string{urgent, high, a1, a2, other, delayed, b1})

	if got, err = s.Queue(t.Context(), 100); err != nil || len(got) != 8 {
		t.Errorf("the whole queue is %v, %v, want 8 runs", ids(got), err)
	}
	if err := put(t.Context(), s, delayed, func(r *tallyman.Run) { r.State, r.NotBefore = tallyman.Starting, nil }); err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), s, b1, func(r *tallyman.Run) { r.Priority = 9 }); err != nil {
		t.Fatal(err)
	}
	if got, err = s.Queue(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	same(t, ids(got), []string{b1, urgent, a1, other})

	insert(t, s, newRun(90, agent("zz")), newRun(91, agent("0"), func(r *tallyman.Run) { r.Namespace = "zz"; r.Source = tallyman.SourceAPI }))
	if got, err = s.Queue(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	same(t, ids(got), []string{b1, urgent, a1, other, id(90), id(91)})
}

func positions(t *testing.T, s *store.Store) {
	waiting := func(r *tallyman.Run) { r.Waiting = &tallyman.Waiting{Reason: tallyman.AgentCap} }
	want := map[string]int{}
	for n := range 20 {
		insert(t, s, newRun(n, waiting, func(r *tallyman.Run) { r.Priority = n % 2 }))
		want[id(n)] = n/2 + 1 + 10*(1-n%2)
	}
	insert(t, s, newRun(50, waiting, func(r *tallyman.Run) { r.Agent = "other" }), newRun(51, func(r *tallyman.Run) { r.Agent = "third" }))
	want[id(50)] = 1
	for _, f := range []store.Filter{{}, {Limit: 3}, {States: []tallyman.State{tallyman.Queued}}} {
		runs, _, err := s.Runs(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			if r.ID == id(51) {
				if r.Waiting != nil {
					t.Errorf("run %s waits for %+v", r.ID, r.Waiting)
				}
			} else if r.Waiting.Position != want[r.ID] {
				t.Errorf("run %s is at %d, want %d", r.ID, r.Waiting.Position, want[r.ID])
			}
		}
	}
	if got := get(t, s, id(0)).Waiting.Position; got != 11 {
		t.Errorf("position is %d, want 11", got)
	}
}

// listWhileChanging moves runs between states while they are listed by state.
func listWhileChanging(t *testing.T, s *store.Store) {
	const runs = 10
	for n := range runs {
		insert(t, s, newRun(n))
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			err := put(t.Context(), s, id(i%runs), func(r *tallyman.Run) {
				if r.State == tallyman.Queued {
					r.State = tallyman.Running
				} else {
					r.State = tallyman.Queued
				}
			})
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 100 {
		got := listIDs(t, s, store.Filter{Agent: "demo"})
		slices.Sort(got)
		if len(slices.Compact(slices.Clone(got))) != runs || len(got) != runs {
			t.Errorf("a list has %d runs: %v", len(got), got)
			break
		}
	}
	close(stop)
	wg.Wait()
}

func agentCounts(t *testing.T, s *store.Store) {
	insert(t, s, newRun(1), newRun(2), newRun(3, func(r *tallyman.Run) { r.State = tallyman.Failed }),
		newRun(4, func(r *tallyman.Run) { r.Agent = "other" }), newRun(5, func(r *tallyman.Run) { r.Namespace = "team" }))
	for namespace, want := range map[string]map[string]map[tallyman.State]int64{
		"":      {"demo": {tallyman.Queued: 2, tallyman.Failed: 1}, "other": {tallyman.Queued: 1}},
		"team":  {"demo": {tallyman.Queued: 1}},
		"empty": {},
	} {
		got, err := s.AgentCounts(t.Context(), namespace)
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, want)
	}
}
