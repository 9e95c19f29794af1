package web_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/web"
)

func TestActionsReachTheSource(t *testing.T) {
	id := runID(1)
	for name, c := range map[string]struct {
		path string
		form url.Values
		want string
		to   string
	}{
		"stop":             {"/runs/" + id + "/stop", nil, "stop " + id, "/runs/" + id},
		"rerun as it was":  {"/runs/" + id + "/rerun", nil, "rerun " + id, "/runs/" + runID(1)},
		"rerun with more":  {"/runs/" + id + "/rerun", url.Values{"set.deadline": {"30m0s"}, "other": {"x"}}, "rerun " + id + " deadline=30m0s", ""},
		"delete":           {"/runs/" + id + "/delete", nil, "delete " + id, "/runs"},
		"submit":           {"/new", url.Values{"agent": {"demo"}, "prompt": {"a\r\nb"}}, "submit demo a\nb web", ""},
		"an edited repeat": {"/new", url.Values{"agent": {"demo"}, "prompt": {"again"}, "from": {id}}, "rerun " + id + " agent=demo prompt=again", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.put(running(1))
			form := url.Values{web.CSRFField: {"good"}}
			for k, v := range c.form {
				form[k] = v
			}
			w := post(open(f), c.path, form)
			if w.Code != http.StatusSeeOther {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			if diff := cmp.Diff([]string{c.want}, f.asked); diff != "" {
				t.Error(diff)
			}
			if c.to != "" && w.Header().Get("Location") != c.to {
				t.Errorf("leads to %s, want %s", w.Header().Get("Location"), c.to)
			}
		})
	}
}

func TestAFormOfAnotherSessionDoesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		h      func(*fake) http.Handler
		token  string
		header [2]string
	}{
		"without a token":        {h: open},
		"with a wrong token":     {h: open, token: "bad"},
		"from another site":      {h: open, token: "good", header: [2]string{"Sec-Fetch-Site", "cross-site"}},
		"from another origin":    {h: open, token: "good", header: [2]string{"Origin", "https://evil.example"}},
		"where nobody checks it": {h: func(f *fake) http.Handler { return web.New(f, web.Options{}) }, token: "good"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.put(running(1))
			for _, path := range []string{"/runs/" + runID(1) + "/stop", "/runs/" + runID(1) + "/rerun", "/runs/" + runID(1) + "/delete", "/new"} {
				r := httptest.NewRequest("POST", path, strings.NewReader(url.Values{web.CSRFField: {c.token}, "agent": {"demo"}}.Encode()))
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				if c.header[0] != "" {
					r.Header.Set(c.header[0], c.header[1])
				}
				w := httptest.NewRecorder()
				c.h(f).ServeHTTP(w, r)
				if w.Code != http.StatusUnauthorized {
					t.Errorf("%s: %d", path, w.Code)
				}
			}
			if len(f.asked) != 0 {
				t.Errorf("it was asked %q", f.asked)
			}
		})
	}
}

func TestReadingChangesNothing(t *testing.T) {
	f := newFake()
	f.put(running(1))
	h := open(f)
	for _, path := range []string{"/runs/" + runID(1) + "/stop", "/runs/" + runID(1) + "/rerun", "/runs/" + runID(1) + "/delete"} {
		if w := get(t, h, path); w.Code == http.StatusOK {
			t.Errorf("GET %s: %d", path, w.Code)
		}
	}
	if len(f.asked) != 0 {
		t.Errorf("it was asked %q", f.asked)
	}
}

func TestAWrongFormKeepsWhatWasTyped(t *testing.T) {
	w := post(open(newFake()), "/new", url.Values{web.CSRFField: {"good"}, "agent": {"nobody"}, "prompt": {"\nlong & winding"}})
	body := w.Body.String()
	if w.Code != http.StatusBadRequest || !strings.Contains(body, "did you mean demo?") || !strings.Contains(body, "\n\nlong &amp; winding</textarea>") {
		t.Errorf("%d %s", w.Code, body)
	}
}

func TestARunSaysWhatCanBeDone(t *testing.T) {
	f := newFake()
	deadline := tallyman.Duration(15 * 60e9)
	failed := ended(1, tallyman.DeadlineExceeded, "it had not ended after 15m0s")
	failed.Limits.Deadline = &deadline
	f.put(failed)
	f.attempts[failed.ID] = []tallyman.Attempt{{RunID: failed.ID, Number: 1, Reason: tallyman.DeadlineExceeded, StderrTail: "the last words"}}
	waiting := running(2)
	waiting.State, waiting.StartedAt = tallyman.Queued, nil
	waiting.Waiting = &tallyman.Waiting{Reason: tallyman.AgentCap, Detail: "2 of 2 running", Position: 3}
	f.put(waiting)
	f.put(running(3))
	h := open(f)
	for id, want := range map[string][]string{
		failed.ID:  {"Deadline exceeded", "It had not ended after 15m0s", "the last words", "tallyman rerun demo-1 --set deadline=30m0s", "tallyman rm demo-1", `name="csrf" value="good"`},
		waiting.ID: {"Number 3 in line", "2 of 2 running", "concurrency.max", "tallyman stop demo-2"},
		runID(3):   {"Stop <b>demo-3</b>?", "tallyman logs -f demo-3"},
	} {
		body := page(t, h, "/runs/"+id)
		for _, s := range want {
			if !strings.Contains(body, s) {
				t.Errorf("%s does not say %q", id, s)
			}
		}
	}
	if strings.Contains(page(t, h, "/runs/"+failed.ID), "/stop") || strings.Contains(page(t, h, "/runs/"+runID(3)), "/delete") {
		t.Error("something is offered that cannot be done")
	}
}

func TestDownloads(t *testing.T) {
	f := newFake()
	f.put(ended(1, tallyman.Completed, ""))
	f.say(runID(1), everyKind()...)
	f.artifacts[runID(1)] = []tallyman.Artifact{{Name: "out/a b.html", Size: 8, At: began}}
	f.files["out/a b.html"] = "<script>"
	h := open(f)
	at := "/runs/" + runID(1)

	if got := page(t, h, at+"/events/1.16?part=text"); len(got) != 4001*500 {
		t.Errorf("the whole output has %d bytes", len(got))
	}
	if got := page(t, h, at+"/events/1.9?part=input"); got != "command: ls -la" {
		t.Errorf("input %q", got)
	}
	if w := get(t, h, at+"/events/1.9?part=raw"); !strings.HasPrefix(w.Body.String(), `{"time":`) || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("raw %s", w.Body)
	}
	for _, odd := range []string{"1.999", "1.0", "x", "2.1"} {
		if w := get(t, h, at+"/events/"+odd); w.Code == http.StatusOK {
			t.Errorf("event %s: %d", odd, w.Code)
		}
	}
	raw := page(t, h, at+"/events.ndjson")
	if lines := strings.Count(raw, "\n"); lines != len(everyKind()) || !strings.HasPrefix(raw, `{"id":"1.1","time":`) {
		t.Errorf("%d raw lines, they begin %.40q", lines, raw)
	}
	if got := page(t, h, at+"/transcript.txt"); !strings.Contains(got, "▸ Bash  ls -la\n  └ 2.0s ok\n  │ a\n  │ b\n") {
		t.Errorf("transcript %s", got)
	}
	w := get(t, h, at+"/artifacts/out/a%20b.html")
	if w.Body.String() != "<script>" || w.Header().Get("Content-Type") != "application/octet-stream" ||
		w.Header().Get("Content-Disposition") != `attachment; filename="a b.html"` || !strings.Contains(w.Header().Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("artifact %v", w.Header())
	}
}
