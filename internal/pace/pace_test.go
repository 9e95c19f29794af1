package pace_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallyman-dev/tallyman/internal/pace"
)

func TestARestIsTwiceTheWorkAndAtMostATenthOfASecond(t *testing.T) {
	for worked, want := range map[time.Duration]time.Duration{
		0:                    0,
		time.Millisecond:     2 * time.Millisecond,
		time.Second:          100 * time.Millisecond,
		7 * time.Millisecond: 14 * time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			time.Sleep(worked)
			rested := time.Now()
			pace.Rest(t.Context(), began)
			if got := time.Since(rested); got != want {
				t.Errorf("after %v of work the rest is %v, want %v", worked, got, want)
			}
		})
	}
}

func TestARestEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		pace.Rest(ctx, began.Add(-time.Hour))
		if got := time.Since(began); got != 0 {
			t.Errorf("it rested %v after the end", got)
		}
	})
}
