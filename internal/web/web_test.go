package web_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/web"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// open is a dashboard whose forms carry the token "good".
func open(f *fake) http.Handler {
	return web.New(f, web.Options{
		Version: "1.2.3",
		Token:   func(*http.Request) string { return "good" },
		Check: func(r *http.Request) error {
			if r.PostFormValue(web.CSRFField) != "good" {
				return tallyman.Errorf(tallyman.Unauthorized, "no token")
			}
			return nil
		},
	})
}

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

func page(t *testing.T, h http.Handler, path string) string {
	t.Helper()
	w := get(t, h, path)
	if w.Code != http.StatusOK {
		t.Fatalf("GET %s: %d\n%s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

func post(h http.Handler, path string, form url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func running(n int) tallyman.Run {
	id := runID(n)
	return tallyman.Run{ID: id, Name: fmt.Sprintf("demo-%d", n), Agent: "demo", Harness: "script", State: tallyman.Running, Attempt: 1, CreatedAt: began, StartedAt: &began}
}

func ended(n int, reason tallyman.Reason, message string) tallyman.Run {
	r, end := running(n), began.Add(83*time.Second)
	r.State, r.Reason, r.Message, r.EndedAt = reason.State(), reason, message, &end
	return r
}

func texts(n int) []tallyman.Event {
	events := make([]tallyman.Event, n)
	for i := range events {
		events[i] = tallyman.Event{Time: began, Type: tallyman.EventText, Text: fmt.Sprintf("text number %d", i+1)}
	}
	return events
}

func TestTheListWithNothingOneAndTenThousandRuns(t *testing.T) {
	for _, c := range []struct {
		runs, rows int
		has        string
	}{
		{0, 0, "tallyman run demo &#34;say hello&#34;"},
		{1, 1, `<a href="/runs/` + runID(0) + `">demo-0</a>`},
		{10000, 100, `rel="next"`},
	} {
		t.Run(fmt.Sprint(c.runs), func(t *testing.T) {
			f := newFake()
			for n := range c.runs {
				f.runs = append(f.runs, ended(n, tallyman.Completed, ""))
			}
			body := page(t, open(f), "/runs")
			if got := strings.Count(body, `<tr id="r-`); got != c.rows {
				t.Errorf("%d rows, want %d", got, c.rows)
			}
			if !strings.Contains(body, c.has) {
				t.Errorf("no %q in\n%s", c.has, body)
			}
			if len(body) > 150_000 {
				t.Errorf("the page has %d bytes", len(body))
			}
		})
	}
}

var nextLink = regexp.MustCompile(`<a href="([^"]+)" rel="next">`)

func TestOlderPagesGiveEveryRunOnce(t *testing.T) {
	f := newFake()
	for n := range 250 {
		f.runs = append(f.runs, ended(n, tallyman.Completed, ""))
	}
	h := open(f)
	seen := map[string]int{}
	for path := "/runs"; path != ""; {
		body := page(t, h, path)
		for _, m := range regexp.MustCompile(`<tr id="r-(\w+)"`).FindAllStringSubmatch(body, -1) {
			seen[m[1]]++
		}
		path = ""
		if m := nextLink.FindStringSubmatch(body); m != nil {
			path = strings.ReplaceAll(m[1], "&amp;", "&")
		}
	}
	if len(seen) != 250 {
		t.Errorf("%d runs, want 250", len(seen))
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("run %s is there %d times", id, n)
		}
	}
}

func TestTheListIsFiltered(t *testing.T) {
	f := newFake()
	f.put(ended(1, tallyman.Completed, ""))
	f.put(ended(2, tallyman.MaxTurns, "10 turns were not enough"))
	f.put(running(3))
	h := open(f)
	for path, want := range map[string][]string{
		"/runs?state=failed":               {"demo-2"},
		"/runs?state=failed&state=running": {"demo-3", "demo-2"},
		"/runs?q=demo-1":                   {"demo-1"},
		"/runs?agent=claude":               nil,
	} {
		var got []string
		for _, m := range regexp.MustCompile(`<td class="nm"><a [^>]+>([^<]+)`).FindAllStringSubmatch(page(t, h, path), -1) {
			got = append(got, m[1])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
	if !strings.Contains(page(t, h, "/runs"), "Max turns: 10 turns were not enough") {
		t.Error("the list does not say why a run failed")
	}
	if w := get(t, h, "/runs?state=odd"); w.Code != http.StatusBadRequest {
		t.Errorf("a state that does not exist: %d", w.Code)
	}
}

func TestNamespacesAreToldApart(t *testing.T) {
	f := newFake()
	f.agents = append(f.agents, tallyman.Agent{Namespace: "team", Name: "hello"}, tallyman.Agent{Namespace: "team", Name: "demo"})
	for i := range f.agents[:2] {
		f.agents[i].Namespace = tallyman.DefaultNamespace
	}
	put := func(n int, namespace string) {
		r := ended(n, tallyman.Completed, "")
		r.Namespace = namespace
		f.put(r)
	}
	put(1, tallyman.DefaultNamespace)
	put(2, "team")
	h := open(f)
	for path, want := range map[string][]string{
		"/runs":                           {"demo-2", "demo-1"},
		"/runs?agent=demo":                {"demo-2", "demo-1"},
		"/runs?agent=team/demo":           {"demo-2"},
		"/runs?agent=default/demo":        {"demo-1"},
		"/runs?agent=team/":               {"demo-2"},
		"/runs?namespace=team":            {"demo-2"},
		"/runs?namespace=team&agent=demo": {"demo-2"},
		"/runs?namespace=other":           nil,
	} {
		body := page(t, h, path)
		var got []string
		for _, m := range regexp.MustCompile(`<td class="nm"><a [^>]+>([^<]+)`).FindAllStringSubmatch(body, -1) {
			got = append(got, m[1])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
		if count := fmt.Sprintf("all <b>%d</b>", len(want)); !strings.Contains(body, count) {
			t.Errorf("%s does not say %q", path, count)
		}
	}
	body := page(t, h, "/runs?agent=team/demo")
	for _, want := range []string{
		`<option value="team/demo" selected>team/demo</option>`, `<option value="default/demo">demo</option>`,
		`<option value="team/">all of team</option>`, `<td class="ag">team/demo</td>`, `/runs/live?agent=team%2Fdemo`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the list has no %s:\n%s", want, body)
		}
	}
	if body := page(t, h, "/new?from="+runID(2)); !strings.Contains(body, `<option value="team/demo" selected>`) || !strings.Contains(body, `<option value="team/hello">`) {
		t.Errorf("the form:\n%s", body)
	}
}

func TestARunThatStartsSaysWhatItWaitsFor(t *testing.T) {
	f := newFake()
	r := running(1)
	r.State, r.StartedAt = tallyman.Starting, nil
	r.Waiting = &tallyman.Waiting{Reason: tallyman.PodPending, Detail: "0/1 nodes are available."}
	f.put(r)
	h := open(f)
	for path, want := range map[string]string{"/runs": "Waits: 0/1 nodes are available", "/runs/" + r.ID: "The cluster has not started its agent: 0/1 nodes are available.</p>"} {
		if body := page(t, h, path); !strings.Contains(body, want) {
			t.Errorf("%s does not say %q:\n%s", path, want, body)
		}
	}
}

func TestEveryPageIsGuarded(t *testing.T) {
	f := newFake()
	f.put(running(1))
	h := open(f)
	for _, path := range []string{"/runs", "/runs/" + runID(1), "/new", "/nowhere"} {
		head := get(t, h, path).Header()
		if csp := head.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'self'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", path, csp)
		}
		if head.Get("Cache-Control") != "no-store" || head.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: headers %v", path, head)
		}
		body := get(t, h, path).Body.String()
		if regexp.MustCompile(`(?i)<[a-z][^>]*\s(style|on\w+)\s*=|<style|<script(?: [^>]*)?>[^<]`).MatchString(body) {
			t.Errorf("%s has something inline", path)
		}
	}
}

func TestAssetsAreKeptForEver(t *testing.T) {
	h := open(newFake())
	found := regexp.MustCompile(`/assets/[\w.]+`).FindAllString(page(t, h, "/runs"), -1)
	if len(found) != 3 {
		t.Fatalf("assets %v", found)
	}
	for _, path := range found {
		w := get(t, h, path)
		if w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d, %s", path, w.Code, w.Header().Get("Cache-Control"))
		}
	}
	if w := get(t, h, "/assets/app.css"); w.Code != http.StatusNotFound {
		t.Errorf("an asset without its hash: %d", w.Code)
	}
}

func TestAPageFitsIntoTwoHundredKilobytes(t *testing.T) {
	f := newFake()
	f.put(running(1))
	var events []tallyman.Event
	for i := range 700 {
		id := fmt.Sprint(i)
		events = append(events, tallyman.Event{Time: began, Type: tallyman.EventToolStarted, ToolID: id, Name: "Bash", Data: []byte(`{"command":"make"}`)},
			tallyman.Event{Time: began, Type: tallyman.EventToolFinished, ToolID: id, Text: strings.Repeat("a line of output\n", 5000)})
	}
	f.say(runID(1), events...)
	h := open(f)
	body := page(t, h, "/runs/"+runID(1))
	size := len(body)
	for _, path := range regexp.MustCompile(`/assets/[\w.]+`).FindAllString(body, -1) {
		size += get(t, h, path).Body.Len()
	}
	if size > 200_000 {
		t.Errorf("%d bytes with all it loads", size)
	}
	if !strings.Contains(body, "load earlier") || !strings.Contains(body, "show all (85.0 kB)") {
		t.Error("what was left out is not offered")
	}
}

func TestEverythingLivesUnderItsPrefix(t *testing.T) {
	f := newFake()
	f.put(running(1))
	h := web.New(f, web.Options{BasePath: "/tally"})
	body := page(t, h, "/tally/runs/"+runID(1))
	for _, m := range regexp.MustCompile(`(?:href|src|action|data-live|data-url)="(/[^"]*)"`).FindAllStringSubmatch(body, -1) {
		if !strings.HasPrefix(m[1], "/tally/") {
			t.Errorf("%s is outside", m[0])
		}
	}
	if w := get(t, h, "/tally/"); w.Header().Get("Location") != "/tally/runs" {
		t.Errorf("home leads to %q", w.Header().Get("Location"))
	}
	if w := get(t, h, "/runs"); w.Code != http.StatusNotFound {
		t.Errorf("without the prefix: %d", w.Code)
	}
}

func TestErrorsAreTold(t *testing.T) {
	f := newFake()
	h := open(f)
	if w := get(t, h, "/runs/nobody"); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "no run &#34;nobody&#34;") {
		t.Errorf("an unknown run: %d %s", w.Code, w.Body)
	}
	f.fail = tallyman.Errorf(tallyman.Unauthorized, "log in first")
	if w := get(t, h, "/runs"); w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), `tallyman config --login-link`) {
		t.Errorf("without a session: %d", w.Code)
	}
	f.fail = fmt.Errorf("open /secret/path: no such file")
	if w := get(t, h, "/runs"); w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("an internal error: %d %s", w.Code, w.Body)
	}
}

// sse is one server-sent event.
type sse struct{ id, name, data string }

func parseStream(body string) []sse {
	var events []sse
	var e sse
	var data []string
	lines := bufio.NewScanner(strings.NewReader(body))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "id":
			e.id = value
		case "event", "event:":
			e.name = value
		case "data", "data:":
			data = append(data, value)
		case "":
			if lines.Text() == ": here" {
				events = append(events, sse{name: "heartbeat"})
			} else if e.name != "" {
				e.data = strings.Join(data, "\n")
				events = append(events, e)
			}
			e, data = sse{}, nil
		}
	}
	return events
}

// stream follows a path until it ends or ctx does.
func stream(ctx context.Context, h http.Handler, path string, header ...string) []sse {
	r := httptest.NewRequestWithContext(ctx, "GET", path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return parseStream(w.Body.String())
}
