package service_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/service"
)

// collect is a follower that keeps the ids it was given; what an event says
// must be its id.
func collect(t *testing.T, into *[]string) service.Each {
	return func(id tallyman.EventID, line []byte, delta bool) error {
		if delta {
			*into = append(*into, "delta "+string(line))
			return nil
		}
		if !strings.Contains(string(line), `"`+id.String()+`"`) {
			t.Errorf("event %s is %s", id, line)
		}
		*into = append(*into, id.String())
		return nil
	}
}

// ids are the ids of the events of attempts that have so many.
func ids(counts ...int) (all []string) {
	for i, n := range counts {
		for c := range n {
			all = append(all, fmt.Sprintf("%d.%d", i+1, c+1))
		}
	}
	return all
}

func TestAFollowerSeesEveryEventOnceFromWhereverItBegins(t *testing.T) {
	h := newHall(t)
	run := h.submit(command())
	for n, events := range []int{7, 0, 5, 3} {
		r := h.start(run.ID)
		r.writes(events)
		reason := tallyman.RateLimited
		if n == 3 {
			reason = tallyman.Completed
		}
		r.ends(reason)
	}
	want := ids(7, 0, 5, 3)
	for n := range len(want) + 1 {
		var after tallyman.EventID
		if n > 0 {
			var err error
			if after, err = tallyman.ParseEventID(want[n-1]); err != nil {
				t.Fatal(err)
			}
		}
		for name, read := range map[string]func(context.Context, string, tallyman.EventID, service.Each) error{
			"follow": h.transcript.Follow, "events": h.transcript.Events,
		} {
			got := []string{}
			if err := read(t.Context(), run.ID, after, collect(t, &got)); err != nil {
				t.Fatalf("%s after %s: %v", name, after, err)
			}
			if diff := cmp.Diff(want[n:], got); diff != "" {
				t.Errorf("%s after %s:\n%s", name, after, diff)
			}
		}
	}
	// An id beyond the end has nothing after it.
	for _, after := range []tallyman.EventID{{Attempt: 4, Cursor: 99}, {Attempt: 9, Cursor: 1}} {
		got := []string{}
		if err := h.transcript.Follow(t.Context(), run.ID, after, collect(t, &got)); err != nil || len(got) > 0 {
			t.Errorf("after %s: %v, %v", after, got, err)
		}
	}
}

func TestFollowersOfARunAtWork(t *testing.T) {
	h := newHall(t)
	run := h.submit(command())
	var all sync.WaitGroup
	results := make([][]string, 8)
	for i := range results {
		all.Go(func() {
			// Every other one loses its connection after each third event.
			cut := errors.New("connection lost")
			var last tallyman.EventID
			for n := 0; ; {
				err := h.transcript.Follow(t.Context(), run.ID, last, func(id tallyman.EventID, line []byte, delta bool) error {
					if delta {
						return nil
					}
					if n++; i%2 == 1 && n%3 == 0 {
						return cut
					}
					last = id
					results[i] = append(results[i], id.String())
					return nil
				})
				if errors.Is(err, cut) {
					continue
				}
				if err != nil {
					t.Error(err)
				}
				return
			}
		})
	}
	for n := range 2 {
		r := h.start(run.ID)
		for range 10 {
			r.writes(3)
			time.Sleep(time.Millisecond)
		}
		r.ends([]tallyman.Reason{tallyman.RunnerLost, tallyman.Completed}[n])
	}
	all.Wait()
	for i, got := range results {
		if diff := cmp.Diff(ids(30, 30), got); diff != "" {
			t.Errorf("follower %d:\n%s", i, diff)
		}
	}
}

func TestDeltasAreForWhoWatchesNow(t *testing.T) {
	h := newHall(t)
	r := h.start(h.submit(command()).ID)
	r.history.Provisional(r.journal, []byte(`{"delta":"before"}`))
	r.writes(1)
	ctx, stop := context.WithCancel(t.Context())
	seen := make(chan string, 10)
	done := make(chan error, 1)
	go func() {
		done <- h.transcript.Follow(ctx, r.ref.RunID, tallyman.EventID{}, func(id tallyman.EventID, line []byte, delta bool) error {
			if delta && id.Cursor != 0 {
				t.Errorf("a delta has the id %s", id)
			}
			seen <- fmt.Sprint(delta, " ", string(line[:10]))
			return nil
		})
	}()
	if got := <-seen; !strings.HasPrefix(got, "false") {
		t.Errorf("first comes %s", got)
	}
	r.history.Provisional(r.journal, []byte(`{"delta":"now"}`))
	if got := <-seen; got != `true {"delta":"` {
		t.Errorf("then comes %s", got)
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
}

func TestWhatIsMissingAtTheEndIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		final uint64
		gone  bool
		want  *service.MissingError
		says  string
	}{
		"three events":         {final: 5, gone: true, want: &service.MissingError{Attempt: 1, Missing: 3}, says: "3 are missing"},
		"nobody knows":         {final: 0, gone: false, want: &service.MissingError{Attempt: 1}, says: "may still be on their way"},
		"nothing, as it turns": {final: 0, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHall(t)
				r := h.start(h.submit(command()).ID)
				r.writes(2)
				if _, err := h.End(t.Context(), r.ref, tallyman.Settlement{Reason: tallyman.Completed, FinalCursor: c.final}); err != nil {
					t.Fatal(err)
				}
				if c.gone {
					if err := h.Gone(t.Context(), r.ref, false, nil); err != nil {
						t.Fatal(err)
					}
				}
				began := time.Now()
				var got []string
				err := h.transcript.Follow(t.Context(), r.ref.RunID, tallyman.EventID{}, collect(t, &got))
				if diff := cmp.Diff(ids(2), got); diff != "" {
					t.Error(diff)
				}
				took := time.Since(began)
				if c.want == nil {
					if err != nil || took > time.Second {
						t.Errorf("it ends after %s with %v", took, err)
					}
					return
				}
				var missing *service.MissingError
				if !errors.As(err, &missing) || *missing != *c.want || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "1.0") {
					t.Errorf("got %v", err)
				}
				if took < 10*time.Second || took > 15*time.Second {
					t.Errorf("it waited %s", took)
				}
			})
		})
	}
}

// A transcript that lacks the end of one attempt goes on with the next.
func TestWhatIsMissingOfAnAttemptHidesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t)
		run := h.submit(command())
		first := h.start(run.ID)
		first.writes(2)
		first.ends(tallyman.RateLimited, func(s *tallyman.Settlement) { s.FinalCursor = 5 })
		second := h.start(run.ID)
		second.writes(3)
		second.ends(tallyman.Completed)
		var got []string
		err := h.transcript.Follow(t.Context(), run.ID, tallyman.EventID{}, collect(t, &got))
		if diff := cmp.Diff(ids(2, 3), got); diff != "" {
			t.Error(diff)
		}
		if missing := new(service.MissingError); !errors.As(err, &missing) || *missing != (service.MissingError{Attempt: 1, Missing: 3}) {
			t.Errorf("got %v", err)
		}
	})
}

func TestWhatComesLateIsStillGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t)
		r := h.start(h.submit(command()).ID)
		r.writes(2)
		if _, err := h.End(t.Context(), r.ref, tallyman.Settlement{Reason: tallyman.Completed, FinalCursor: 4}); err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(5 * time.Second)
			r.writes(2)
		}()
		var got []string
		if err := h.transcript.Follow(t.Context(), r.ref.RunID, tallyman.EventID{}, collect(t, &got)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(ids(4), got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestFollowingWhatIsNotThere(t *testing.T) {
	h := newHall(t)
	err := h.transcript.Follow(t.Context(), "01JZ0000000000000000000000", tallyman.EventID{}, collect(t, new([]string)))
	code(t, err, tallyman.NotFound)
	// A run that is removed meanwhile ends its followers.
	run := h.submit(command())
	done := make(chan error, 1)
	go func() {
		done <- h.transcript.Follow(t.Context(), run.ID, tallyman.EventID{}, collect(t, new([]string)))
	}()
	if _, err := h.Stop(t.Context(), run.ID, tallyman.ReasonStopped, "a test"); err != nil {
		t.Fatal(err)
	}
	if err := h.Delete(t.Context(), run.ID, dropNothing); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil && tallyman.CodeOf(err) != tallyman.NotFound {
		t.Errorf("got %v", err)
	}
}
