package runner

import (
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/fault"
	"github.com/tallyman-dev/tallyman/internal/harness"
	"github.com/tallyman-dev/tallyman/internal/journal"
	"github.com/tallyman-dev/tallyman/internal/mask"
)

// recorder turns what the harness writes into journal records: parse, mask,
// encode, append. It is the only one that appends.
type recorder struct {
	journal *journal.Writer
	mask    *mask.Masker
	deltas  func(tallyman.Delta)
	// overspent returns the limit of what is counted that is exceeded; may be nil.
	overspent func(harness.Progress) *order
	now       func() time.Time

	mu      sync.Mutex
	parser  harness.Parser // nil until the harness is known
	batch   harness.Batch
	arena   []byte
	recs    [][]byte
	ends    []int
	watch   watch
	last    uint64 // cursor of the last record appended
	err     error  // why the journal takes nothing any more, or soon would not
	written int64  // bytes
	looked  int64  // written when space was looked at last

	sent func() uint64 // the last cursor that History has

	streams map[deltaKey]*mask.Stream

	output tail
	stderr tail

	changed chan struct{} // capacity 1: progress may have changed
	failed  chan struct{} // closed when the journal is poisoned
}

func newRecorder(w *journal.Writer, deltas func(tallyman.Delta)) *recorder {
	return &recorder{
		journal: w, deltas: deltas, now: time.Now, sent: w.Durable,
		watch:   watch{tools: map[string]time.Time{}},
		streams: map[deltaKey]*mask.Stream{},
		changed: make(chan struct{}, 1),
		failed:  make(chan struct{}),
	}
}

// event records one event of our own and returns its cursor.
func (r *recorder) event(e tallyman.Event) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batch.Events = append(r.batch.Events[:0], e)
	r.flush()
	return r.last
}

// started tells the recorder that the harness's clock begins.
func (r *recorder) started(at time.Time, p harness.Parser) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parser = p
	r.watch.started, r.watch.activity = at, at
}

// stdout records a chunk of the harness's standard output.
func (r *recorder) stdout(c chunk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watch.activity = r.now()
	if r.watch.first.IsZero() {
		r.watch.first = r.watch.activity
	}
	for i, line := range c.lines {
		r.batch.Events, r.batch.Deltas = r.batch.Events[:0], r.batch.Deltas[:0]
		if cut := c.cuts[i]; cut != nil {
			r.batch.Events = append(r.batch.Events, tallyman.Event{
				Type: tallyman.EventNotice, Name: "line_too_long",
				Text: "a line too long to be understood; its head, tail and digest are kept", RawCut: cut,
			})
		} else {
			r.parser.Parse(line, &r.batch)
			r.advance()
		}
		r.encode()
	}
	r.commit()
	fault.Point(fault.RunnerStreaming)
	r.poke()
}

// stderrLines records a chunk of the harness's standard error.
func (r *recorder) stderrLines(c chunk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, line := range c.lines {
		r.batch.Events, r.batch.Deltas = r.batch.Events[:0], r.batch.Deltas[:0]
		if cut := c.cuts[i]; cut != nil {
			r.batch.Events = append(r.batch.Events, tallyman.Event{Type: tallyman.EventAgentStderr, Name: "line_too_long", RawCut: cut})
		} else {
			r.parser.Stderr(line, &r.batch)
		}
		r.encode()
	}
	r.commit()
}

// closeStream records what the parser still holds at the end of the stream.
func (r *recorder) closeStream() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batch.Events, r.batch.Deltas = r.batch.Events[:0], r.batch.Deltas[:0]
	r.parser.Close(&r.batch)
	r.flush()
}

func (r *recorder) flush() {
	r.encode()
	r.commit()
}

// encode masks and encodes the batch into the arena.
func (r *recorder) encode() {
	now := r.now()
	for i := range r.batch.Events {
		e := &r.batch.Events[i]
		if e.Time.IsZero() {
			e.Time = now
		}
		r.mask.Event(e)
		r.observe(e)
		r.arena = appendEvent(r.arena, e)
		r.ends = append(r.ends, len(r.arena))
	}
	for _, d := range r.batch.Deltas {
		r.delta(d)
	}
}

// observe keeps what limits and the final event need to know of an event,
// whose strings may share memory with its line.
func (r *recorder) observe(e *tallyman.Event) {
	switch e.Type {
	case tallyman.EventToolStarted:
		r.watch.tools[strings.Clone(e.ToolID)] = e.Time
	case tallyman.EventToolFinished:
		delete(r.watch.tools, e.ToolID)
	case tallyman.EventAgentStderr:
		r.stderr.add(e.Text)
	case tallyman.EventText, tallyman.EventResult, tallyman.EventError:
		r.output.add(e.Text)
	case tallyman.EventNotice:
		if e.Name == "stdout" {
			r.output.add(e.Text)
		}
	}
	if e.Type == tallyman.EventText || e.Type == tallyman.EventThinking {
		// The durable text replaces what was held back of it.
		maps.DeleteFunc(r.streams, func(of deltaKey, _ *mask.Stream) bool { return of.kind == e.Type && of.parent == e.Parent })
	}
}

// deltaKey names a text that comes in deltas.
type deltaKey struct {
	kind          tallyman.EventType
	parent, block string
}

func (r *recorder) delta(d tallyman.Delta) {
	d.Delta, d.Parent, d.Block = strings.Clone(d.Delta), strings.Clone(d.Parent), strings.Clone(d.Block)
	key := deltaKey{d.Type, d.Parent, d.Block}
	s := r.streams[key]
	if s == nil {
		s = r.mask.Stream()
		r.streams[key] = s
	}
	if d.Delta = s.Write(d.Delta); d.Delta != "" {
		d.After = r.last + uint64(len(r.ends))
		r.deltas(d)
	}
}

// advance takes over how far the harness is.
func (r *recorder) advance() {
	if r.parser == nil {
		return
	}
	was := r.watch.finished()
	r.watch.progress = r.parser.Progress()
	if r.watch.finished() && !was {
		r.watch.result = r.now()
	}
	// Judged line by line: who looks now and then would see the result of a
	// quick harness before it sees what was exceeded on the way there.
	if r.overspent != nil && r.watch.crossed == nil && !r.watch.finished() {
		r.watch.crossed = r.overspent(r.watch.progress)
	}
}

// commit appends the arena's records to the journal.
func (r *recorder) commit() {
	r.advance()
	if len(r.ends) == 0 {
		return
	}
	r.recs = r.recs[:0]
	start := 0
	for _, end := range r.ends {
		r.recs = append(r.recs, r.arena[start:end])
		start = end
	}
	n, size := uint64(len(r.recs)), start
	first, err := r.journal.Add(r.recs...)
	if cap(r.arena) > 4<<20 {
		r.arena = nil
	}
	r.arena, r.ends = r.arena[:0], r.ends[:0]
	if err != nil {
		if r.err == nil {
			r.err = err
			close(r.failed)
		}
		return
	}
	r.last = first + n - 1
	r.checkSpace(size)
}

func (r *recorder) poke() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// look returns what the limits are judged by.
func (r *recorder) look() (watch, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.watch
	w.tools = make(map[string]time.Time, len(r.watch.tools))
	for id, at := range r.watch.tools {
		w.tools[id] = at
	}
	return w, r.last
}

func (r *recorder) outcome(exit tallyman.Exit) tallyman.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.parser.Outcome(exit)
}

func (r *recorder) tails() (output, stderr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.output.String(), r.stderr.String()
}
