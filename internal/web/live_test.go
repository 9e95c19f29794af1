package web_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tallyman-dev/tallyman"
)

var articleID = regexp.MustCompile(`<article [^>]*id="e(\d+\.\d+)"`)

func articles(events []sse) (ids []string) {
	for _, e := range events {
		if e.name != "html" {
			continue
		}
		for _, m := range articleID.FindAllStringSubmatch(e.data, -1) {
			ids = append(ids, m[1])
		}
	}
	return ids
}

func names(events []sse) (out []string) {
	for _, e := range events {
		if len(out) == 0 || out[len(out)-1] != e.name {
			out = append(out, e.name)
		}
	}
	return out
}

func TestResumingGivesExactlyTheRest(t *testing.T) {
	f := newFake()
	f.put(ended(1, tallyman.Completed, ""))
	f.say(runID(1), texts(3000)...)
	h := open(f)
	for _, at := range []int{0, 1, 1500, 2999, 3000} {
		var want []string
		for n := at + 1; n <= 3000; n++ {
			want = append(want, fmt.Sprintf("1.%d", n))
		}
		after := fmt.Sprintf("1.%d", at)
		got := stream(t.Context(), h, "/runs/"+runID(1)+"/live?after="+after)
		if diff := cmp.Diff(want, articles(got)); diff != "" {
			t.Errorf("after %s: %s", after, diff)
		}
		if got[len(got)-1].name != "end" {
			t.Errorf("after %s it ends with %q", after, got[len(got)-1].name)
		}
		// A reconnecting browser names the last event that it has seen.
		again := stream(t.Context(), h, "/runs/"+runID(1)+"/live?after=1.1", "Last-Event-ID", after)
		if diff := cmp.Diff(want, articles(again)); diff != "" {
			t.Errorf("Last-Event-ID %s: %s", after, diff)
		}
	}
}

func TestAStreamBrokenAnywhereLosesNothing(t *testing.T) {
	f := newFake()
	f.put(ended(1, tallyman.Completed, ""))
	f.say(runID(1), texts(700)...)
	h := open(f)
	whole := stream(t.Context(), h, "/runs/"+runID(1)+"/live?after=0.0")
	for i, e := range whole {
		if e.id == "" {
			continue
		}
		seen := articles(whole[:i+1])
		rest := articles(stream(t.Context(), h, "/runs/"+runID(1)+"/live?after="+e.id))
		if diff := cmp.Diff(articles(whole), append(seen, rest...)); diff != "" {
			t.Errorf("broken after %s: %s", e.id, diff)
		}
	}
}

func TestACallThatEndsAfterResumingBringsItsItemUpToDate(t *testing.T) {
	f := newFake()
	f.put(ended(1, tallyman.Completed, ""))
	f.say(runID(1),
		tallyman.Event{Time: began, Type: tallyman.EventToolStarted, ToolID: "a", Name: "Agent"},
		tallyman.Event{Time: began, Type: tallyman.EventText, Parent: "a", Text: "inside"},
		tallyman.Event{Time: began.Add(time.Second), Type: tallyman.EventToolFinished, ToolID: "a", Text: "found"},
	)
	got := stream(t.Context(), open(f), "/runs/"+runID(1)+"/live?after=1.1")
	if diff := cmp.Diff([]string{"1.2", "1.1"}, articles(got)); diff != "" {
		t.Error(diff)
	}
	for _, e := range got {
		if e.name == "html" && (!strings.Contains(e.data, `data-in="e1.1"`) || !strings.Contains(e.data, `<span id="e1.3">`) || !strings.Contains(e.data, ">ok</span>")) {
			t.Errorf("fragment %s", e.data)
		}
	}
}

func TestAFollowerSeesLiveTextEventsAndTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put(running(1))
		f.say(runID(1), texts(1)...)
		go func() {
			time.Sleep(time.Second)
			f.whisper(runID(1), `{"delta":"hel","type":"text","block":"0"}`)
			f.whisper(runID(1), `{"delta":"lo","type":"text","block":"0"}`)
			time.Sleep(time.Second)
			f.say(runID(1), tallyman.Event{Time: began, Type: tallyman.EventText, Text: "hello"})
			time.Sleep(time.Second)
			f.put(ended(1, tallyman.Completed, ""))
		}()
		got := stream(t.Context(), open(f), "/runs/"+runID(1)+"/live?after=1.1")
		if diff := cmp.Diff([]string{"facts", "delta", "html", "facts", "end"}, names(got)); diff != "" {
			t.Fatal(diff)
		}
		if got[1].data != `{"text":"hello","type":"text","in":"","block":"0"}` || got[2].id != "1.2" {
			t.Errorf("delta %s, html's id %s", got[1].data, got[2].id)
		}
		if !strings.Contains(got[len(got)-2].data, "s-succeeded") {
			t.Errorf("the last facts are %s", got[len(got)-2].data)
		}
	})
}

func TestOnlyFactsThatChangeAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put(running(1))
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		go func() {
			time.Sleep(20 * time.Second)
			r := running(1)
			r.Usage.InputTokens = 1204
			f.put(r)
		}()
		got := stream(ctx, open(f), "/runs/"+runID(1)+"/live?after=")
		if diff := cmp.Diff([]string{"facts", "heartbeat", "facts", "heartbeat"}, names(got)); diff != "" {
			t.Fatal(diff)
		}
		if s := got[2].data; strings.Count(s, "<section") != 1 || !strings.Contains(s, "1,204") {
			t.Errorf("changed facts: %s", s)
		}
	})
}

func TestAListThatIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put(running(1))
		f.put(running(2))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		go func() {
			time.Sleep(3 * time.Second)
			f.put(running(3))
			time.Sleep(3 * time.Second)
			f.put(ended(1, tallyman.Completed, ""))
			time.Sleep(3 * time.Second)
			_ = f.Delete(ctx, runID(2))
		}()
		got := stream(ctx, open(f), "/runs/live?state=running")
		var rows []string
		for _, e := range got {
			switch e.name {
			case "rows":
				for _, m := range regexp.MustCompile(`id="r-\w+?(\d)".*?s-(\w+)`).FindAllStringSubmatch(e.data, -1) {
					rows = append(rows, m[1]+" "+m[2])
				}
			case "gone":
				rows = append(rows, "gone "+e.data[len(e.data)-1:])
			}
		}
		want := []string{"2 running", "1 running", "3 running", "1 succeeded", "gone 2"}
		if diff := cmp.Diff(want, rows); diff != "" {
			t.Error(diff)
		}
	})
}

func TestACarriageReturnCannotEndAFrame(t *testing.T) {
	f := newFake()
	f.put(ended(1, tallyman.Completed, ""))
	f.timeline[runID(1)] = []tallyman.TimelineEntry{{At: began, Message: "bad\r\rid: 9.9\revent: end\rdata: x\r\r"}}
	w := get(t, open(f), "/runs/"+runID(1)+"/live?after=")
	if body := w.Body.String(); strings.Contains(body, "\r") || !strings.Contains(body, "data: id: 9.9\n") {
		t.Errorf("stream %q", body)
	}
}

func TestACallThatNeverEndsIsToldSo(t *testing.T) {
	f := newFake()
	f.put(ended(1, tallyman.RunnerLost, ""))
	f.say(runID(1),
		tallyman.Event{Time: began, Type: tallyman.EventToolStarted, ToolID: "a", Name: "Bash"},
		tallyman.Event{Time: began, Type: tallyman.EventRunnerEnded, Data: []byte(`{"reason":"IdleTimeout"}`)},
	)
	got := stream(t.Context(), open(f), "/runs/"+runID(1)+"/live?after=1.1")
	if diff := cmp.Diff([]string{"1.1", "1.2"}, articles(got)); diff != "" {
		t.Error(diff)
	}
}
