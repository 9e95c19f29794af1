package service

import (
	"encoding/json"
	"slices"

	"github.com/tallyman-dev/tallyman"
)

// live puts deltas where they belong among the events. They leave the runner
// before the events beside them are durable, and so come early, or late.
type live struct {
	waiting []delta
}

type delta struct {
	after uint64
	line  []byte
}

// maxWaiting is how many deltas may wait for the event that they follow. More
// do only when it does not come.
const maxWaiting = 4096

// take adds deltas that have come. One that cannot be read, or is one too
// many, is left out: it is for display only.
func (l *live) take(lines [][]byte) {
	for _, line := range lines {
		var d tallyman.Delta
		if len(l.waiting) < maxWaiting && json.Unmarshal(line, &d) == nil {
			l.waiting = append(l.waiting, delta{d.After, line})
		}
	}
}

// at gives the deltas that follow the event at cursor, the last that was
// given. Those of an earlier place come too late and are dropped: the whole
// text has been given, or will be.
func (l *live) at(cursor uint64, give func(line []byte) error) error {
	for _, d := range l.waiting {
		if d.after == cursor || d.after == 0 {
			if err := give(d.line); err != nil {
				return err
			}
		}
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(d delta) bool { return d.after <= cursor })
	return nil
}
