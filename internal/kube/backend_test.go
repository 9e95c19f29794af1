package kube

import (
	"testing"
	"testing/synctest"
	"time"
)

// What the cluster tells is passed on at once after a quiet time, and gathered
// while it goes on; the last word is never lost.
func TestWhatTheClusterTellsIsGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Backend{changed: make(chan struct{}, 1), stirred: make(chan struct{}, 1), scribe: &scribe{wake: make(chan struct{}, 1)}}
		go b.passOn(t.Context())
		notices := 0
		take := func() {
			synctest.Wait()
			select {
			case <-b.changed:
				notices++
			default:
			}
		}
		take()
		if notices != 0 {
			t.Error("a notice of nothing")
		}
		notify(b.stirred)
		take()
		if notices != 1 {
			t.Errorf("%d notices after a quiet time, want 1 at once", notices)
		}
		for range 50 { // a second of it
			notify(b.stirred)
			time.Sleep(20 * time.Millisecond)
			take()
		}
		if notices < 10 || notices > 12 {
			t.Errorf("%d notices of what 51 changes told within a second", notices)
		}
		time.Sleep(together)
		take()
		before := notices
		notify(b.stirred)
		take()
		notify(b.stirred) // while the first is being gathered
		time.Sleep(together)
		take()
		if notices != before+2 {
			t.Errorf("the last of two changes was told %d times", notices-before-1)
		}
	})
}
