package web

import (
	"context"
	"errors"
	"slices"

	"github.com/tallyman-dev/tallyman"
)

const (
	windowEvents = 400       // events of a page
	warmEvents   = 1000      // events read before them, to know what they belong to
	aheadEvents  = 1000      // events read after an earlier window, to see its calls end
	windowBytes  = 100 << 10 // HTML of a page's transcript
)

// window is a part of a run's transcript.
type window struct {
	Top    []*node
	Before string // the window before this one ends here; "" at the beginning
	After  tallyman.EventID
}

// partNodes is how many articles a browser lays out, skips and drops together.
const partNodes = 50

// Parts is Top, cut for the browser.
func (w window) Parts() [][]*node { return slices.Collect(slices.Chunk(w.Top, partNodes)) }

var errEnough = errors.New("enough")

func less(a, b tallyman.EventID) bool {
	return a.Attempt < b.Attempt || a.Attempt == b.Attempt && a.Cursor < b.Cursor
}

// back returns the id that n events lie between and before; the beginning
// when there are not so many. The zero id stands for the end.
func back(attempts []tallyman.Attempt, before tallyman.EventID, n uint64) tallyman.EventID {
	for i := len(attempts) - 1; i >= 0; i-- {
		a := attempts[i]
		have := max(a.LastCursor, a.FinalCursor)
		if before.Attempt != 0 {
			switch {
			case a.Number > before.Attempt:
				continue
			case a.Number == before.Attempt:
				have = before.Cursor - min(before.Cursor, 1)
			}
		}
		if have > n {
			return tallyman.EventID{Attempt: a.Number, Cursor: have - n}
		}
		n -= have
	}
	return tallyman.EventID{}
}

// window reads the last events of a run before an id, or its last ones when
// that is zero.
func (s *site) window(ctx context.Context, run tallyman.Run, attempts []tallyman.Attempt, before tallyman.EventID) (window, error) {
	toEnd := before == tallyman.EventID{}
	from := back(attempts, before, windowEvents)
	t := newTranscript(s.base, run)
	w := window{After: from}
	var shown []*item
	known := map[*item]bool{}
	ahead := 0
	err := s.src.Events(ctx, run.ID, back(attempts, before, windowEvents+warmEvents), func(id tallyman.EventID, line []byte) error {
		if !toEnd && !less(id, before) {
			if ahead++; len(t.open) == 0 || ahead > aheadEvents {
				return errEnough
			}
			t.add(id, line)
			return nil
		}
		changed := t.add(id, line)
		if !less(from, id) {
			return nil
		}
		w.After = id
		for _, it := range changed {
			if !known[it] {
				known[it] = true
				shown = append(shown, it)
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return w, err
	}
	if run.State.Terminal() {
		t.abandon()
	}
	more := from != tallyman.EventID{}
	if extra := len(shown) - 2*windowEvents; extra > 0 { // control knew of fewer events than there are
		shown, more = shown[extra:], true
	}
	nodes, cut, err := s.nodes(shown)
	if err != nil {
		return w, err
	}
	if (cut || more) && len(nodes) > 0 {
		w.Before = nodes[0].Event.String()
	}
	w.Top = nest(nodes)
	return w, nil
}

// nodes renders items, the last ones first, until a page is full.
func (s *site) nodes(items []*item) (nodes []*node, cut bool, err error) {
	room := windowBytes
	nodes = make([]*node, len(items))
	i := len(items)
	for ; i > 0 && room > 0; i-- {
		n := &node{item: items[i-1]}
		if n.Own, err = s.pages.part("own", n.item); err != nil {
			return nil, false, err
		}
		room -= len(n.Own) + 160
		nodes[i-1] = n
	}
	return nodes[i:], i > 0, nil
}
