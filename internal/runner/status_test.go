package runner

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// A History that is full must not keep a stop order from its run.
func TestABusyHistoryDisturbsNeitherFactsNorOrders(t *testing.T) {
	c := newChannel(t)
	busy, asked := true, 0
	c.before = func(w http.ResponseWriter, r *http.Request) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !busy || !strings.HasSuffix(r.URL.Path, "/events") {
			return false
		}
		asked++
		answer(w, http.StatusServiceUnavailable, map[string]string{"detail": "no space left"})
		return true
	}
	l := newLink(t, c)
	l.begin()
	cursor := l.writes(3)
	eventually(t, "events are refused and orders followed", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return asked > 2 && len(c.orders) > 0 })
	l.fact(tallyman.Fact{Cursor: cursor, Kind: tallyman.FactStarted, At: epoch})
	c.say("event: stop\ndata: {\"reason\":\"Stopped\"}\n\n")
	select {
	case <-l.orders:
	case <-time.After(20 * time.Second):
		t.Error("no order")
	}
	eventually(t, "the fact arrives", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.facts) == 1 })
	c.set(func() {
		if len(c.hellos) != 1 {
			t.Errorf("%d hellos: the connection was given up", len(c.hellos))
		}
		busy = false
	})
	l.delivered(c)
}

func TestAnEventTooLargeForTheServerEndsTheUplink(t *testing.T) {
	c := newChannel(t)
	c.before = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/events") {
			return false
		}
		answer(w, http.StatusRequestEntityTooLarge, map[string]string{"detail": "event 1 is too long"})
		return true
	}
	l := newLink(t, c)
	l.begin()
	l.writes(1)
	if err := l.refused(); tallyman.CodeOf(err) != tallyman.TooLarge || !strings.Contains(err.Error(), "events 1 to 1") || !strings.Contains(err.Error(), "event 1 is too long") {
		t.Errorf("got %v", err)
	}
}

func TestWhatAStatusMeans(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		header string
		body   string
		want   tallyman.Code
		text   string
	}{
		"good":                {status: 204},
		"a problem":           {status: 400, body: `{"detail":"no such cursor"}`, want: tallyman.Invalid, text: "no such cursor"},
		"a key":               {status: 401, body: `{"detail":"not its key"}`, want: tallyman.Unauthorized, text: "not its key"},
		"no attempt":          {status: 404, body: "nothing", want: tallyman.NotFound, text: "nothing"},
		"a conflict":          {status: 409, body: `{"detail":"other bytes"}`, want: tallyman.Conflict, text: "other bytes"},
		"another process":     {status: 410, body: `{"detail":"stale"}`, want: tallyman.Stale, text: "stale"},
		"too large":           {status: 413, want: tallyman.TooLarge},
		"what is not known":   {status: 418, body: "teapot", want: tallyman.Unavailable, text: "teapot"},
		"a proxy's answer":    {status: 502, body: "<html>", want: tallyman.Unavailable, text: "502"},
		"a long page, cut":    {status: 500, body: strings.Repeat("x", 1<<20), want: tallyman.Unavailable},
		"a problem in pieces": {status: 503, body: `{"detail":`, want: tallyman.Unavailable, text: `{"detail":`},
	} {
		t.Run(name, func(t *testing.T) {
			rec := httptest.NewRecorder()
			rec.WriteHeader(c.status)
			rec.WriteString(c.body)
			err := statusError(rec.Result())
			if tallyman.CodeOf(err) != c.want || err != nil && (!strings.Contains(err.Error(), c.text) || len(err.Error()) > 5000) {
				t.Errorf("got %s %.200v", tallyman.CodeOf(err), err)
			}
		})
	}
	rec := httptest.NewRecorder()
	rec.Header().Set("Tallyman-Final", "true")
	rec.WriteHeader(http.StatusGone)
	if err := statusError(rec.Result()); !errors.Is(err, errFinal) {
		t.Errorf("final: %v", err)
	}
	rec = httptest.NewRecorder()
	rec.WriteHeader(http.StatusConflict)
	rec.WriteString(`{"expected":7}`)
	var gap *tallyman.GapError
	if err := statusError(rec.Result()); !errors.As(err, &gap) || gap.Expected != 7 {
		t.Errorf("a gap: %v", err)
	}
}
