package web_test

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// fake is a Source of slices.
type fake struct {
	mu        sync.Mutex
	changed   chan struct{} // closed and replaced with every change
	runs      []tallyman.Run
	prompts   map[string]string
	commands  map[string][]string
	attempts  map[string][]tallyman.Attempt
	timeline  map[string][]tallyman.TimelineEntry
	artifacts map[string][]tallyman.Artifact
	files     map[string]string
	events    map[string][]stored
	agents    []tallyman.Agent
	asked     []string // what was asked of it
	fail      error    // what every call answers, when set
}

type stored struct {
	id    tallyman.EventID
	line  []byte
	delta bool
}

func newFake() *fake {
	return &fake{
		changed: make(chan struct{}), prompts: map[string]string{}, commands: map[string][]string{}, attempts: map[string][]tallyman.Attempt{},
		timeline: map[string][]tallyman.TimelineEntry{}, artifacts: map[string][]tallyman.Artifact{},
		files: map[string]string{}, events: map[string][]stored{},
		agents: []tallyman.Agent{{Name: "demo", Origin: tallyman.BuiltIn, Description: "needs no model"}, {Name: "claude", Origin: tallyman.BuiltIn}},
	}
}

// change does f and tells everybody.
func (f *fake) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fake) note(what ...string) { f.asked = append(f.asked, strings.Join(what, " ")) }

// put adds a run or replaces it.
func (f *fake) put(r tallyman.Run) {
	f.change(func() {
		if i := f.index(r.ID); i >= 0 {
			f.runs[i] = r
			return
		}
		f.runs = append(f.runs, r)
	})
}

func (f *fake) index(id string) int {
	return slices.IndexFunc(f.runs, func(r tallyman.Run) bool { return r.ID == id || r.Name == id })
}

// say adds events to a run's last attempt.
func (f *fake) say(runID string, events ...tallyman.Event) {
	f.change(func() {
		if len(f.attempts[runID]) == 0 {
			f.attempts[runID] = []tallyman.Attempt{{RunID: runID, Number: 1}}
		}
		a := &f.attempts[runID][len(f.attempts[runID])-1]
		for _, e := range events {
			a.LastCursor++
			f.events[runID] = append(f.events[runID], stored{id: tallyman.EventID{Attempt: a.Number, Cursor: a.LastCursor}, line: e.AppendJSON(nil)})
		}
	})
}

// whisper adds a delta, which is only for who follows.
func (f *fake) whisper(runID, json string) {
	f.change(func() { f.events[runID] = append(f.events[runID], stored{line: []byte(json), delta: true}) })
}

func (f *fake) Runs(_ context.Context, q tallyman.Filter) ([]tallyman.Run, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []tallyman.Run
	skip := q.After != ""
	for i := len(f.runs) - 1; i >= 0; i-- {
		r := f.runs[i]
		if skip {
			skip = r.ID != q.After
			continue
		}
		if len(q.States) > 0 && !slices.Contains(q.States, r.State) || q.Agent != "" && r.Agent != q.Agent || q.Namespace != "" && r.Namespace != q.Namespace || !strings.Contains(r.Name, q.Text) {
			continue
		}
		if len(out) == q.Limit {
			return out, out[len(out)-1].ID, f.fail
		}
		out = append(out, r)
	}
	return out, "", f.fail
}

func (f *fake) Counts(context.Context) (map[string]map[tallyman.State]int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := map[string]map[tallyman.State]int{}
	for _, r := range f.runs {
		if n[r.Namespace] == nil {
			n[r.Namespace] = map[tallyman.State]int{}
		}
		n[r.Namespace][r.State]++
	}
	return n, f.fail
}

func (f *fake) Run(_ context.Context, id string) (tallyman.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return tallyman.Run{}, f.fail
	}
	if i := f.index(id); i >= 0 {
		return f.runs[i], nil
	}
	return tallyman.Run{}, tallyman.Errorf(tallyman.NotFound, "no run %q", id)
}

func (f *fake) Attempts(_ context.Context, id string) ([]tallyman.Attempt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.attempts[id]), f.fail
}

func (f *fake) Timeline(_ context.Context, id string) ([]tallyman.TimelineEntry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.timeline[id]), f.fail
}

func (f *fake) Artifacts(_ context.Context, id string) ([]tallyman.Artifact, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.artifacts[id]), f.fail
}

func (f *fake) Prompt(_ context.Context, id string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.prompts[id], f.fail
}

func (f *fake) Command(_ context.Context, id string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.commands[id], f.fail
}

func (f *fake) after(runID string, after tallyman.EventID) []stored {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.events[runID]
	for i, e := range all {
		if !e.delta && (e.id.Attempt > after.Attempt || e.id.Attempt == after.Attempt && e.id.Cursor > after.Cursor) {
			return slices.Clone(all[i:])
		}
	}
	return nil
}

func (f *fake) Events(ctx context.Context, runID string, after tallyman.EventID, fn func(tallyman.EventID, []byte) error) error {
	for _, e := range f.after(runID, after) {
		if e.delta {
			continue
		}
		if err := fn(e.id, e.line); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (f *fake) Follow(ctx context.Context, runID string, after tallyman.EventID, fn func(tallyman.EventID, []byte, bool) error) error {
	given := 0
	f.mu.Lock()
	for i, e := range f.events[runID] {
		if !e.delta && (e.id.Attempt < after.Attempt || e.id.Attempt == after.Attempt && e.id.Cursor <= after.Cursor) {
			given = i + 1
		}
	}
	f.mu.Unlock()
	for {
		f.mu.Lock()
		all, changed := f.events[runID], f.changed
		ended := f.runs[f.index(runID)].State.Terminal()
		f.mu.Unlock()
		for ; given < len(all); given++ {
			if err := fn(all[given].id, all[given].line, all[given].delta); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (f *fake) WatchRuns(ctx context.Context) <-chan struct{} {
	out := make(chan struct{}, 1)
	go func() {
		for {
			f.mu.Lock()
			changed := f.changed
			f.mu.Unlock()
			select {
			case <-ctx.Done():
				return
			case <-changed:
				select {
				case out <- struct{}{}:
				default:
				}
			}
		}
	}()
	return out
}

func (f *fake) Agents(context.Context) ([]tallyman.Agent, error) { return f.agents, f.fail }

func (f *fake) Stop(ctx context.Context, id string) (tallyman.Run, error) {
	r, err := f.Run(ctx, id)
	if err != nil {
		return r, err
	}
	now := time.Now()
	r.State, r.Reason, r.EndedAt = tallyman.Stopped, tallyman.ReasonStopped, &now
	f.put(r)
	f.change(func() { f.note("stop", id) })
	return r, nil
}

func (f *fake) Rerun(ctx context.Context, id string, set map[string]string) (tallyman.Run, error) {
	r, err := f.Run(ctx, id)
	if err != nil {
		return r, err
	}
	words := []string{"rerun", id}
	for k, v := range set {
		words = append(words, k+"="+v)
	}
	slices.Sort(words[2:])
	f.change(func() { f.note(words...) })
	return f.add(r.Agent), nil
}

func (f *fake) add(agent string) tallyman.Run {
	f.mu.Lock()
	n := len(f.runs)
	f.mu.Unlock()
	r := tallyman.Run{ID: runID(n), Agent: agent, Harness: "script", State: tallyman.Queued, CreatedAt: time.Now(), Waiting: &tallyman.Waiting{Reason: tallyman.GlobalCap, Position: 1}}
	r.Name = tallyman.RunName(agent, r.ID)
	f.put(r)
	return r
}

func (f *fake) Submit(_ context.Context, q tallyman.Request) (tallyman.Run, error) {
	if q.Agent == "nobody" {
		return tallyman.Run{}, tallyman.Errorf(tallyman.Invalid, "there is no agent %q; did you mean demo?", q.Agent)
	}
	f.change(func() { f.note("submit", q.Agent, q.Prompt, string(q.Source)) })
	r := f.add(q.Agent)
	f.change(func() { f.prompts[r.ID] = q.Prompt })
	return r, nil
}

func (f *fake) Delete(_ context.Context, id string) error {
	f.change(func() {
		f.note("delete", id)
		if i := f.index(id); i >= 0 {
			f.runs = slices.Delete(f.runs, i, i+1)
		}
	})
	return nil
}

func (f *fake) OpenArtifact(_ context.Context, runID, name string) (io.ReadSeekCloser, tallyman.Artifact, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.artifacts[runID] {
		if a.Name == name {
			return file{bytes.NewReader([]byte(f.files[name]))}, a, nil
		}
	}
	return nil, tallyman.Artifact{}, tallyman.Errorf(tallyman.NotFound, "no artifact %q", name)
}

type file struct{ *bytes.Reader }

func (file) Close() error { return nil }

// runID makes an id that sorts as n does.
func runID(n int) string {
	s := strconv.Itoa(n)
	return "01JQ0000000000000000000000"[:26-len(s)] + s
}
