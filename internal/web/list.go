package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/render"
)

// pageRows is how many runs a page lists.
const pageRows = 100

// listPage is the list of runs.
type listPage struct {
	Rows   []row
	Chips  chips
	Agents []choice
	Filter tallyman.Filter
	State  string // the one state that is filtered by, "" for none or several
	Next   string // the URL of older runs
	First  string // the URL of the newest, on any page but the first
	Live   string
	Any    bool // there are runs, if not here
}

// row is one run of the list.
type row struct {
	Run       tallyman.Run
	Agent     string
	URL       string
	Word, Why string
	Took      string
	Live      *time.Time // the start of what still lasts
	Cost      string
}

// chips are the filters by state, with how many runs each would show.
type chips struct {
	All   int
	URL   string // without a state
	Items []chip
}

type chip struct {
	State tallyman.State
	URL   string
	N     int
	On    bool
}

// choice is one of what a list can be narrowed to.
type choice struct {
	Value, Text string
	On          bool
}

// filterOf reads a list's filter from its URL. An agent may stand there with
// its namespace; NAMESPACE/ is all of those there.
func filterOf(q url.Values) (tallyman.Filter, error) {
	f := tallyman.Filter{Namespace: q.Get("namespace"), Agent: q.Get("agent"), Text: strings.TrimSpace(q.Get("q")), After: q.Get("after"), Limit: pageRows}
	f, err := f.Split()
	if err != nil {
		return f, err
	}
	for _, v := range q["state"] {
		if v == "" {
			continue
		}
		state := tallyman.State(v)
		if !state.Valid() {
			return f, tallyman.Errorf(tallyman.Invalid, "%q is not a state", v)
		}
		f.States = append(f.States, state)
	}
	return f, nil
}

// queryOf writes a list's filter as its URL's query.
func queryOf(f tallyman.Filter) url.Values {
	q := url.Values{}
	for _, s := range f.States {
		q.Add("state", string(s))
	}
	if v := agentValue(f.Namespace, f.Agent); v != "" {
		q.Set("agent", v)
	}
	if f.Text != "" {
		q.Set("q", f.Text)
	}
	if f.After != "" {
		q.Set("after", f.After)
	}
	return q
}

// agentValue is the part of a filter that says whose runs are listed.
func agentValue(namespace, agent string) string {
	if namespace == "" {
		return agent
	}
	return tallyman.AgentKey(namespace, agent)
}

func (s *site) listURL(path string, f tallyman.Filter) string {
	if q := queryOf(f).Encode(); q != "" {
		return s.base + path + "?" + q
	}
	return s.base + path
}

func (s *site) list(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	f, err := filterOf(r.URL.Query())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	runs, next, err := s.src.Runs(ctx, f)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	p := listPage{Filter: f, Live: s.listURL("/runs/live", f)}
	counts, err := s.src.Counts(ctx)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	p.Chips, p.Any = s.chips(counts, f), len(counts) > 0
	if p.Agents, err = s.choices(ctx, f, counts); err != nil {
		s.fail(w, r, err)
		return
	}
	for _, run := range runs {
		p.Rows = append(p.Rows, s.row(run))
	}
	if len(f.States) == 1 {
		p.State = string(f.States[0])
	}
	first, older := f, f
	first.After, older.After = "", next
	if next != "" {
		p.Next = s.listURL("/runs", older)
	}
	if f.After != "" {
		p.First = s.listURL("/runs", first)
	}
	s.show(w, r, "list.html", s.page(r, "Runs", p))
}

// choices are the agents that there are, and what is chosen. Where there is
// more than one namespace, each can be chosen as a whole.
func (s *site) choices(ctx context.Context, f tallyman.Filter, counts map[string]map[tallyman.State]int) ([]choice, error) {
	agents, err := s.src.Agents(ctx)
	if err != nil {
		return nil, err
	}
	spaces := map[string]bool{}
	for namespace := range counts {
		spaces[namespace] = true
	}
	for _, a := range agents {
		spaces[a.Namespace] = true
	}
	var all []choice
	for _, a := range agents {
		value := a.Name
		if len(spaces) > 1 {
			value = tallyman.AgentKey(a.Namespace, a.Name)
		}
		all = append(all, choice{Value: value, Text: tallyman.AgentName(a.Namespace, a.Name)})
	}
	if len(spaces) > 1 {
		for namespace := range spaces {
			all = append(all, choice{Value: namespace + "/", Text: "all of " + namespace})
		}
	}
	on := agentValue(f.Namespace, f.Agent)
	if on != "" && !slices.ContainsFunc(all, func(c choice) bool { return c.Value == on }) {
		all = append(all, choice{Value: on, Text: on})
	}
	slices.SortFunc(all, func(a, b choice) int { return strings.Compare(a.Value, b.Value) })
	for i := range all {
		all[i].On = all[i].Value == on
	}
	return all, nil
}

func (s *site) row(run tallyman.Run) row {
	out := row{Run: run, Agent: tallyman.AgentName(run.Namespace, run.Agent), URL: s.runURL(run), Word: stateWord(run), Why: why(run)}
	switch {
	case run.StartedAt != nil && !run.State.Terminal() && run.State != tallyman.Queued:
		out.Live = run.StartedAt
		out.Took = render.Took(render.RunTook(run, time.Now()))
	case run.StartedAt != nil && run.EndedAt != nil:
		out.Took = render.Took(render.RunTook(run, time.Time{}))
	}
	u := run.Usage
	if u.CostSource == tallyman.CostHarness || u.CostSource == tallyman.CostEstimated {
		out.Cost = render.Cost(u.CostUSD)
	}
	return out
}

// chips counts within the namespace that is chosen, if one is.
func (s *site) chips(byNamespace map[string]map[tallyman.State]int, f tallyman.Filter) chips {
	counts := map[tallyman.State]int{}
	for namespace, byState := range byNamespace {
		for state, n := range byState {
			if f.Namespace == "" || f.Namespace == namespace {
				counts[state] += n
			}
		}
	}
	f.After = ""
	one := f
	one.States = nil
	c := chips{URL: s.listURL("/runs", one)}
	for _, state := range tallyman.States {
		n, on := counts[state], slices.Contains(f.States, state)
		c.All += n
		if n == 0 && !on && state != tallyman.Running && state != tallyman.Failed {
			continue
		}
		one.States = []tallyman.State{state}
		c.Items = append(c.Items, chip{State: state, URL: s.listURL("/runs", one), N: n, On: on})
	}
	return c
}

// listEvery bounds how often a list is read again for one browser.
const listEvery = time.Second

// listLive streams the rows of a list that have changed or are new, and the
// counts of its chips.
func (s *site) listLive(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	f, err := filterOf(r.URL.Query())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	l := &lister{site: s, filter: f, out: openStream(w), sent: map[string]string{}}
	changed := s.src.WatchRuns(ctx)
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		if err := l.send(ctx); err != nil {
			if ctx.Err() == nil {
				s.log.ErrorContext(ctx, "sending list", "err", err)
			}
			return
		}
		pause := time.After(listEvery)
		if changed = l.wait(ctx, changed, beat.C); ctx.Err() != nil {
			return
		}
		select {
		case <-pause:
		case <-ctx.Done():
			return
		}
	}
}

// lister is one browser that watches a list.
type lister struct {
	site    *site
	filter  tallyman.Filter
	out     *stream
	sent    map[string]string // the rows by run as they were sent
	order   []string          // of those that are still watched
	chipped string
}

// wait returns when the list may have changed, or the connection has gone.
func (l *lister) wait(ctx context.Context, changed <-chan struct{}, beat <-chan time.Time) <-chan struct{} {
	for {
		select {
		case <-ctx.Done():
			return changed
		case _, more := <-changed:
			if !more {
				return nil // no notices any more; the heartbeat goes on
			}
			return changed
		case <-beat:
			l.out.beat()
			if l.out.flush() != nil {
				return changed
			}
			return changed // a notice is a hint; the beat makes it certain
		}
	}
}

// send reads the list again and sends what is another than before.
func (l *lister) send(ctx context.Context) error {
	runs, _, err := l.site.src.Runs(ctx, l.filter)
	if err != nil {
		return err
	}
	var b strings.Builder
	listed := map[string]bool{}
	for _, run := range runs {
		listed[run.ID] = true
		if err := l.row(&b, run); err != nil {
			return err
		}
	}
	if err := l.others(ctx, &b, listed); err != nil {
		return err
	}
	if b.Len() > 0 {
		l.out.event("rows", "", b.String())
	}
	counts, err := l.site.src.Counts(ctx)
	if err != nil {
		return err
	}
	html, err := l.site.pages.part("chips", l.site.chips(counts, l.filter))
	if err != nil {
		return err
	}
	if string(html) != l.chipped {
		l.chipped = string(html)
		l.out.event("chips", "", l.chipped)
	}
	return l.out.flush()
}

// others sends the rows that the browser has and the list has no more: pushed
// out by newer ones, in another state now, or gone.
func (l *lister) others(ctx context.Context, b *strings.Builder, listed map[string]bool) error {
	keep := l.order[:0]
	for _, id := range l.order {
		if listed[id] {
			keep = append(keep, id)
			continue
		}
		run, err := l.site.src.Run(ctx, id)
		switch {
		case tallyman.CodeOf(err) == tallyman.NotFound:
			l.out.event("gone", "", id)
			delete(l.sent, id)
		case err != nil:
			return err
		default:
			if err := l.row(b, run); err != nil {
				return err
			}
			if !run.State.Terminal() {
				keep = append(keep, id)
			}
		}
	}
	l.order = keep
	return nil
}

// row adds a run's row when it is new or another than it was.
func (l *lister) row(b *strings.Builder, run tallyman.Run) error {
	html, err := l.site.pages.part("row", l.site.row(run))
	if err != nil {
		return err
	}
	was, known := l.sent[run.ID]
	if !known {
		l.order = append(l.order, run.ID)
	}
	if was == string(html) {
		return nil
	}
	l.sent[run.ID] = string(html)
	b.WriteString(string(html))
	return nil
}
