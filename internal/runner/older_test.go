package runner

import (
	"testing"
	"time"
)

func TestAFileOfTheRunBeforeIsOlder(t *testing.T) {
	since := time.Date(2026, 11, 30, 12, 0, 5, 400_000_000, time.UTC)
	for name, c := range map[string]struct {
		changed time.Time
		want    bool
	}{
		"a moment after":                    {since.Add(time.Millisecond), false},
		"stamped by a clock that is behind": {since.Add(-4 * time.Millisecond), false},
		"a run before, in the same second":  {since.Add(-100 * time.Millisecond), true},
		"whole seconds, the same one":       {since.Truncate(time.Second), false},
		"whole seconds, the one before":     {since.Truncate(time.Second).Add(-time.Second), true},
		"an hour ago":                       {since.Add(-time.Hour), true},
	} {
		if got := older(c.changed, since); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
