package history

import "sync"

// The bounds of what a watch keeps of provisional lines that nobody fetches.
const (
	maxDeltas     = 1024
	maxDeltaBytes = 256 << 10
)

// Watch tells that a journal has grown. It carries no events: call Read after
// each notice, and once after Watch, and none is missed.
type Watch struct {
	// C receives after events have become durable, and when there are
	// provisional lines. One notice may stand for several. It is never closed.
	C <-chan struct{}

	history *History
	journal string
	c       chan struct{}

	mu     sync.Mutex
	deltas [][]byte
	bytes  int
}

// Watch watches a journal, which need not exist yet. Close the watch.
func (h *History) Watch(journal string) *Watch {
	c := make(chan struct{}, 1)
	w := &Watch{C: c, c: c, history: h, journal: journal}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watches[journal] == nil {
		h.watches[journal] = map[*Watch]struct{}{}
	}
	h.watches[journal][w] = struct{}{}
	return w
}

// Close ends the watch. It may be called more than once.
func (w *Watch) Close() {
	h := w.history
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watches[w.journal], w)
	if len(h.watches[w.journal]) == 0 {
		delete(h.watches, w.journal)
	}
}

// Deltas returns the provisional lines since it was last called, in order.
// Of a watcher who is slow the newest are dropped: what they say comes again
// as an event. The lines must not be changed.
func (w *Watch) Deltas() [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.deltas
	w.deltas, w.bytes = nil, 0
	return lines
}

// Provisional shows a line to those who watch the journal now. It is never
// stored. The line may be reused afterwards.
func (h *History) Provisional(journal string, line []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.watches[journal]) == 0 {
		return
	}
	line = append([]byte(nil), line...)
	for w := range h.watches[journal] {
		w.add(line)
		w.wake()
	}
}

func (w *Watch) add(line []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.deltas) < maxDeltas && w.bytes+len(line) <= maxDeltaBytes {
		w.deltas = append(w.deltas, line)
		w.bytes += len(line)
	}
}

func (w *Watch) wake() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// notify tells those who watch the journal that it has grown.
func (h *History) notify(journal string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watches[journal] {
		w.wake()
	}
}
