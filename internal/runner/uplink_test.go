package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/journal"
)

// link is an uplink with a journal that the test writes.
type link struct {
	*uplink
	t    *testing.T
	w    *journal.Writer
	sent []string
	stop context.CancelFunc
	done chan error
}

func newLink(t *testing.T, c *channel) *link {
	t.Helper()
	w, dir := newJournal(t, journal.Options{})
	u, err := newUplink(c.boot(""), "test", "1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	u.journal, u.dir, u.header = w, dir, journal.Header{Journal: "J"}
	return &link{uplink: u, t: t, w: w, done: make(chan error, 1)}
}

// begin says hello and lets the journal flow until the test's end.
func (l *link) begin() {
	l.t.Helper()
	ctx, stop := context.WithCancel(l.t.Context())
	l.stop = stop
	if _, err := l.hello(ctx); err != nil {
		l.t.Fatal(err)
	}
	go func() { l.done <- l.run(ctx) }()
	l.t.Cleanup(stop)
}

// writes appends events that are durable when it returns.
func (l *link) writes(n int) (last uint64) {
	l.t.Helper()
	for range n {
		e := tallyman.Event{Time: epoch, Type: tallyman.EventText, Text: fmt.Sprint("event ", len(l.sent)+1)}
		line := e.AppendJSON(nil)
		l.sent = append(l.sent, string(line))
		var err error
		if last, err = l.w.Append(line); err != nil {
			l.t.Fatal(err)
		}
	}
	return last
}

// delivered waits until the server has everything, and holds that it is that.
func (l *link) delivered(c *channel) {
	l.t.Helper()
	eventually(l.t, "everything is delivered", func() bool { return l.drained(uint64(len(l.sent))) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if diff := cmp.Diff(l.sent, c.lines); diff != "" {
		l.t.Fatalf("the server has other events:\n%s", diff)
	}
}

// refused waits until the server's refusal has ended the uplink.
func (l *link) refused() error {
	l.t.Helper()
	select {
	case err := <-l.done:
		return err
	case <-time.After(20 * time.Second):
		l.t.Fatal("it goes on")
		return nil
	}
}

func TestEventsAndFactsReachTheServer(t *testing.T) {
	c := newChannel(t)
	l := newLink(t, c)
	l.begin()
	cursor := l.writes(3)
	l.fact(tallyman.Fact{Cursor: cursor, Kind: tallyman.FactStarted, At: epoch})
	if l.drained(cursor + 1) {
		t.Error("what is not written is not delivered")
	}
	l.delivered(c)
	l.writes(1000)
	l.delivered(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.hellos[0]; len(c.hellos) != 1 || h.JournalID != "J" || h.Process != "1" || h.Version != "test" || h.LastCursor != 0 {
		t.Errorf("hello was %+v", c.hellos)
	}
	if len(c.facts) != 1 || c.facts[0].Kind != tallyman.FactStarted || c.facts[0].Cursor != cursor {
		t.Errorf("the facts are %+v", c.facts)
	}
}

func TestAServerThatComesAndGoesLosesNothing(t *testing.T) {
	c := newChannel(t)
	l := newLink(t, c)
	l.begin()
	for n := range 5 {
		l.writes(20)
		eventually(t, "it is connected", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.hellos) > n && len(c.orders) > 0 })
		c.down()
		last := l.writes(20)
		l.fact(tallyman.Fact{Cursor: last, Kind: tallyman.FactFirst, At: epoch})
		time.Sleep(30 * time.Millisecond) // so that it tries in vain
		c.up()
	}
	l.delivered(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.hellos) < 6 || c.hellos[5].LastCursor == 0 {
		t.Errorf("%d hellos, want one for each server", len(c.hellos))
	}
	// A report whose answer was lost comes again, whole: what is told for the
	// first time is in order all the same.
	var told []uint64
	for _, f := range c.facts {
		if !slices.Contains(told, f.Cursor) {
			told = append(told, f.Cursor)
		}
	}
	if !slices.Equal(told, []uint64{40, 80, 120, 160, 200}) {
		t.Errorf("the facts came first in the order %d", told)
	}
}

func TestControlHearsOfTheRunnerWellWithinItsLease(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{0: heartbeat, 6 * time.Second: 2 * time.Second, time.Hour: heartbeat} {
		if got := (&uplink{lease: lease}).beat(); got != want {
			t.Errorf("with a lease of %s a report comes every %s, want %s", lease, got, want)
		}
	}
	c := newChannel(t)
	c.lease = 1
	newLink(t, c).begin()
	began := time.Now()
	eventually(t, "five reports came", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.reports >= 5 })
	if took := time.Since(began); took > heartbeat {
		t.Errorf("five reports took %s, with a lease of a second", took)
	}
}

func TestTheFirstServerMayBeLate(t *testing.T) {
	c := newChannel(t)
	c.down()
	l := newLink(t, c)
	l.writes(5)
	go func() {
		time.Sleep(50 * time.Millisecond)
		c.up()
	}()
	l.begin()
	l.delivered(c)
}

func TestAHelloThatNobodyAnswersEndsWithItsContext(t *testing.T) {
	c := newChannel(t)
	c.down()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer stop()
	if _, err := newLink(t, c).hello(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	c.up() // so that the end may close it
}

func TestAGapIsFilledFromTheJournal(t *testing.T) {
	c := newChannel(t)
	l := newLink(t, c)
	l.begin()
	l.writes(50)
	l.delivered(c)
	// History goes back to an older copy of itself.
	c.set(func() { c.lines = c.lines[:20] })
	l.writes(1)
	l.delivered(c)
	c.set(func() { c.lines = nil })
	l.writes(10)
	l.delivered(c)
}

func TestAHistoryThatHasMoreThanTheJournalIsRefused(t *testing.T) {
	c := newChannel(t)
	c.before = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/events") {
			return false
		}
		answer(w, http.StatusConflict, tallyman.EventsExpected{Expected: 99})
		return true
	}
	l := newLink(t, c)
	l.begin()
	l.writes(1)
	if err := l.refused(); tallyman.CodeOf(err) != tallyman.Conflict {
		t.Errorf("got %v", err)
	}
}

func TestOtherBytesInHistoryAreRefused(t *testing.T) {
	c := newChannel(t)
	c.lines = []string{"{}"}
	l := newLink(t, c)
	l.begin()
	l.writes(1)
	if err := l.refused(); tallyman.CodeOf(err) != tallyman.Conflict || !strings.Contains(err.Error(), "other bytes") {
		t.Errorf("got %v", err)
	}
}

func TestAFinalAttemptStillDeliversItsEvents(t *testing.T) {
	gone := func(w http.ResponseWriter) bool {
		w.Header().Set("Tallyman-Final", "true")
		answer(w, http.StatusGone, map[string]string{"detail": "final"})
		return true
	}
	for name, how := range map[string]func(*channel){
		"told on the stream of orders": func(c *channel) { c.say("event: final\ndata: {}\n\n") },
		"told by the next hello": func(c *channel) {
			c.set(func() {
				c.before = func(w http.ResponseWriter, r *http.Request) bool {
					return strings.HasSuffix(r.URL.Path, "/hello") && gone(w)
				}
			})
			c.down()
			c.up()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChannel(t)
			l := newLink(t, c)
			l.begin()
			l.writes(5)
			l.delivered(c)
			eventually(t, "it listens", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.orders) > 0 })
			how(c)
			select {
			case <-l.final:
			case <-time.After(20 * time.Second):
				t.Fatal("nobody says that it is final")
			}
			last := l.writes(5)
			l.fact(tallyman.Fact{Cursor: last, Kind: tallyman.FactFinal}) // control takes it no more
			l.delivered(c)
			l.stop()
			if err := l.refused(); err != nil {
				t.Errorf("its end is %v", err)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if len(c.facts) != 0 {
				t.Errorf("control was told %+v", c.facts)
			}
		})
	}
}

func TestARefusalEndsTheUplink(t *testing.T) {
	for status, code := range map[int]tallyman.Code{
		http.StatusUnauthorized: tallyman.Unauthorized, http.StatusForbidden: tallyman.Unauthorized,
		http.StatusNotFound: tallyman.NotFound, http.StatusGone: tallyman.Stale, http.StatusConflict: tallyman.Conflict,
		http.StatusBadRequest: tallyman.Invalid,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			c := newChannel(t)
			l := newLink(t, c)
			l.begin()
			l.writes(1)
			l.delivered(c)
			c.set(func() {
				c.before = func(w http.ResponseWriter, _ *http.Request) bool {
					answer(w, status, map[string]string{"detail": "not you"})
					return true
				}
			})
			c.down()
			c.up()
			l.writes(1)
			if err := l.refused(); tallyman.CodeOf(err) != code || !strings.Contains(err.Error(), "not you") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestToBeSupersededByOneselfIsNoRefusal(t *testing.T) {
	for name, how := range map[string]func(*channel){
		"told by control": func(*channel) {},
		"told on the stream of orders": func(c *channel) {
			eventually(c.t, "it listens", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.orders) > 0 })
			c.say("event: superseded\ndata: epoch 2\n\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChannel(t)
			l := newLink(t, c)
			l.begin()
			l.writes(1)
			l.delivered(c)
			// A hello of this runner that was on its way for a long time.
			c.set(func() { c.epoch++ })
			how(c)
			last := l.writes(1)
			l.fact(tallyman.Fact{Cursor: last, Kind: tallyman.FactStarted, At: epoch})
			l.delivered(c)
			select {
			case <-l.final:
				t.Error("it takes itself for final")
			case err := <-l.done:
				t.Errorf("it has ended: %v", err)
			default:
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if len(c.facts) != 1 || len(c.hellos) < 2 {
				t.Errorf("%d hellos, facts %+v", len(c.hellos), c.facts)
			}
		})
	}
}

func TestAStopOrderArrivesEitherWay(t *testing.T) {
	want := tallyman.StopOrder{Reason: tallyman.ReasonStopped, Message: "stopped by a test"}
	for name, how := range map[string]func(*channel, *link){
		"on the stream": func(c *channel, _ *link) {
			eventually(t, "it listens", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.orders) > 0 })
			c.say(": alive\n\nevent: stop\ndata: {\"reason\":\"Stopped\",\"message\":\"stopped by a test\"}\n\n")
		},
		"in the answer to a report": func(c *channel, l *link) {
			c.set(func() { c.stop = &want })
			l.fact(tallyman.Fact{Cursor: l.writes(1), Kind: tallyman.FactFirst})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChannel(t)
			l := newLink(t, c)
			l.begin()
			how(c, l)
			select {
			case got := <-l.orders:
				if got != want {
					t.Errorf("got %+v", got)
				}
			case <-time.After(20 * time.Second):
				t.Error("no order")
			}
		})
	}
}

func TestUsageThatWaitsIsReplacedByTheNewest(t *testing.T) {
	c := newChannel(t)
	c.down()
	l := newLink(t, c)
	last := l.writes(1)
	usage := func(n int64) *tallyman.Usage { return &tallyman.Usage{OutputTokens: n} }
	l.fact(tallyman.Fact{Cursor: last, Kind: tallyman.FactStarted})
	for n := range int64(100) {
		l.fact(tallyman.Fact{Cursor: last, Kind: tallyman.FactUsage, Usage: usage(n)})
	}
	l.fact(tallyman.Fact{Cursor: last, Kind: tallyman.FactFinal, Outcome: &tallyman.Outcome{}})
	c.up()
	l.begin()
	l.delivered(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	var kinds []tallyman.FactKind
	for _, f := range c.facts {
		kinds = append(kinds, f.Kind)
	}
	if !slices.Equal(kinds, []tallyman.FactKind{tallyman.FactStarted, tallyman.FactUsage, tallyman.FactFinal}) || c.facts[1].Usage.OutputTokens != 99 {
		t.Errorf("control was told %+v", c.facts)
	}
}

func TestAServerThatFailsIsAskedAgain(t *testing.T) {
	c := newChannel(t)
	var fails atomic.Int32
	fails.Store(6)
	l := newLink(t, c)
	l.begin()
	c.set(func() {
		c.before = func(w http.ResponseWriter, _ *http.Request) bool {
			if fails.Add(-1) < 0 {
				return false
			}
			answer(w, http.StatusServiceUnavailable, map[string]string{"detail": "the disk is full"})
			return true
		}
	})
	l.fact(tallyman.Fact{Cursor: l.writes(10), Kind: tallyman.FactStarted})
	l.delivered(c)
}
