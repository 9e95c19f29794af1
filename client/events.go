package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// EventOptions say which events to read.
type EventOptions struct {
	After  string // the id of the last event that you have
	Follow bool   // go on until the run has ended
	Deltas bool   // text as it is written, lines that begin with tallyman.Provisional
	// Lost is called when the connection is lost, before it is made anew; an
	// error ends the reading. Nil: it is made anew for ever, until ctx ends.
	Lost func(error) error
}

// errCut says that a stream ended before it said that it was whole.
var errCut = errors.New("the stream of events was cut")

// Events reads the events of a run, each exactly once and in order, over lost
// connections and restarts of the server. line is one event's JSON with its
// id; it is valid until fn returns.
func (c *Client) Events(ctx context.Context, id string, o EventOptions, fn func(line []byte) error) error {
	wait := 50 * time.Millisecond
	for {
		began := o.After
		err := c.eventsOnce(ctx, id, &o, fn)
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if !errors.Is(err, errCut) && tallyman.CodeOf(err) != tallyman.Unavailable {
			return err
		}
		if o.Lost != nil {
			if err := o.Lost(err); err != nil {
				return err
			}
		}
		if o.After != began {
			wait = 50 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
			wait = min(2*wait, 2*time.Second)
		}
	}
}

func (c *Client) eventsOnce(ctx context.Context, id string, o *EventOptions, fn func([]byte) error) error {
	q := url.Values{}
	if o.After != "" {
		q.Set("after", o.After)
	}
	if o.Follow {
		q.Set("follow", "true")
	}
	if o.Deltas {
		q.Set("deltas", "true")
	}
	resp, err := c.do(ctx, http.MethodGet, runPath(id)+"/events?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	in := bufio.NewReaderSize(resp.Body, 256<<10)
	for {
		line, err := readLine(in)
		if errors.Is(err, io.EOF) {
			return errCut
		}
		if err != nil {
			return errors.Join(errCut, err)
		}
		switch {
		case bytes.Equal(line, []byte(`{"end":true}`)):
			return nil
		case bytes.HasPrefix(line, []byte(`{"error":`)):
			return ending(line)
		}
		if err := fn(line); err != nil {
			return err
		}
		if event, ok := idOf(line); ok {
			o.After = event
		}
	}
}

// ending reads the line that says why the rest of the events does not come.
func ending(line []byte) error {
	var told struct {
		Error string        `json:"error"`
		Code  tallyman.Code `json:"code"`
	}
	if err := json.Unmarshal(line, &told); err != nil {
		return errors.Join(errCut, err)
	}
	return &tallyman.Error{Code: cmp.Or(told.Code, tallyman.Internal), Message: told.Error}
}

// readLine reads a line of any length, without its newline. An incomplete
// last line is not one.
func readLine(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if err == nil {
		return line[:len(line)-1], nil
	}
	if !errors.Is(err, bufio.ErrBufferFull) {
		return nil, err
	}
	long := append([]byte(nil), line...)
	for {
		line, err = in.ReadSlice('\n')
		long = append(long, line...)
		if err == nil {
			return long[:len(long)-1], nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

// idOf reads the id that every event line begins with.
func idOf(line []byte) (string, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"id":"`))
	if !ok {
		return "", false
	}
	id, _, ok := bytes.Cut(rest, []byte{'"'})
	return string(id), ok
}
