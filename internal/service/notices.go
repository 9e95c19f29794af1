package service

import "sync"

// subject is what a change is about, for those who do not want to hear of all.
type subject uint8

const (
	aboutQueue    subject = 1 << iota // which runs may start: what is queued, what takes a slot
	aboutAttempts                     // what is to be done with an attempt
	aboutRecord                       // what is known, and nobody acts on

	aboutAnything = aboutQueue | aboutAttempts | aboutRecord
)

// notices tells watchers that something has changed. A watcher that is busy
// gets one notice for many changes.
type notices struct {
	mu  sync.Mutex
	all map[chan struct{}]subject // of which they want to hear
}

func newNotices() *notices { return &notices{all: map[chan struct{}]subject{}} }

func (n *notices) watch(about subject) (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all[c] = about
	return c, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.all, c)
	}
}

func (n *notices) tell(about subject) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c, wanted := range n.all {
		if wanted&about == 0 {
			continue
		}
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
