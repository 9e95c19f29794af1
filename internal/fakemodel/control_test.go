package fakemodel_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman/internal/fakemodel"
)

// open starts a streaming call that the returned function gives up.
func (s *server) open(prompt string) (resp <-chan *http.Response, giveUp context.CancelFunc) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/v1/messages", strings.NewReader(request(true, said(prompt))))
	if err != nil {
		s.t.Fatal(err)
	}
	ch := make(chan *http.Response, 1)
	go func() {
		if resp, err := http.DefaultClient.Do(req); err == nil {
			ch <- resp
		}
		close(ch)
	}()
	return ch, cancel
}

// events reads event names until the stream ends or stands still.
func events(r io.Reader, n int) (names []string, err error) {
	lines := bufio.NewReader(r)
	for len(names) < n {
		line, err := lines.ReadString('\n')
		if err != nil {
			return names, err
		}
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names, nil
}

func TestHeldCallsWaitAndGoOnWhenReleased(t *testing.T) {
	s := serve(t, fakemodel.Script{})
	if st := s.control("hold"); !st.Held {
		t.Errorf("hold answers %+v", st)
	}
	one, _ := s.open("%%say hello%%")
	two, _ := s.open("%%error 500%%")
	s.eventually("two held", func(st fakemodel.Stats) bool { return st.Open == 2 && st.Waiting == 2 })
	if st := s.fake.Stats(); len(st.ByStatus) != 0 {
		t.Errorf("a status was sent while held: %+v", st)
	}
	s.control("release")
	if resp := <-one; resp.StatusCode != 200 || !strings.Contains(body(t, resp.Body), "message_stop") {
		t.Error("the released stream did not end well")
	}
	if resp := <-two; resp.StatusCode != 500 {
		t.Errorf("status %d, want 500", resp.StatusCode)
	}
	s.eventually("over", func(st fakemodel.Stats) bool { return st.Open == 0 && st.Waiting == 0 && !st.Held })
	want := fakemodel.Stats{
		Calls: 2, ByFormat: map[fakemodel.Format]int64{"anthropic": 2},
		ByModel: map[string]int64{"claude-sonnet-4-5": 2}, ByStatus: map[int]int64{200: 1, 500: 1},
	}
	if diff := cmp.Diff(want, s.fake.Stats()); diff != "" {
		t.Errorf("counts differ (-want +got):\n%s", diff)
	}
}

func TestAStallLetsSoManyPiecesPass(t *testing.T) {
	s := serve(t, fakemodel.Script{})
	ch, _ := s.open("%%chunk 1%% %%stall after=2%% %%say abcd%%")
	resp := <-ch
	names, err := events(resp.Body, 5)
	want := []string{"message_start", "content_block_start", "ping", "content_block_delta", "content_block_delta"}
	if diff := cmp.Diff(want, names); diff != "" || err != nil {
		t.Fatalf("before the stall (-want +got, %v):\n%s", err, diff)
	}
	s.eventually("stalled", func(st fakemodel.Stats) bool { return st.Waiting == 1 })
	s.control("release")
	if rest := body(t, resp.Body); strings.Count(rest, `"text_delta"`) != 2 || !strings.Contains(rest, "message_stop") {
		t.Errorf("after the release: %s", rest)
	}
}

func TestAStallEndsWhenTheClientGoes(t *testing.T) {
	for name, prompt := range map[string]string{
		"before the answer": "%%stall%% %%say a%%",
		"in mid stream":     "%%say a%% %%stall%%",
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, fakemodel.Script{})
			_, giveUp := s.open(prompt)
			s.eventually("stalled", func(st fakemodel.Stats) bool { return st.Waiting == 1 })
			giveUp()
			s.eventually("over", func(st fakemodel.Stats) bool {
				return st.Open == 0 && st.Waiting == 0 && st.ClientAborted == 1 && st.ServerAborted == 0
			})
		})
	}
}

func TestAbortBreaksOpenStreams(t *testing.T) {
	s := serve(t, fakemodel.Script{})
	ch, _ := s.open("%%say a%% %%stall%%")
	resp := <-ch
	s.eventually("stalled", func(st fakemodel.Stats) bool { return st.Waiting == 1 })
	s.control("abort")
	if rest, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the stream ended with %v after %s", err, rest)
	}
	s.eventually("over", func(st fakemodel.Stats) bool {
		return st.Open == 0 && st.ServerAborted == 1 && st.ClientAborted == 0
	})
	if got := s.answer(said("%%say still here%%")); got != "text: still here\nend_turn" {
		t.Errorf("the next call got %q", got)
	}
}

func TestACutBreaksTheConnection(t *testing.T) {
	tests := map[string]struct {
		prompt string
		pieces int
	}{
		"at once":                   {"%%cut%% %%say abc%%", -1},
		"after a text":              {"%%say abc%% %%cut%%", 1},
		"after two":                 {"%%chunk 1%% %%cut after=2%% %%say abc%%", 2},
		"after more than there are": {"%%cut after=99%% %%say abc%%", 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := serve(t, fakemodel.Script{})
			resp, err := http.Post(s.URL+"/v1/messages", "", strings.NewReader(request(true, said(tc.prompt))))
			pieces := -1
			if err == nil {
				var b []byte
				b, err = io.ReadAll(resp.Body)
				resp.Body.Close()
				pieces = strings.Count(string(b), "text_delta")
			}
			if err == nil || pieces != tc.pieces {
				t.Errorf("%d pieces and error %v, want %d and a broken connection", pieces, err, tc.pieces)
			}
			s.eventually("counted", func(st fakemodel.Stats) bool { return st.Cut == 1 && st.Open == 0 })
		})
	}
}

func TestInterruptionsOfWholeAnswers(t *testing.T) {
	s := serve(t, fakemodel.Script{})
	if _, err := http.Post(s.URL+"/v1/messages", "", strings.NewReader(request(false, said("%%say a%% %%cut%%")))); err == nil {
		t.Error("a cut whole answer arrived")
	}
	if got, want := s.answer(said("%%say a%% %%error 500 broken%%")), "500 api_error: broken"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := s.answer(said("%%stall 1ms%% %%say a%%")), "text: a\nend_turn"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDelaysAndStallsLastAsLongAsTheySay(t *testing.T) {
	tests := map[string]struct {
		prompt string
		want   time.Duration
	}{
		"delay before each piece": {"%%delay 1s%% %%chunk 1%% %%say abcde%%", 5 * time.Second},
		"stall with a duration":   {"%%say a%% %%stall 90s%% %%say b%%", 90 * time.Second},
		"used up":                 {"%%stall 90s times=1%% %%say b%%", 90 * time.Second},
		"nothing":                 {"%%say b%%", 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakemodel.New(fakemodel.Script{}, slog.New(slog.DiscardHandler))
				for i := range 2 {
					begun := time.Now()
					w := httptest.NewRecorder()
					s.ServeHTTP(w, httptest.NewRequest("POST", "/v1/messages", strings.NewReader(request(true, said(tc.prompt)))))
					want := tc.want
					if name == "used up" && i == 1 {
						want = 0
					}
					if got := time.Since(begun); got != want || !strings.Contains(w.Body.String(), "message_stop") {
						t.Errorf("call %d took %v, want %v: %s", i, got, want, w.Body)
					}
				}
			})
		})
	}
}

func TestAReleaseDoesNotEndAStallWithADuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemodel.New(fakemodel.Script{}, nil)
		begun := time.Now()
		go func() {
			time.Sleep(time.Second)
			s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/control/release", nil))
		}()
		s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/messages", strings.NewReader(request(true, said("%%stall 10s%%")))))
		if got := time.Since(begun); got != 10*time.Second {
			t.Errorf("it lasted %v", got)
		}
	})
}

func TestRequestsAreListedWithCredentialsMasked(t *testing.T) {
	s := serve(t, fakemodel.Script{})
	req, err := http.NewRequest("POST", s.URL+"/v1beta/models/flash:generateContent?key=SECRET&alt=json", strings.NewReader(strings.Replace(bodies("hello")["gemini"].body, "STREAM", "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", "Cookie", "Proxy-Authorization"} {
		req.Header.Set(h, "SECRET")
	}
	req.Header.Set("User-Agent", "tester")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	s.post("/v1/responses", "no JSON")
	s.eventually("over", func(st fakemodel.Stats) bool { return st.Open == 0 })
	resp, err = http.Get(s.URL + "/control/requests")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text := body(t, resp.Body)
	if strings.Contains(text, "SECRET") {
		t.Errorf("a credential is told: %s", text)
	}
	var got struct{ Requests []fakemodel.Request }
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Requests) != 2 {
		t.Fatalf("%v in %s", err, text)
	}
	r := got.Requests[0]
	if ua := r.Header.Get("User-Agent"); ua != "tester" {
		t.Errorf("user agent %q", ua)
	}
	r.Time, r.Header = time.Time{}, nil
	want := fakemodel.Request{
		Method: "POST", Path: "/v1beta/models/flash:generateContent?alt=json&key=%2A%2A%2A", Format: fakemodel.Gemini, Model: "flash",
		Status: 200, End: "done", Bytes: 57, Messages: 1, Prompt: "hello",
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("request differs (-want +got):\n%s", diff)
	}
	if r := got.Requests[1]; r.Status != 400 || r.Model != "" {
		t.Errorf("the malformed one: %+v", r)
	}
	if st := s.control("reset"); st.Calls != 0 || len(st.ByStatus) != 0 {
		t.Errorf("after a reset: %+v", st)
	}
}

func TestOnlyTheLastRequestsAreKept(t *testing.T) {
	s := fakemodel.New(fakemodel.Script{}, nil)
	do := func(method, path, body string) string {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
		return w.Body.String()
	}
	for i := range 205 {
		do("POST", "/v1/messages", request(false, said(fmt.Sprintf("number %d.", i))))
	}
	list := do("GET", "/control/requests", "")
	if n := strings.Count(list, `"prompt"`); n != 200 || strings.Contains(list, "number 4.") || !strings.Contains(list, "number 204.") {
		t.Errorf("%d requests are kept, want the last 200", n)
	}
}

func TestBigPrompts(t *testing.T) {
	s := serve(t, fakemodel.Script{})
	big := strings.Repeat("All work and no play. ", 1<<20) // 22 MB
	if got, want := s.answer(said(big+"%%say read%%")), "text: read\nend_turn"; got != want {
		t.Errorf("20 MB: got %.200q, want %q", got, want)
	}
	if got := s.answer(said(big)); len(got) > 2000 || !strings.Contains(got, "has read: …") {
		t.Errorf("the default answer repeats too much: %d bytes", len(got))
	}
	got := s.answer(said(strings.Repeat("x", fakemodel.MaxRequest)))
	if want := "413 request_too_large: the request is larger than 67108864 bytes"; got != want {
		t.Errorf("above the limit: got %.200q, want %q", got, want)
	}
}

func TestConcurrentUse(t *testing.T) {
	s := serve(t, fakemodel.Script{})
	const each = 25
	var wg sync.WaitGroup
	for format := range bodies("") {
		for i := range each {
			wg.Go(func() {
				want := fmt.Sprintf("number %d of %s", i, format)
				if got := body(t, s.ask(format, "%%say "+want+"%%", false).Body); !strings.Contains(got, want) {
					t.Errorf("%s got %s", want, got)
				}
				if got := body(t, s.ask(format, "%%chunk 1000%% %%say "+want+"%%", true).Body); !strings.Contains(got, want) {
					t.Errorf("%s got %s", want, got)
				}
			})
		}
	}
	wg.Wait()
	s.eventually("over", func(st fakemodel.Stats) bool { return st.Open == 0 })
	st := s.fake.Stats()
	if st.Calls != 8*each || st.ByFormat[fakemodel.Chat] != 2*each || st.ClientAborted != 0 {
		t.Errorf("counts: %+v", st)
	}
}
