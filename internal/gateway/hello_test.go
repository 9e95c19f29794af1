package gateway_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/gateway"
)

func TestHello(t *testing.T) {
	w := newWorld(t)
	for name, play := range map[string]func(t *testing.T, r *runner){
		"the first binds the journal": func(t *testing.T, r *runner) {
			var welcome tallyman.Welcome
			r.hello("J", 0).is(http.StatusOK).decode(&welcome)
			spec := welcome.Spec
			if welcome.Epoch != 1 || welcome.LeaseSeconds != int(gateway.Lease/time.Second) || spec.RunID != r.ref.RunID || spec.Attempt != 1 ||
				spec.Prompt != "do it" || spec.PromptSize != 5 || spec.WorkDir != "/work" || spec.Agent.Harness != "exec" {
				t.Errorf("welcome is %+v", welcome)
			}
			if a := r.attempt(); a.Journal != "J" || a.Epoch != 1 || a.Process != "7" {
				t.Errorf("the attempt is %+v", a)
			}
		},
		"the same journal gets the next epoch": func(t *testing.T, r *runner) {
			r.hello("J", 0).is(http.StatusOK)
			r.report(1, tallyman.Fact{Kind: tallyman.FactStarted, Cursor: 4, At: time.Now()}).is(http.StatusOK)
			for epoch, last := range []uint64{4, 9, 9} {
				var welcome tallyman.Welcome
				r.hello("J", last).is(http.StatusOK).decode(&welcome)
				if welcome.Epoch != int64(epoch+2) {
					t.Errorf("welcome at %d is epoch %d", last, welcome.Epoch)
				}
			}
			if a := r.attempt(); a.LastCursor != 9 || a.Epoch != 4 || a.EndedAt != nil {
				t.Errorf("the attempt is %+v", a)
			}
		},
		"less of the same journal fails the attempt": func(t *testing.T, r *runner) {
			r.hello("J", 9).is(http.StatusOK)
			r.hello("J", 8).is(http.StatusConflict).says("ends at 8")
			if a := r.attempt(); a.Reason != tallyman.JournalMismatch || a.Journal != "J" || a.LastCursor != 9 || a.Epoch != 1 {
				t.Errorf("the attempt is %+v", a)
			}
			if run, err := r.store.Run(t.Context(), r.ref.RunID); err != nil || run.State != tallyman.Failed {
				t.Errorf("the run is %s, %v", run.State, err)
			}
		},
		"another journal fails the attempt, too": func(t *testing.T, r *runner) {
			r.hello("J", 3).is(http.StatusOK)
			r.hello("K", 9).is(http.StatusConflict).says("another journal than K")
			if a := r.attempt(); a.Reason != tallyman.JournalMismatch || a.Journal != "J" || a.Epoch != 1 {
				t.Errorf("the attempt is %+v", a)
			}
		},
		"no journal at all": func(t *testing.T, r *runner) {
			r.hello("", 0).is(http.StatusConflict)
		},
		"an attempt that has ended is final": func(t *testing.T, r *runner) {
			r.hello("J", 0).is(http.StatusOK)
			r.ends(tallyman.Completed)
			before := r.attempt()
			if a := r.hello("J", 5).is(http.StatusGone).says("final"); a.header.Get("Tallyman-Final") != "true" {
				t.Errorf("its header is %v", a.header)
			}
			if diff := cmp.Diff(before, r.attempt()); diff != "" {
				t.Errorf("the attempt has changed:\n%s", diff)
			}
			r.call(http.MethodPost, "events?from=1", strings.NewReader(lines(1, 2))).is(http.StatusOK).says(`"next":3`)
		},
		"an attempt that another has followed is final": func(t *testing.T, r *runner) {
			r.hello("J", 0).is(http.StatusOK)
			r.ends(tallyman.RunnerLost)
			later := r.next(r.ref.RunID)
			later.hello("K", 0).is(http.StatusOK)
			if a := r.hello("J", 5).is(http.StatusGone); a.header.Get("Tallyman-Final") != "true" {
				t.Errorf("its header is %v", a.header)
			}
			if a := later.attempt(); a.Epoch != 1 || a.EndedAt != nil {
				t.Errorf("the attempt at work is %+v", a)
			}
		},
		"a newer runner may say more": func(t *testing.T, r *runner) {
			r.call(http.MethodPost, "hello", strings.NewReader(`{"journal_id":"J","last_cursor":3,"mood":"good"}`)).is(http.StatusOK).says(`"epoch":1`)
		},
		"a body that is none": func(t *testing.T, r *runner) {
			for _, body := range []string{"", "{", "[]", `{"last_cursor":-1}`, `{"last_cursor":"1"}`, `{"journal_id":"J","last_cursor":9223372036854775808}`} {
				r.call(http.MethodPost, "hello", strings.NewReader(body)).is(http.StatusBadRequest)
			}
			r.call(http.MethodPost, "hello", strings.NewReader(`{"version":"`+strings.Repeat("x", 1<<20)+`"}`)).is(http.StatusRequestEntityTooLarge)
			if a := r.attempt(); a.Epoch != 0 || a.Journal != "" {
				t.Errorf("the attempt is %+v", a)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, w.with(t).admit())
		})
	}
}

// nobody is a service that must not be asked.
type nobody struct {
	gateway.Control
	asked []string
}

func (n *nobody) CheckKey(context.Context, tallyman.AttemptRef, string) (tallyman.Attempt, error) {
	n.asked = append(n.asked, "CheckKey")
	return tallyman.Attempt{}, tallyman.Errorf(tallyman.Unauthorized, "no")
}

func (n *nobody) Greet(context.Context, tallyman.AttemptRef, tallyman.Proof, tallyman.Hello) (w tallyman.Welcome, v tallyman.HelloVerdict, err error) {
	n.asked = append(n.asked, "Greet")
	return w, v, tallyman.Errorf(tallyman.Unauthorized, "no")
}

// paths are all calls of the channel.
var paths = []struct{ method, path string }{
	{http.MethodPost, "hello"}, {http.MethodPost, "control?epoch=1"}, {http.MethodPost, "events?from=1"}, {http.MethodGet, "commands?epoch=1"},
	{http.MethodGet, "files/prompt"}, {http.MethodHead, "artifacts/a?digest=x&size=1"}, {http.MethodPut, "artifacts/a?digest=x&size=1"},
}

func TestWithoutOneBearerNothingIsLookedUp(t *testing.T) {
	n := &nobody{}
	mux := http.NewServeMux()
	gateway.New(n, nil, nil, 1, slog.New(slog.DiscardHandler)).Routes(mux)
	w := &world{t: t, server: httptest.NewServer(mux)}
	defer w.server.Close()
	const attempt = "01JZ0000000000000000000001-1"
	for name, bearers := range map[string][]string{
		"none": nil, "two": {"Bearer a", "Bearer b"}, "the same twice": {"Bearer a", "Bearer a"}, "an empty one": {"Bearer "},
		"another scheme": {"Basic YTpi"}, "no scheme": {"a"},
	} {
		for _, p := range paths {
			if a := w.call(p.method, attempt, p.path, strings.NewReader("{}"), bearers...); a.status != http.StatusUnauthorized {
				t.Errorf("%s %s with %s: %d", p.method, p.path, name, a.status)
			}
		}
	}
	for _, id := range []string{"x", "01JZ0000000000000000000001", "01JZ0000000000000000000001-0", "01jz0000000000000000000001-1", "..%2F..-1"} {
		for _, p := range paths {
			if a := w.call(p.method, id, p.path, strings.NewReader("{}"), "Bearer a"); a.status != http.StatusBadRequest {
				t.Errorf("%s %s of attempt %q: %d", p.method, p.path, id, a.status)
			}
		}
	}
	if len(n.asked) > 0 {
		t.Errorf("the service was asked: %v", n.asked)
	}
}

func TestAWrongKeyWritesNothing(t *testing.T) {
	w := newWorld(t)
	r, other := w.greeted(), w.greeted()
	before := r.attempt()
	absent := &runner{world: w, ref: tallyman.AttemptRef{RunID: "01JZ0000000000000000000001", Number: 1}, key: r.key}
	var answers []string
	for name, caller := range map[string]*runner{
		"another's key":      {world: w, ref: r.ref, key: other.key},
		"no such attempt":    absent,
		"the next attempt's": {world: w, ref: tallyman.AttemptRef{RunID: r.ref.RunID, Number: 2}, key: r.key},
	} {
		for _, p := range paths {
			body := `{"journal_id":"J"}`
			if strings.HasPrefix(p.path, "events") {
				body = lines(1, 1)
			}
			a := caller.call(p.method, p.path, strings.NewReader(body))
			if a.status != http.StatusUnauthorized {
				t.Errorf("%s: %s %s is answered with %d", name, p.method, p.path, a.status)
			}
			if p.method != http.MethodHead {
				answers = append(answers, strings.ReplaceAll(a.body, caller.ref.String(), "ATTEMPT"))
			}
		}
	}
	for _, a := range answers {
		if a != answers[0] {
			t.Errorf("who is unknown can be told from who is wrong: %s, %s", answers[0], a)
		}
	}
	if diff := cmp.Diff(before, r.attempt()); diff != "" {
		t.Errorf("the attempt has changed:\n%s", diff)
	}
	if got := w.stored(r.journal()); got != "" {
		t.Errorf("stored is %s", got)
	}
}

// late answers hellos in the other order than it took them.
type late struct {
	gateway.Control
	first, second chan struct{}
}

func (l *late) Greet(ctx context.Context, ref tallyman.AttemptRef, p tallyman.Proof, h tallyman.Hello) (tallyman.Welcome, tallyman.HelloVerdict, error) {
	w, v, err := l.Control.Greet(ctx, ref, p, h)
	if w.Epoch == 1 {
		close(l.first)
		<-l.second
	}
	return w, v, err
}

func TestOfTwoHellosAtOnceTheNewerCounts(t *testing.T) {
	w := newWorld(t)
	control := &late{Control: w.service, first: make(chan struct{}), second: make(chan struct{})}
	g := gateway.New(control, w.history, w.blobs, maxArtifact, slog.New(slog.DiscardHandler))
	mux := http.NewServeMux()
	g.Routes(mux)
	w.server.Config.Handler = mux
	r, older := w.admit(), make(chan struct{})
	old := *r
	go func() {
		defer close(older)
		old.hello("J", 0)
	}()
	<-control.first
	r.hello("J", 0).is(http.StatusOK)
	orders := r.orders(r.epoch)
	close(control.second)
	<-older
	g.Stop(r.ref, tallyman.StopOrder{Reason: tallyman.ReasonStopped})
	if got := next(t, orders); !strings.HasPrefix(got, "event: stop") {
		t.Errorf("the newer connection is told %q", got)
	}
}
