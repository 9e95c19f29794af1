package gateway_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/gateway"
)

func TestAnOlderConnectionIsSuperseded(t *testing.T) {
	r := newWorld(t).greeted()
	old := r.orders(1)
	r.hello(r.journal(), 0).is(http.StatusOK)
	if got := next(t, old); got != "event: superseded\ndata: epoch 2" {
		t.Errorf("it is told %q", got)
	}
	if got := next(t, old); got != "end" {
		t.Errorf("then comes %q", got)
	}
	// Its facts are refused, and it is not told that the attempt is final.
	before := r.attempt()
	for _, facts := range [][]tallyman.Fact{nil, {{Kind: tallyman.FactStarted, Cursor: 5, At: time.Now()}}, {{Kind: tallyman.FactFinal, Cursor: 9, Outcome: &tallyman.Outcome{}}}} {
		if a := r.report(1, facts...).is(http.StatusGone).says("epoch 2 took over from 1"); a.header.Get("Tallyman-Final") != "" {
			t.Error("it is told that the attempt is final")
		}
	}
	if a := r.attempt(); a.StartedAt != nil || a.Final != nil || a.LastCursor != before.LastCursor {
		t.Errorf("the attempt is %+v", a)
	}
	// An epoch that nobody was given neither.
	r.report(7, tallyman.Fact{Kind: tallyman.FactStarted, Cursor: 5}).is(http.StatusGone)
	if got := next(t, r.orders(1)); !strings.HasPrefix(got, "event: superseded") {
		t.Errorf("a stream of the old epoch is told %q", got)
	}
	now := r.orders(2)
	r.report(2, tallyman.Fact{Kind: tallyman.FactStarted, Cursor: 5, At: time.Now()}).is(http.StatusOK)
	if a := r.attempt(); a.StartedAt == nil || a.LastCursor != 5 {
		t.Errorf("the attempt is %+v", a)
	}
	r.gateway.Stop(r.ref, tallyman.StopOrder{Reason: tallyman.ReasonStopped})
	if got := next(t, now); !strings.HasPrefix(got, "event: stop") {
		t.Errorf("the newer connection is told %q", got)
	}
}

func TestAStopOrderArrives(t *testing.T) {
	const want = "event: stop\ndata: " + `{"reason":"Stopped","message":"stopped by a test"}`
	order := tallyman.StopOrder{Reason: tallyman.ReasonStopped, Message: "stopped by a test"}
	w := newWorld(t)
	t.Run("over the open stream", func(t *testing.T) {
		r := w.with(t).greeted()
		orders := r.orders(1)
		w.gateway.Stop(r.ref, order)
		if got := next(t, orders); got != want {
			t.Errorf("got %q", got)
		}
	})
	t.Run("when the stream is opened later, and again after a new hello", func(t *testing.T) {
		r := w.with(t).greeted()
		w.gateway.Stop(r.ref, order)
		if got := next(t, r.orders(1)); got != want {
			t.Errorf("got %q", got)
		}
		r.hello(r.journal(), 0).is(http.StatusOK)
		if got := next(t, r.orders(2)); got != want {
			t.Errorf("after a new hello: %q", got)
		}
	})
	t.Run("in the answer to a report and to a heartbeat", func(t *testing.T) {
		r := w.with(t).greeted()
		r.report(1).is(http.StatusOK)
		if _, err := w.service.Stop(t.Context(), r.ref.RunID, tallyman.ReasonStopped, "a test"); err != nil {
			t.Fatal(err)
		}
		for _, facts := range [][]tallyman.Fact{nil, {{Kind: tallyman.FactFirst, Cursor: 2, At: time.Now()}}} {
			var answer tallyman.ControlAnswer
			r.report(1, facts...).is(http.StatusOK).decode(&answer)
			if answer.Stop == nil || *answer.Stop != order {
				t.Errorf("the answer is %+v", answer)
			}
		}
	})
}

func TestTheLastWordClosesTheConnection(t *testing.T) {
	w := newWorld(t)
	r := w.greeted()
	orders := r.orders(1)
	r.report(1, tallyman.Fact{Kind: tallyman.FactFinal, Cursor: 3, At: time.Now(), Outcome: &tallyman.Outcome{Reason: tallyman.Completed}}).is(http.StatusOK)
	if got := next(t, orders); got != "event: final\ndata: {}" {
		t.Errorf("the stream is told %q", got)
	}
	if got := next(t, orders); got != "end" {
		t.Errorf("then comes %q", got)
	}
	if a := r.attempt(); a.Final == nil || a.FinalCursor != 3 {
		t.Errorf("the attempt is %+v", a)
	}
	// What it still has to deliver is taken: its key stays good.
	r.call(http.MethodPost, "events?from=1", strings.NewReader(lines(1, 3))).is(http.StatusOK)
	r.call(http.MethodGet, "files/prompt", nil).is(http.StatusOK).says("do it")
}

func TestAServerThatIsNewCallsNoAttemptFinal(t *testing.T) {
	r := newWorld(t).greeted()
	// The server is killed, and the next one is there before the runner asks
	// for its orders with the epoch that it was given.
	r.world = r.with(t)
	r.gateway = gateway.New(r.service, r.history, r.blobs, maxArtifact, slog.New(slog.DiscardHandler))
	mux := http.NewServeMux()
	r.gateway.Routes(mux)
	r.server = httptest.NewServer(mux)
	t.Cleanup(r.server.Close)
	orders := r.orders(1)
	if got := next(t, orders); !strings.HasPrefix(got, "event: superseded") {
		t.Errorf("it is told %q", got)
	}
	if got := next(t, orders); got != "end" {
		t.Errorf("then comes %q", got)
	}
	r.hello(r.journal(), 0).is(http.StatusOK)
	r.gateway.Stop(r.ref, tallyman.StopOrder{Reason: tallyman.ReasonStopped})
	if got := next(t, r.orders(2)); !strings.HasPrefix(got, "event: stop") {
		t.Errorf("after a hello it is told %q", got)
	}
}

func TestReportsThatMakeNoSense(t *testing.T) {
	r := newWorld(t).greeted()
	for _, query := range []string{"", "?epoch=", "?epoch=0", "?epoch=-1", "?epoch=x", "?epoch=99999999999999999999"} {
		r.call(http.MethodPost, "control"+query, strings.NewReader("{}")).is(http.StatusBadRequest).says("epoch")
		r.call(http.MethodGet, "commands"+query, nil).is(http.StatusBadRequest).says("epoch")
	}
	for _, body := range []string{"", "{", "[]", `{"facts":{}}`, `{"facts":[{"cursor":-1}]}`, `{"facts":[{"kind":"final","cursor":1}]}`, `{"facts":[{"cursor":9223372036854775808}]}`} {
		r.call(http.MethodPost, "control?epoch=1", strings.NewReader(body)).is(http.StatusBadRequest)
	}
	// A newer runner may know facts that this server does not.
	r.call(http.MethodPost, "control?epoch=1", strings.NewReader(`{"facts":[{"kind":"mood","cursor":4}],"more":1}`)).is(http.StatusOK)
	if a := r.attempt(); a.LastCursor != 4 {
		t.Errorf("the attempt is %+v", a)
	}
}

// quiet is a service that knows every runner.
type quiet struct{ gateway.Control }

func (quiet) Greet(context.Context, tallyman.AttemptRef, tallyman.Proof, tallyman.Hello) (tallyman.Welcome, tallyman.HelloVerdict, error) {
	return tallyman.Welcome{Epoch: 1}, tallyman.HelloWelcome, nil
}

func (quiet) CheckKey(context.Context, tallyman.AttemptRef, string) (tallyman.Attempt, error) {
	return tallyman.Attempt{Journal: "J"}, nil
}

func (quiet) Report(context.Context, tallyman.AttemptRef, int64, tallyman.ControlReport) (tallyman.ControlAnswer, error) {
	return tallyman.ControlAnswer{}, nil
}

// swallow is a History that takes everything.
type swallow struct{}

func (swallow) Append(_ context.Context, _ string, from uint64, lines [][]byte) (uint64, error) {
	return from + uint64(len(lines)), nil
}
func (swallow) Provisional(string, []byte) {}

func TestContactIsWhenTheRunnerWasLastHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		g, call := inBubble(t)
		ref := tallyman.AttemptRef{RunID: "01JZ0000000000000000000001", Number: 1}
		base := "/runner/v1/attempts/" + ref.String() + "/"
		contact := func(what string, want time.Time) {
			t.Helper()
			if got := g.Contact(ref); !got.Equal(want) {
				t.Errorf("%s: contact was %s after the start, want %s", what, got.Sub(began), want.Sub(began))
			}
		}
		time.Sleep(time.Hour)
		contact("of a runner that was never heard of, since the server's start", began)
		for _, c := range []struct{ what, path, body string }{
			{"a hello", "hello", `{"journal_id":"J"}`}, {"a heartbeat", "control?epoch=1", "{}"}, {"events", "events?from=1", "{\"x\":1}\n"},
		} {
			time.Sleep(time.Minute)
			if status := call(http.MethodPost, base+c.path, c.body); status != http.StatusOK {
				t.Fatalf("%s: %d", c.what, status)
			}
			now := time.Now()
			contact(c.what, now)
			time.Sleep(time.Minute)
			contact("a minute after "+c.what, now)
		}
		g.Forget(ref)
		contact("of a runner that was forgotten", began)
		call(http.MethodPost, base+"events?from=2", "{\"x\":1}\n")
		contact("what comes after the end makes no connection", began)
	})
}

func TestStreamsOfOrdersGetHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, call := inBubble(t)
		ref := tallyman.AttemptRef{RunID: "01JZ0000000000000000000001", Number: 1}
		base := "/runner/v1/attempts/" + ref.String() + "/"
		call(http.MethodPost, base+"hello", `{"journal_id":"J"}`)
		stream := hijack(t, g, base+"commands?epoch=1")
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.Run(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := strings.Count(stream.text(), ": alive\n\n"); got != 4 {
			t.Errorf("%d heartbeats in a minute: %q", got, stream.text())
		}
		if stream.closed() {
			t.Error("it is closed")
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if !stream.closed() {
			t.Error("a server that ends leaves its streams open")
		}
	})
}

func TestARunnerThatDoesNotReadIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, call := inBubble(t)
		ref := tallyman.AttemptRef{RunID: "01JZ0000000000000000000001", Number: 1}
		base := "/runner/v1/attempts/" + ref.String() + "/"
		call(http.MethodPost, base+"hello", `{"journal_id":"J"}`)
		stream := hijack(t, g, base+"commands?epoch=1")
		stream.stall()
		began := time.Now()
		g.Stop(ref, tallyman.StopOrder{Reason: tallyman.ReasonStopped})
		if took := time.Since(began); took > 2*time.Second || !stream.closed() {
			t.Errorf("after %s it is closed: %v", took, stream.closed())
		}
		// The order waits for the next stream.
		if again := hijack(t, g, base+"commands?epoch=1"); !strings.Contains(again.text(), "event: stop") {
			t.Errorf("the next stream says %q", again.text())
		}
	})
}
