package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/client"
)

// script are the lines of a run with n events.
func script(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`{"id":"%d.%d","type":"text","text":"é%d"}`, 1+i/4, 1+i%4, i))
	}
	return all
}

// rest are the lines after the one that a caller has.
func rest(all []string, r *http.Request) []string {
	after := r.URL.Query().Get("after")
	if after == "" {
		return all
	}
	i := slices.IndexFunc(all, func(l string) bool { return strings.HasPrefix(l, `{"id":"`+after+`"`) })
	return all[i+1:]
}

func say(w http.ResponseWriter, s string) {
	_, _ = io.WriteString(w, s)
	w.(http.Flusher).Flush()
}

// read reads all events of a run.
func read(c *client.Client, ctx context.Context, o client.EventOptions) ([]string, error) {
	var got []string
	err := c.Events(ctx, "x", o, func(line []byte) error {
		got = append(got, string(line))
		return nil
	})
	return got, err
}

func TestEventsGoOnAfterACut(t *testing.T) {
	all := script(8)
	for name, cut := range map[string]func(w http.ResponseWriter, next string){
		"between two lines":       func(http.ResponseWriter, string) {},
		"after the line's end":    func(http.ResponseWriter, string) { panic(http.ErrAbortHandler) },
		"within a line":           func(w http.ResponseWriter, next string) { say(w, next[:len(next)/2]); panic(http.ErrAbortHandler) },
		"within a letter":         func(w http.ResponseWriter, next string) { say(w, next[:strings.Index(next, "é")+1]) },
		"before a line's newline": func(w http.ResponseWriter, next string) { say(w, next) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				if q := r.URL.Query(); q.Get("follow") != "true" || q.Get("deltas") != "" {
					t.Errorf("asked %s", r.URL)
				}
				left := rest(all, r)
				if len(left) == 0 {
					say(w, `{"end":true}`+"\n")
					return
				}
				say(w, left[0]+"\n")
				next := `{"end":true}`
				if len(left) > 1 {
					next = left[1]
				} else if strings.Contains(name, "letter") {
					return
				}
				cut(w, next)
			})
			lost := 0
			got, err := read(c, t.Context(), client.EventOptions{Follow: true, Lost: func(err error) error {
				lost++
				if err == nil {
					t.Error("lost without an error")
				}
				return nil
			}})
			if d := cmp.Diff(all, got); d != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, d)
			}
			if lost != 8 || calls.Load() != 9 {
				t.Errorf("lost %d times in %d calls", lost, calls.Load())
			}
		})
	}
}

func TestWhatAReaderHasItDoesNotGetAgain(t *testing.T) {
	all := script(6)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		say(w, strings.Join(append(rest(all, r), `{"end":true}`), "\n")+"\n")
	})
	if got, err := read(c, t.Context(), client.EventOptions{After: "1.4"}); err != nil || !slices.Equal(got, all[4:]) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestAServerThatIsAwayIsWaitedFor(t *testing.T) {
	all := script(2)
	var calls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch calls.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			say(w, `{"error":"the server is ending","code":"unavailable"}`+"\n")
		default:
			say(w, strings.Join(append(rest(all, r), `{"end":true}`), "\n")+"\n")
		}
	})
	var lost []string
	got, err := read(c, t.Context(), client.EventOptions{Lost: func(err error) error { lost = append(lost, err.Error()); return nil }})
	if err != nil || !slices.Equal(got, all) || len(lost) != 2 || lost[1] != "the server is ending" {
		t.Errorf("got %q, %v; lost %q", got, err, lost)
	}
}

func TestALostConnectionMayEndTheReading(t *testing.T) {
	c, err := client.New(closed(t), "")
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	lost := 0
	_, err = read(c, t.Context(), client.EventOptions{Lost: func(err error) error {
		if lost++; tallyman.CodeOf(err) != tallyman.Unavailable {
			t.Errorf("lost: %v", err)
		}
		if lost == 2 {
			return enough
		}
		return nil
	}})
	if !errors.Is(err, enough) || lost != 2 {
		t.Errorf("after %d: %v", lost, err)
	}
}

func TestACallerThatLeavesIsNotHeld(t *testing.T) {
	c, err := client.New(closed(t), "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	lost := func(error) error { cancel(); return nil }
	if _, err := read(c, ctx, client.EventOptions{Lost: lost}); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for a server: %v", err)
	}

	ctx, cancel = context.WithCancel(t.Context())
	c = serve(t, func(w http.ResponseWriter, r *http.Request) {
		say(w, script(1)[0]+"\n")
		<-r.Context().Done()
	})
	err = c.Events(ctx, "x", client.EventOptions{Follow: true}, func([]byte) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("following: %v", err)
	}
}

func TestTheReadersErrorEndsTheReading(t *testing.T) {
	full := errors.New("no space")
	calls := 0
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { calls++; say(w, strings.Join(script(3), "\n")+"\n") })
	err := c.Events(t.Context(), "x", client.EventOptions{}, func([]byte) error { return full })
	if !errors.Is(err, full) || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func TestWhyTheRestDoesNotCome(t *testing.T) {
	for line, c := range map[string]struct {
		code tallyman.Code
		says string
	}{
		`{"error":"3 events are \"missing\"","code":"internal"}`: {tallyman.Internal, `3 events are "missing"`},
		`{"error":"the run was removed","code":"not_found"}`:     {tallyman.NotFound, "the run was removed"},
		`{"error":"an older server's"}`:                          {tallyman.Internal, "an older server's"},
	} {
		cl := serve(t, func(w http.ResponseWriter, _ *http.Request) { say(w, script(1)[0]+"\n"+line+"\n") })
		got, err := read(cl, t.Context(), client.EventOptions{})
		if len(got) != 1 || tallyman.CodeOf(err) != c.code || err.Error() != c.says {
			t.Errorf("%s: %q, %v", line, got, err)
		}
	}
	cl := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	if _, err := read(cl, t.Context(), client.EventOptions{}); tallyman.CodeOf(err) != tallyman.NotFound {
		t.Errorf("no such run: %v", err)
	}
}

func TestLinesMayBeLong(t *testing.T) {
	var all []string
	for i, size := range []int{10, 256<<10 - 60, 256 << 10, 256<<10 + 1, 2 << 20, 10} {
		all = append(all, fmt.Sprintf(`{"id":"1.%d","text":"%s"}`, i+1, strings.Repeat("x", size)))
	}
	var first atomic.Bool
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		left := rest(all, r)
		if len(left) == 2 && first.CompareAndSwap(false, true) {
			say(w, left[0][:1<<20]) // it is cut within the longest, and comes whole after that
			panic(http.ErrAbortHandler)
		}
		if len(left) > 2 {
			say(w, strings.Join(left[:len(left)-2], "\n")+"\n")
			return
		}
		say(w, strings.Join(append(left, `{"end":true}`), "\n")+"\n")
	})
	got, err := read(c, t.Context(), client.EventOptions{Follow: true})
	if err != nil || !slices.Equal(got, all) {
		t.Errorf("%d lines of %d, %v", len(got), len(all), err)
	}
	if !first.Load() {
		t.Error("the long line was never cut")
	}
}

func TestDeltasAreShownAndNotResumed(t *testing.T) {
	delta := tallyman.Provisional + `"x","type":"text"}`
	after := make(chan string, 2)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		after <- r.URL.Query().Get("after") + " " + r.URL.Query().Get("deltas")
		if len(after) == 1 {
			say(w, script(1)[0]+"\n"+delta+"\n")
			return
		}
		say(w, delta+"\n"+`{"end":true}`+"\n")
	})
	got, err := read(c, t.Context(), client.EventOptions{Follow: true, Deltas: true})
	if want := []string{script(1)[0], delta, delta}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
	if a, b := <-after, <-after; a != " true" || b != "1.1 true" {
		t.Errorf("asked after %q, then %q", a, b)
	}
}
