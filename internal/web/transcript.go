package web

import (
	"html/template"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/render"
)

const (
	shownText    = 16 << 10 // bytes of a text before "show all"
	shownOutput  = 6 << 10  // bytes of an output or input before "show all"
	shownAnchors = 64       // events of one call that get an anchor of their own
)

// item is one article of a transcript: an event, or a tool call with all the
// events that tell of it.
type item struct {
	ID    string // e1.42, of its first event
	Event tallyman.EventID
	In    string // the item of the call whose sub-agent it belongs to
	Depth int
	Class string // its look: a render.Kind, or "line" for a line of exec's
	Time  time.Time
	Head  string
	Body  clip
	Prose template.HTML // the body as Markdown, instead of Body
	Call  *callView

	Failed, Muted, Partial bool
	Also                   []string // anchors of further events
}

// callView is a tool call or a step of set-up.
type callView struct {
	Tool, Arg     string
	Input, Output clip
	Took          string
	Verdict       string    // ok, failed or "not finished"; "" while it runs
	Began         time.Time // zero when its beginning is not known
}

// clip is a text that may be only the beginning of a longer one.
type clip struct {
	Text string
	Size int64  // bytes of the whole
	More string // where the whole is; "" when this is it
}

// transcript makes items of a run's events, given in order.
type transcript struct {
	url   string // of the run
	exec  bool
	r     *render.Renderer
	where map[string]string // call → its item's id
	open  map[string]*item  // calls without an end
}

func newTranscript(base string, run tallyman.Run) *transcript {
	exec := run.Harness == "exec"
	return &transcript{
		url: base + "/runs/" + url.PathEscape(run.ID), exec: exec,
		r: render.New(render.Options{Exec: exec}), where: map[string]string{}, open: map[string]*item{},
	}
}

// add takes the next event and returns the items that are new or have changed.
func (t *transcript) add(id tallyman.EventID, line []byte) []*item {
	e, err := render.Decode(line)
	if err != nil {
		return []*item{{ID: "e" + id.String(), Event: id, Class: "error", Failed: true, Head: "this event cannot be read; see the raw lines"}}
	}
	var changed []*item
	for _, l := range t.r.Event(id, e) {
		changed = append(changed, t.line(l)...)
	}
	return changed
}

func (t *transcript) line(l render.Line) []*item {
	switch l.Kind {
	case render.KindCall:
		it := t.item(l)
		it.Call = &callView{Tool: l.Tool, Arg: l.Arg, Began: l.Time, Input: t.clip(l.Body, shownOutput, l.Event, "input")}
		t.open[l.Call], t.where[l.Call] = it, it.ID
		return []*item{it}
	case render.KindOutput:
		it := t.open[l.Call]
		if it == nil {
			return []*item{t.item(l)}
		}
		it.also(l.Event)
		it.Call.Output = tail(it.Call.Output.Text + l.Body)
		return []*item{it}
	case render.KindDone:
		return []*item{t.done(l)}
	case render.KindEnd, render.KindAttempt:
		return append(t.abandon(), t.item(l))
	default:
		return []*item{t.item(l)}
	}
}

func (t *transcript) done(l render.Line) *item {
	it := t.open[l.Call]
	if it == nil {
		it = t.item(l)
		it.Body, it.Call = clip{}, &callView{Tool: l.Tool, Arg: l.Arg}
		if t.where[l.Call] == "" {
			t.where[l.Call] = it.ID
		}
	} else {
		it.also(l.Event)
	}
	it.Failed, it.Muted = l.Failed, l.Muted
	it.Call.Verdict = "ok"
	if l.Failed {
		it.Call.Verdict = "failed"
	}
	if l.Took > 0 {
		it.Call.Took = render.Took(l.Took)
	}
	if l.Body != "" || it.Call.Output.Text == "" {
		it.Call.Output = t.clip(l.Body, shownOutput, l.Event, "text")
	}
	delete(t.open, l.Call)
	return it
}

// abandon ends the calls that will never be told to have ended.
func (t *transcript) abandon() []*item {
	var changed []*item
	for id, it := range t.open {
		it.Call.Verdict, it.Failed = "not finished", true
		changed = append(changed, it)
		delete(t.open, id)
	}
	return changed
}

func (t *transcript) item(l render.Line) *item {
	it := &item{
		ID: "e" + l.Event.String(), Event: l.Event, In: t.where[l.Parent], Depth: min(l.Depth, 4), Class: string(l.Kind),
		Time: l.Time, Head: l.Head, Failed: l.Failed, Muted: l.Muted, Partial: l.Partial,
	}
	if l.Parent == "" {
		it.In = ""
	}
	limit := shownOutput
	if l.Kind == render.KindText || l.Kind == render.KindResult {
		limit = shownText
	}
	it.Body = t.clip(l.Body, limit, l.Event, "text")
	switch {
	case t.exec && l.Kind == render.KindText:
		it.Class = "line"
	case l.Kind == render.KindText, l.Kind == render.KindResult && !t.exec:
		it.Prose = markdown(it.Body.Text)
	case l.Kind == render.KindAttempt:
		it.ID = "attempt" + render.Count(int64(l.Event.Attempt))
	}
	return it
}

func (it *item) also(id tallyman.EventID) {
	if len(it.Also) < shownAnchors {
		it.Also = append(it.Also, "e"+id.String())
	}
}

// clip cuts a text at a line's end and says where the whole of it is.
func (t *transcript) clip(text string, limit int, id tallyman.EventID, part string) clip {
	c := clip{Text: strings.Trim(text, "\n"), Size: int64(len(text))}
	if len(c.Text) <= limit {
		return c
	}
	c.Text = c.Text[:limit]
	if i := strings.LastIndexByte(c.Text, '\n'); i > limit/2 {
		c.Text = c.Text[:i]
	}
	c.Text = strings.ToValidUTF8(c.Text, "")
	c.More = t.url + "/events/" + id.String() + "?part=" + part
	return c
}

// tail keeps the end of an output that still grows.
func tail(text string) clip {
	c := clip{Text: text, Size: int64(len(text))}
	if len(text) > shownOutput {
		from := len(text) - shownOutput
		for from < len(text) && !utf8.RuneStart(text[from]) {
			from++
		}
		c.Text = text[from:]
	}
	return c
}

// node is an item with those of its sub-agent under it.
type node struct {
	*item
	Own      template.HTML // the item itself
	Children []*node
}

// nest puts items under the calls they belong to. One whose call is not among
// them stands by itself.
func nest(nodes []*node) []*node {
	byID := make(map[string]*node, len(nodes))
	var top []*node
	for _, n := range nodes {
		byID[n.ID] = n
		if parent := byID[n.In]; n.In != "" && parent != nil && parent != n {
			parent.Children = append(parent.Children, n)
			continue
		}
		top = append(top, n)
	}
	return top
}
