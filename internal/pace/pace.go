// Package pace keeps a loop that is woken often from working all the time:
// each pass of it looks at everything, so that many notices are worth one.
package pace

import (
	"context"
	"time"
)

const (
	share   = 2                      // a rest is so many times as long as the work before it
	longest = 100 * time.Millisecond // what comes in a rest waits for no longer
)

// Rest returns when a loop may work again that began its last work at a time,
// or when ctx ends. What wakes a loop that has rested is worked on at once.
func Rest(ctx context.Context, began time.Time) {
	t := time.NewTimer(min(share*time.Since(began), longest))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
