//go:build linux

package contract_test

import (
	"encoding/json"
	"strings"

	"github.com/tallyman-dev/tallyman"
)

// event is a journal event as `tallyman events` prints it.
type event struct {
	ID string `json:"id"`
	tallyman.Event
}

// events returns the events of an ended run, after it checked that they have
// no gap and end each attempt as they must.
func (p *place) events(id string) []event {
	p.t.Helper()
	return p.parseEvents(p.ok("events", id, "-o", "json"))
}

func (p *place) parseEvents(text string) []event {
	p.t.Helper()
	var list []event
	last := tallyman.EventID{}
	for line := range strings.Lines(text) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			p.t.Fatalf("event %d is not JSON: %v: %.500s", len(list)+1, err, line)
		}
		id, err := tallyman.ParseEventID(e.ID)
		next := id.Attempt == last.Attempt && id.Cursor == last.Cursor+1 || id.Attempt > last.Attempt && id.Cursor == 1
		if err != nil || !next {
			p.t.Fatalf("event %q follows %s: %v", e.ID, last, err)
		}
		last = id
		list = append(list, e)
	}
	return list
}

// texts are the texts of events of one type.
func texts(events []event, kind tallyman.EventType) []string {
	var all []string
	for _, e := range events {
		if e.Type == kind {
			all = append(all, e.Text)
		}
	}
	return all
}
