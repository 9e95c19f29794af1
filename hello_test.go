package tallyman_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
)

func TestGreet(t *testing.T) {
	ended := time.Now()
	attempt := func(f func(*tallyman.Attempt)) tallyman.Attempt {
		a := tallyman.Attempt{RunID: "01J", Number: 2, Journal: "j1", LastCursor: 10, Epoch: 1}
		if f != nil {
			f(&a)
		}
		return a
	}
	cases := map[string]struct {
		run     tallyman.Run
		attempt tallyman.Attempt
		hello   tallyman.Hello
		other   bool // from another process than the attempt's
		want    tallyman.HelloVerdict
		epoch   int64
	}{
		"the first binds the journal": {
			run(tallyman.Starting), tallyman.Attempt{RunID: "01J", Number: 2}, tallyman.Hello{JournalID: "j9"}, false, tallyman.HelloWelcome, 1,
		},
		"the same journal goes on in the next epoch": {
			run(tallyman.Running), attempt(nil), tallyman.Hello{JournalID: "j1", LastCursor: 10}, false, tallyman.HelloWelcome, 2,
		},
		"a longer journal goes on": {
			run(tallyman.Running), attempt(nil), tallyman.Hello{JournalID: "j1", LastCursor: 99}, false, tallyman.HelloWelcome, 2,
		},
		"a shorter journal has lost what was acknowledged": {
			run(tallyman.Running), attempt(nil), tallyman.Hello{JournalID: "j1", LastCursor: 9}, false, tallyman.HelloRegressed, 1,
		},
		"another journal": {
			run(tallyman.Running), attempt(nil), tallyman.Hello{JournalID: "j2", LastCursor: 10}, false, tallyman.HelloMismatch, 1,
		},
		"no journal": {
			run(tallyman.Running), tallyman.Attempt{RunID: "01J", Number: 2}, tallyman.Hello{}, false, tallyman.HelloMismatch, 0,
		},
		"another process": {
			run(tallyman.Running), attempt(nil), tallyman.Hello{JournalID: "j1", LastCursor: 10}, true, tallyman.HelloStale, 1,
		},
		"an attempt that does not exist yet": {
			run(tallyman.Running), attempt(func(a *tallyman.Attempt) { a.Number = 3 }), tallyman.Hello{JournalID: "j1"}, false, tallyman.HelloStale, 1,
		},
		"a superseded attempt": {
			run(tallyman.Running), attempt(func(a *tallyman.Attempt) { a.Number = 1 }), tallyman.Hello{JournalID: "j1", LastCursor: 10}, false, tallyman.HelloFinal, 1,
		},
		"an attempt that has ended": {
			run(tallyman.Running), attempt(func(a *tallyman.Attempt) { a.EndedAt = &ended }), tallyman.Hello{JournalID: "j1", LastCursor: 10}, false, tallyman.HelloFinal, 1,
		},
		"a run that waits for its next attempt": {
			run(tallyman.Queued), attempt(nil), tallyman.Hello{JournalID: "j1", LastCursor: 10}, false, tallyman.HelloFinal, 1,
		},
		"a run that has succeeded": {run(tallyman.Succeeded), attempt(nil), tallyman.Hello{JournalID: "j1", LastCursor: 10}, false, tallyman.HelloFinal, 1},
		"a run that has failed":    {run(tallyman.Failed), attempt(nil), tallyman.Hello{JournalID: "j1", LastCursor: 10}, false, tallyman.HelloFinal, 1},
		"a run that was stopped":   {run(tallyman.Stopped), attempt(nil), tallyman.Hello{JournalID: "j1", LastCursor: 10}, false, tallyman.HelloFinal, 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, verdict := c.run.Greet(c.attempt, c.hello, !c.other)
			if verdict != c.want || got.Epoch != c.epoch {
				t.Errorf("got %s, epoch %d; want %s, %d", verdict, got.Epoch, c.want, c.epoch)
			}
			if verdict != tallyman.HelloWelcome && !cmp.Equal(got, c.attempt) {
				t.Errorf("a refused hello changed the attempt: %s", cmp.Diff(c.attempt, got))
			}
		})
	}
}
