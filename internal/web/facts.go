package web

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/render"
)

// facts is everything beside the transcript.
type facts struct {
	now       time.Time
	URL       string
	Token     string
	Run       tallyman.Run
	Word      string // the state in a word
	Tokens    string
	Took      string
	Live      *time.Time // the start of what still lasts
	Limits    []limit
	Usage     []figure // nil when nothing is known to have been used
	NoUsage   string   // what is said instead, "" where nothing can be used
	Cost      string
	Waited    string // in the queue, before the first attempt
	Backend   string
	Labels    []pair
	Attempts  []tallyman.Attempt
	Artifacts []artifactLink
	Cluster   *tallyman.Evidence       // what a cluster said about the last attempt, nil without one
	Timeline  []tallyman.TimelineEntry // newest first
	Earlier   int                      // entries of the timeline left out
	Waiting   *waiting
	Failure   *failure
	Lost      *time.Time // no contact with the runner since
	Commands  commands
}

type limit struct {
	Name, Used, Of string
	Value, Max     float64
	Since          *time.Time // a deadline that runs
	Unset          bool
}

// Reached reports whether nothing of the limit is left.
func (l limit) Reached() bool { return l.Value >= l.Max }

type figure struct{ Name, Value string }

type pair struct{ Key, Value string }

type artifactLink struct {
	Name, Size, URL, Digest string
	Attempt                 int
}

type waiting struct{ Gate, Detail, Place, Free string }

// failure says why a run did not succeed and what would help.
type failure struct {
	Reason, Class, Message, Hint string
	Stderr, Output               string
	Mend                         *change
}

// change is a rerun that would mend something; With says in words what it
// changes.
type change struct{ Key, Value, With, Command string }

type commands struct{ Stop, Rerun, Edit, Delete, Follow, Artifacts string }

// lostAfter is how long a runner may be silent; it speaks every 10 s.
const lostAfter = 45 * time.Second

// shownTimeline is how many entries of the timeline a page shows.
const shownTimeline = 30

func (s *site) runURL(run tallyman.Run) string { return s.base + "/runs/" + url.PathEscape(run.ID) }

// facts gathers what is told of a run. What still lasts is counted to now,
// and goes on being counted by the page's script.
func (s *site) facts(ctx context.Context, run tallyman.Run, token string, now time.Time) (facts, error) {
	f := facts{now: now, URL: s.runURL(run), Token: token, Run: run, Word: stateWord(run)}
	var err error
	if f.Attempts, err = s.src.Attempts(ctx, run.ID); err != nil {
		return f, err
	}
	artifacts, err := s.src.Artifacts(ctx, run.ID)
	if err != nil {
		return f, err
	}
	if f.Timeline, err = s.src.Timeline(ctx, run.ID); err != nil {
		return f, err
	}
	f.Timeline = slices.Clone(f.Timeline)
	slices.Reverse(f.Timeline)
	f.Earlier = max(len(f.Timeline)-shownTimeline, 0)
	f.Timeline = f.Timeline[:len(f.Timeline)-f.Earlier]
	for _, a := range artifacts {
		f.Artifacts = append(f.Artifacts, artifactLink{Name: a.Name, Size: render.Bytes(a.Size), Digest: a.Digest, Attempt: a.Attempt, URL: f.URL + "/artifacts/" + escapePath(a.Name)})
	}
	f.times()
	f.usage()
	f.limits()
	f.explain()
	for k, v := range run.Labels {
		f.Labels = append(f.Labels, pair{k, v})
	}
	slices.SortFunc(f.Labels, func(a, b pair) int { return cmp.Compare(a.Key, b.Key) })
	name := quote(run.Name)
	f.Commands = commands{
		Stop: "tallyman stop " + name, Rerun: "tallyman rerun " + name, Edit: "tallyman rerun " + name + " --set prompt=…",
		Delete: "tallyman rm " + name, Follow: "tallyman logs -f " + name, Artifacts: "tallyman artifacts get " + name,
	}
	return f, nil
}

func escapePath(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}

func (f *facts) times() {
	run := f.Run
	if last := f.last(); last != nil {
		f.Backend, f.Cluster = last.Backend, last.Evidence
	}
	if run.StartedAt == nil {
		return
	}
	f.Waited = render.Took(run.StartedAt.Sub(run.CreatedAt))
	if run.State.Terminal() {
		f.Took = render.Took(render.RunTook(run, time.Time{}))
		return
	}
	f.Live = run.StartedAt
	f.Took = render.Took(render.RunTook(run, f.now))
	if last := f.last(); last != nil && run.State == tallyman.Running && last.EndedAt == nil && last.LastContact != nil && time.Since(*last.LastContact) > lostAfter {
		f.Lost = last.LastContact
	}
}

// last is the newest attempt, nil before the first.
func (f *facts) last() *tallyman.Attempt {
	if len(f.Attempts) == 0 {
		return nil
	}
	return &f.Attempts[len(f.Attempts)-1]
}

func (f *facts) usage() {
	u := f.Run.Usage
	if u.Tokens() == 0 && u.Turns == 0 && u.CostUSD == 0 {
		switch {
		case f.Run.Harness == "exec" || f.Run.Attempt == 0:
		case f.Run.State.Terminal():
			f.NoUsage = "None was reported."
		default:
			f.NoUsage = "None reported so far."
		}
		return
	}
	f.Usage = []figure{
		{"input", render.Count(u.InputTokens)}, {"output", render.Count(u.OutputTokens)},
		{"cache read", render.Count(u.CacheReadTokens)}, {"cache write", render.Count(u.CacheWriteTokens)},
	}
	f.Tokens = render.Count(u.Tokens())
	f.Cost = "unknown"
	if u.CostSource == tallyman.CostHarness || u.CostSource == tallyman.CostEstimated {
		f.Cost = render.Cost(u.CostUSD) + " " + render.CostSource(u.CostSource)
	} else if u.Tokens() == 0 {
		f.Cost = "none"
	}
}

func (f *facts) limits() {
	l, u, last := f.Run.Limits, f.Run.Usage, f.last()
	if l.Deadline != nil && *l.Deadline > 0 {
		row := limit{Name: "deadline", Of: render.Took(l.Deadline.D()), Max: l.Deadline.D().Seconds(), Used: "0s"}
		if last != nil && last.StartedAt != nil {
			end := f.now
			if last.EndedAt != nil {
				end = *last.EndedAt
			} else {
				row.Since = last.StartedAt
			}
			row.Value, row.Used = end.Sub(*last.StartedAt).Seconds(), render.Took(end.Sub(*last.StartedAt))
		}
		f.Limits = append(f.Limits, row)
	}
	if l.MaxTurns != nil && *l.MaxTurns > 0 {
		turns := u.Turns
		if last != nil {
			turns = last.Usage.Turns
		}
		f.Limits = append(f.Limits, limit{Name: "turns", Used: strconv.Itoa(turns), Of: strconv.Itoa(*l.MaxTurns), Value: float64(turns), Max: float64(*l.MaxTurns)})
	}
	if l.BudgetUSD != nil && *l.BudgetUSD > 0 {
		f.Limits = append(f.Limits, limit{Name: "budget", Used: render.Cost(u.CostUSD), Of: render.Cost(*l.BudgetUSD), Value: u.CostUSD, Max: *l.BudgetUSD})
	}
	if l.MaxTokens != nil && *l.MaxTokens > 0 {
		f.Limits = append(f.Limits, limit{Name: "tokens", Used: render.Count(u.Tokens()), Of: render.Count(*l.MaxTokens), Value: float64(u.Tokens()), Max: float64(*l.MaxTokens)})
	}
	if l.Idle != nil && *l.Idle > 0 {
		f.Limits = append(f.Limits, limit{Name: "idle", Of: render.Took(l.Idle.D()), Unset: true})
	}
	if l.Tool != nil && *l.Tool > 0 {
		f.Limits = append(f.Limits, limit{Name: "one tool", Of: render.Took(l.Tool.D()), Unset: true})
	}
}

// explain fills in why a run waits or has failed.
func (f *facts) explain() {
	run := f.Run
	if !run.State.Terminal() && run.Waiting != nil {
		w := run.Waiting
		f.Waiting = &waiting{Gate: capital(gateWords(w.Reason)), Detail: strings.TrimRight(render.Clean(w.Detail), ". "), Free: gates[w.Reason].free}
		if w.Position > 0 {
			f.Waiting.Place = capital(place(w.Position))
		}
	}
	retrying := run.State == tallyman.Queued && run.Attempt > 0
	if run.State != tallyman.Failed && !retrying {
		return
	}
	reason := run.Reason
	last := f.last()
	if retrying && last != nil {
		reason = last.Reason
	}
	f.Failure = &failure{
		Reason: capital(render.Words(reason)), Class: classWords[reason.Class()],
		Message: capital(render.Clean(run.Message)), Hint: mending[reason], Mend: mend(run, reason),
	}
	if last != nil {
		f.Failure.Stderr, f.Failure.Output = lastLines(last.StderrTail), lastLines(last.OutputTail)
	}
}

// mend returns the rerun with twice the limit that was too small.
func mend(run tallyman.Run, reason tallyman.Reason) *change {
	l := run.Limits
	var c change
	switch {
	case reason == tallyman.DeadlineExceeded && l.Deadline != nil:
		v := (*l.Deadline * 2).String()
		c = change{Key: "deadline", Value: v, With: "a deadline of " + v}
	case reason == tallyman.IdleTimeout && l.Idle != nil:
		v := (*l.Idle * 2).String()
		c = change{Key: "idle", Value: v, With: v + " of silence allowed"}
	case reason == tallyman.MaxTurns && l.MaxTurns != nil:
		v := *l.MaxTurns * 2
		c = change{Key: "maxTurns", Value: strconv.Itoa(v), With: render.Count(int64(v)) + " turns"}
	case reason == tallyman.BudgetExceeded && l.BudgetUSD != nil:
		v := *l.BudgetUSD * 2
		c = change{Key: "budgetUSD", Value: strconv.FormatFloat(v, 'g', 6, 64), With: "a budget of " + render.Cost(v)}
	case reason == tallyman.TokenLimit && l.MaxTokens != nil:
		v := *l.MaxTokens * 2
		c = change{Key: "maxTokens", Value: strconv.FormatInt(v, 10), With: render.Count(v) + " tokens"}
	default:
		return nil
	}
	c.Command = "tallyman rerun " + quote(run.Name) + " --set " + c.Key + "=" + c.Value
	return &c
}

// lastLines keeps the end of what a process wrote last.
func lastLines(text string) string {
	text = strings.Trim(render.Clean(text), "\n")
	const lines, size = 20, 4 << 10
	if len(text) > size {
		text = strings.ToValidUTF8(text[len(text)-size:], "")
	}
	all := strings.Split(text, "\n")
	return strings.Join(all[max(len(all)-lines, 0):], "\n")
}
