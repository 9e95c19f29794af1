package service

import "sync"

// notices tells watchers that something has changed. A watcher that is busy
// gets one notice for many changes.
type notices struct {
	mu  sync.Mutex
	all map[chan struct{}]bool
}

func newNotices() *notices { return &notices{all: map[chan struct{}]bool{}} }

func (n *notices) watch() (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all[c] = true
	return c, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.all, c)
	}
}

func (n *notices) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.all {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
