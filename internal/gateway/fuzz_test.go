package gateway_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/gateway"
)

// memory is service and history of one attempt, fast enough to be fuzzed.
type memory struct {
	gateway.Control
	attempt       tallyman.Attempt
	stored, shown []string
}

func (m *memory) Greet(_ context.Context, _ tallyman.AttemptRef, _ tallyman.Proof, h tallyman.Hello) (w tallyman.Welcome, v tallyman.HelloVerdict, err error) {
	m.attempt, v = tallyman.Run{State: tallyman.Starting, Attempt: 1}.Greet(m.attempt, h, true)
	w.Epoch = m.attempt.Epoch
	return w, v, nil
}

func (m *memory) CheckKey(context.Context, tallyman.AttemptRef, string) (tallyman.Attempt, error) {
	return m.attempt, nil
}

func (m *memory) Append(_ context.Context, journal string, from uint64, lines [][]byte) (uint64, error) {
	if from > 1 {
		return 0, &tallyman.GapError{Journal: journal, Expected: 1}
	}
	for _, l := range lines {
		m.stored = append(m.stored, string(l))
	}
	return from + uint64(len(lines)), nil
}

func (m *memory) Provisional(_ string, line []byte) { m.shown = append(m.shown, string(line)) }

const fuzzed = "/runner/v1/attempts/01JZ0000000000000000000001-1/"

func (m *memory) post(path, body string) *httptest.ResponseRecorder {
	mux := http.NewServeMux()
	gateway.New(m, m, nil, 1, slog.New(slog.DiscardHandler)).Routes(mux)
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, request(http.MethodPost, fuzzed+path, body))
	return rec
}

func FuzzHello(f *testing.F) {
	for _, seed := range []string{
		"", "{}", `{"journal_id":"J","last_cursor":3}`, `{"journal_id":"K","process":"\u0000"}`, "[1e400]", "\xff",
		`{"last_cursor":18446744073709551615,"journal_id":"J"}`, `{"last_cursor":4611686018427387904,"journal_id":"J"}`,
	} {
		f.Add(seed)
	}
	allowed := []int{http.StatusOK, http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge}
	f.Fuzz(func(t *testing.T, body string) {
		m := &memory{attempt: tallyman.Attempt{Number: 1}}
		for n := range int64(2) {
			a := m.post("hello", body)
			if !slices.Contains(allowed, a.Code) {
				t.Fatalf("%q is answered with %d: %s", body, a.Code, a.Body)
			}
			if welcome := a.Code == http.StatusOK; welcome != (m.attempt.Epoch == n+1) || m.attempt.LastCursor > 1<<62 {
				t.Fatalf("hello %d, %q, is answered with %d; the attempt is %+v", n+1, body, a.Code, m.attempt)
			}
		}
	})
}

func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "{}\n", lines(1, 3), lines(1, 1) + "x", `{"delta":"a"}` + "\n", "{\"a\":1}\n{\"b\":\xff}\n", "{\"a\":1,\r\n\"b\":2}\n", strings.Repeat("{", 100) + "\n",
	} {
		f.Add(seed, uint16(1))
	}
	allowed := []int{http.StatusOK, http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge}
	f.Fuzz(func(t *testing.T, body string, from uint16) {
		m := &memory{attempt: tallyman.Attempt{Number: 1, Journal: "J"}}
		a := m.post("events?from="+strconv.Itoa(int(from)), body)
		if !slices.Contains(allowed, a.Code) {
			t.Fatalf("%q is answered with %d: %s", body, a.Code, a.Body)
		}
		if a.Code != http.StatusOK && len(m.stored) > 0 {
			t.Fatalf("%q was refused with %d and stored as %q", body, a.Code, m.stored)
		}
		// What is passed on is framed: one object a line, and nothing that ends
		// an event of an event stream.
		size := 0
		for _, line := range append(m.stored, m.shown...) {
			size += len(line) + 1
			if !strings.HasPrefix(line, `{"`) || !strings.HasSuffix(line, "}") || strings.ContainsAny(line, "\r\n") {
				t.Fatalf("%q gave the line %q", body, line)
			}
		}
		if a.Code == http.StatusOK && size != len(body) {
			t.Fatalf("of %q came %q and %q", body, m.stored, m.shown)
		}
	})
}
