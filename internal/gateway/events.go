package gateway

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"sync"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/fault"
)

var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// pooled is how large a buffer may be to be kept for the next call: a runner's
// usual batch fits, one long line does not.
const pooled = 5 << 20

// events takes NDJSON into History, from the cursor that the caller names.
// They are fenced by journal, contiguity and bytes, not by epoch: an attempt
// that has ended still delivers what its journal holds.
func (g *Gateway) events(c call) error {
	from, err := strconv.ParseUint(c.r.URL.Query().Get("from"), 10, 64)
	if err != nil || from == 0 {
		return tallyman.Errorf(tallyman.Invalid, "from %q is not a cursor; the first is 1", c.r.URL.Query().Get("from"))
	}
	journal, err := g.check(c)
	if err != nil {
		return err
	}
	if journal == "" {
		return tallyman.Errorf(tallyman.Conflict, "attempt %s has no journal yet: say hello first", c.ref)
	}
	body, ok := bodies.Get().(*bytes.Buffer)
	if !ok {
		body = new(bytes.Buffer)
	}
	body.Reset()
	defer func() {
		if body.Cap() <= pooled {
			bodies.Put(body)
		}
	}()
	if err := readBody(c, maxEvents, body); err != nil {
		return err
	}
	lines, err := g.split(journal, body.Bytes())
	if err != nil {
		return err
	}
	g.conns.touch(c.ref, 0)
	next, err := g.history.Append(c.r.Context(), journal, from, lines)
	var gap *tallyman.GapError
	if errors.As(err, &gap) {
		writeJSON(c.w, http.StatusConflict, tallyman.EventsExpected{Expected: gap.Expected})
		return nil
	}
	if err != nil {
		return err
	}
	fault.Point(fault.GatewayStored)
	writeJSON(c.w, http.StatusOK, tallyman.EventsAnswer{Next: next})
	return nil
}

// split cuts a body into the events to store, and hands what is provisional
// to whoever watches. What a line says is the runner's business; that it is a
// line of NDJSON, and can be passed on as one of an event stream, is ours.
func (g *Gateway) split(journal string, body []byte) ([][]byte, error) {
	lines := make([][]byte, 0, bytes.Count(body, []byte{'\n'}))
	for len(body) > 0 {
		line, rest, ok := bytes.Cut(body, []byte{'\n'})
		if !ok {
			return nil, tallyman.Errorf(tallyman.Invalid, "the last event of the body is cut: every line ends with a newline")
		}
		body = rest
		switch {
		case !bytes.HasPrefix(line, []byte(`{"`)), line[len(line)-1] != '}', bytes.IndexByte(line, '\r') >= 0:
			return nil, tallyman.Errorf(tallyman.Invalid, "event %d of the body is not a JSON object on one line", len(lines)+1)
		case bytes.HasPrefix(line, []byte(tallyman.Provisional)):
			g.history.Provisional(journal, line)
		default:
			lines = append(lines, line)
		}
	}
	return lines, nil
}
