package web

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/tallyman-dev/tallyman"
)

const (
	gather     = 50 * time.Millisecond // how long news wait for more, to be sent together
	batchBytes = 16 << 10              // and how much of them
	factsEvery = 2 * time.Second
)

// news is what a follower of a run learns: an event's HTML, or a delta.
type news struct {
	id    tallyman.EventID
	html  string
	delta *liveDelta
}

// liveDelta is a piece of text as it comes, for the page's script.
type liveDelta struct {
	Text  string `json:"text"`
	Type  string `json:"type"`
	In    string `json:"in"` // the item of the sub-agent's call
	Block string `json:"block"`
}

// runLive streams what happens to a run after ?after=ID, or after the id that
// a reconnecting browser names.
func (s *site) runLive(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	after, err := tallyman.ParseEventID(cmp.Or(r.Header.Get("Last-Event-ID"), r.FormValue("after")))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	run, err := s.src.Run(ctx, r.PathValue("id"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	t, err := s.upTo(ctx, run, after)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	f := &follower{site: s, run: run, token: s.token(r), began: time.Now(), out: openStream(w), sent: map[string]string{}}
	ch, done := make(chan news, 64), make(chan error, 1)
	go func() { done <- s.follow(ctx, t, run.ID, after, ch) }()
	err = f.serve(ctx, ch)
	cancel()
	for range ch { // so that follow can end
	}
	if ferr := <-done; ferr != nil && r.Context().Err() == nil && err == nil {
		s.log.ErrorContext(r.Context(), "following run", "run", run.ID, "err", ferr)
	}
}

// upTo returns a transcript that knows what went before an event.
func (s *site) upTo(ctx context.Context, run tallyman.Run, after tallyman.EventID) (*transcript, error) {
	t := newTranscript(s.base, run)
	if after == (tallyman.EventID{}) {
		return t, nil
	}
	attempts, err := s.src.Attempts(ctx, run.ID)
	if err != nil {
		return nil, err
	}
	err = s.src.Events(ctx, run.ID, back(attempts, after, warmEvents), func(id tallyman.EventID, line []byte) error {
		if less(after, id) {
			return errEnough
		}
		t.add(id, line)
		return nil
	})
	if err == errEnough {
		err = nil
	}
	return t, err
}

// follow turns events into news until the run's last one. It closes ch.
func (s *site) follow(ctx context.Context, t *transcript, runID string, after tallyman.EventID, ch chan<- news) error {
	defer close(ch)
	send := func(n news) error {
		select {
		case ch <- n:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.src.Follow(ctx, runID, after, func(id tallyman.EventID, line []byte, delta bool) error {
		if delta {
			var d tallyman.Delta
			if json.Unmarshal(line, &d) != nil {
				return nil // it was only for who watches now
			}
			return send(news{delta: &liveDelta{d.Delta, string(d.Type), t.where[d.Parent], d.Block}})
		}
		var b strings.Builder
		for _, it := range t.add(id, line) {
			own, err := s.pages.part("own", it)
			if err != nil {
				return err
			}
			article, err := s.pages.part("node", &node{item: it, Own: own})
			if err != nil {
				return err
			}
			b.WriteString(string(article))
		}
		return send(news{id: id, html: b.String()})
	})
}

// follower is one browser that follows a run.
type follower struct {
	site  *site
	run   tallyman.Run
	token string
	began time.Time // when the stream began
	out   *stream
	sent  map[string]string // sections of the facts as they were sent

	html   strings.Builder
	last   tallyman.EventID
	deltas []*liveDelta
}

// serve writes until the run has ended and told everything, or the browser
// has gone.
func (f *follower) serve(ctx context.Context, ch <-chan news) error {
	beat, facts := time.NewTicker(heartbeat), time.NewTicker(factsEvery)
	defer beat.Stop()
	defer facts.Stop()
	if err := f.facts(ctx); err != nil {
		return err
	}
	var wait <-chan time.Time
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case n, more := <-ch:
			if !more {
				if err := f.flush(); err != nil {
					return err
				}
				return f.finish(ctx)
			}
			f.take(n)
			if f.html.Len() >= batchBytes {
				wait, err = nil, f.flush()
			} else if wait == nil {
				wait = time.After(gather)
			}
		case <-wait:
			wait, err = nil, f.flush()
		case <-facts.C:
			err = f.facts(ctx)
		case <-beat.C:
			f.out.beat()
			err = f.out.flush()
		}
		if err != nil {
			return err
		}
	}
}

func (f *follower) take(n news) {
	if n.delta == nil {
		f.html.WriteString(n.html)
		f.last = n.id
		// What the deltas began is told whole by an event now or soon.
		if len(f.deltas) > 0 && n.html != "" {
			f.sendDeltas()
		}
		return
	}
	if k := len(f.deltas); k > 0 && f.deltas[k-1].Block == n.delta.Block && f.deltas[k-1].Type == n.delta.Type && f.deltas[k-1].In == n.delta.In {
		f.deltas[k-1].Text += n.delta.Text
		return
	}
	f.sendHTML()
	f.deltas = append(f.deltas, n.delta)
}

func (f *follower) sendHTML() {
	if f.last == (tallyman.EventID{}) {
		return
	}
	f.out.event("html", f.last.String(), f.html.String())
	f.html.Reset()
	f.last = tallyman.EventID{}
}

func (f *follower) sendDeltas() {
	for _, d := range f.deltas {
		b, err := json.Marshal(d)
		if err == nil {
			f.out.event("delta", "", string(b))
		}
	}
	f.deltas = f.deltas[:0]
}

func (f *follower) flush() error {
	f.sendDeltas()
	f.sendHTML()
	return f.out.flush()
}

// finish waits until the run itself has ended too, which settling may do a
// moment after its last event, and says that nothing follows.
func (f *follower) finish(ctx context.Context) error {
	tick := time.NewTicker(factsEvery / 4)
	defer tick.Stop()
	for {
		if err := f.facts(ctx); err != nil {
			return err
		}
		if f.run.State.Terminal() {
			f.out.event("end", "", "")
			return f.out.flush()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// sections are the parts of the facts that are replaced by themselves, so that
// what a reader has opened in one stays when another changes.
var sections = []string{"head", "why", "acts", "limits", "usage", "about", "cluster", "files", "timeline"}

// facts sends the sections that have changed.
func (f *follower) facts(ctx context.Context) error {
	run, err := f.site.src.Run(ctx, f.run.ID)
	if err != nil {
		return err
	}
	f.run = run
	view, err := f.site.facts(ctx, run, f.token, f.began)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, name := range sections {
		html, err := f.site.pages.part("facts-"+name, view)
		if err != nil {
			return err
		}
		if f.sent[name] != string(html) {
			f.sent[name] = string(html)
			b.WriteString(string(html))
		}
	}
	if b.Len() > 0 {
		f.out.event("facts", "", b.String())
	}
	return f.out.flush()
}
