package executor_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
)

func TestWhatARunnerCouldNotDeliverIsDelivered(t *testing.T) {
	lines := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint("event ", i+1, strings.Repeat("x", 300_000)))
		}
		return all
	}
	for name, c := range map[string]struct {
		have, journal int
		id            string
		want          int
	}{
		"all of it":               {0, 12, "J", 12},
		"the rest":                {5, 12, "J", 12},
		"nothing":                 {12, 12, "J", 12},
		"less than History has":   {12, 7, "J", 12},
		"another journal is none": {0, 12, "K", 0},
	} {
		t.Run(name, func(t *testing.T) {
			all := lines(12)
			s := play(t, "note adopted@0\nend RunnerLost@1\ncompact@1\ngone@1\nforget@1", func(s *stage) {
				s.works()
				s.serve()
				s.at(1, func() {
					s.journal, s.history = all[:c.journal], slices.Clone(all[:c.have])
					s.ends(nil)
					s.obs.Journal = c.id
				})
				s.at(1, func() {})
			})
			if diff := cmp.Diff(all[:c.want], s.history, cmp.Transformer("short", func(t string) string { return t[:10] })); diff != "" && c.want > 0 || len(s.history) != c.want {
				t.Errorf("History has %d:\n%s", len(s.history), diff)
			}
		})
	}
}

func TestTheSlotDoesNotWaitForHistory(t *testing.T) {
	s := play(t, "note adopted@0\nend RunnerLost@1\ngone@1\nforget@1\ncompact@16\ndelivered@16", func(s *stage) {
		s.works()
		s.serve()
		s.at(1, func() {
			s.journal = []string{"a", "b"}
			s.ends(nil)
			s.errs["history"] = errors.New("no history")
		})
		for second := 2; second < 10; second++ { // much goes on beside it
			s.at(second, func() {})
		}
		s.at(10, func() { delete(s.errs, "history") })
		s.at(20, func() {})
	})
	// At the end, when the slot became free, and by the first of the tries that follow.
	if tries := strings.Count(s.log.String(), "no history"); len(s.history) != 2 || tries != 3 {
		t.Errorf("History has %q, %d tries failed; the log:\n%s", s.history, tries, s.log.String())
	}
}

func TestWhatAnEarlierServerOwedIsDelivered(t *testing.T) {
	for name, c := range map[string]struct {
		obs  tallyman.Observation
		err  error
		want string
		has  int
	}{
		"all of it":                                      {obs: tallyman.Observation{Gone: true, Journal: "J", Last: 2}, want: "compact@0\ndelivered@0", has: 2},
		"nothing, where the folder is gone":              {want: "delivered@0"},
		"nothing, where History has others in its place": {tallyman.Observation{Gone: true, Journal: "J", Last: 2}, tallyman.Errorf(tallyman.Conflict, "other bytes"), "delivered@0", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, c.want, func(s *stage) {
				s.owed = []tallyman.Attempt{{RunID: ref.RunID, Number: 1, Journal: "J", Gone: true, Owed: true}}
				s.active, s.journal, s.obs, s.errs["append"] = nil, []string{"a", "b"}, c.obs, c.err
				s.serve()
				time.Sleep(5 * time.Second)
			})
			if len(s.history) != c.has {
				t.Errorf("History has %q", s.history)
			}
		})
	}
}

// A run may be removed while what it was owed is on its way.
func TestWhatWasDeliveredOfARemovedRunIsDeleted(t *testing.T) {
	s := play(t, "compact@0\ndelivered@0\ndelete J@0", func(s *stage) {
		s.owed = []tallyman.Attempt{{RunID: ref.RunID, Number: 1, Journal: "J", Gone: true, Owed: true}}
		s.active, s.journal, s.obs = nil, []string{"a"}, tallyman.Observation{Gone: true, Journal: "J", Last: 1}
		s.errs["delivered"] = tallyman.Errorf(tallyman.NotFound, "there is no such run")
		s.serve()
	})
	if len(s.history) != 0 {
		t.Errorf("History has %q", s.history)
	}
}
