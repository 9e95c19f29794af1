package rest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/rest"
)

func TestListFilters(t *testing.T) {
	for query, want := range map[string]tallyman.Filter{
		"":                               {Limit: 50},
		"agent=exec&namespace=n&q=a+b":   {Limit: 50, Agent: "exec", Namespace: "n", Text: "a b"},
		"state=running":                  {Limit: 50, States: []tallyman.State{tallyman.Running}},
		"state=running,failed":           {Limit: 50, States: []tallyman.State{tallyman.Running, tallyman.Failed}},
		"state=running&state=failed":     {Limit: 50, States: []tallyman.State{tallyman.Running, tallyman.Failed}},
		"label=a%3D1&label=b%3D":         {Limit: 50, Labels: map[string]string{"a": "1", "b": ""}},
		"label=list%3D1,2&label=e%3Df=g": {Limit: 50, Labels: map[string]string{"list": "1,2", "e": "f=g"}},
		"limit=1000":                     {Limit: 1000},
	} {
		a := newAPI(t, &source{runs: some()})
		if w := a.call("GET", "/api/v1/runs?"+query, ""); w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
		if want.Labels == nil {
			want.Labels = map[string]string{}
		}
		if d := cmp.Diff(want, a.filter); d != "" {
			t.Errorf("%s (-want +got):\n%s", query, d)
		}
	}
}

func TestAWrongFilterIsRefused(t *testing.T) {
	a := newAPI(t, &source{runs: some()})
	for query, says := range map[string]string{
		"state=runing":         `state "runing" does not exist; known are queued, starting, running, suspended`,
		"state=running,dead":   `state "dead" does not exist`,
		"label=a":              `label "a": write it KEY=VALUE`,
		"label=a%3D1&label=b":  `label "b": write it KEY=VALUE`,
		"cursor=that":          `cursor "that" is none`,
		"limit=-1":             `validation failed`,
		"sate=failed":          `validation failed`,
		"state=%zz":            `the query cannot be read`,
		"state=failed;limit=1": `the query cannot be read`,
		"limit=99999999999999": `validation failed`,
	} {
		if p := problem(t, a.call("GET", "/api/v1/runs?"+query, ""), 400); !strings.Contains(p.Detail, says) {
			t.Errorf("%s: %s", query, p.Detail)
		}
	}
}

func TestPagesTogetherAreTheList(t *testing.T) {
	a := newAPI(t, &source{runs: some()})
	var ids []string
	for cursor, pages := "", 0; ; pages++ {
		p := answer[rest.Page](t, a.call("GET", "/api/v1/runs?limit=2&cursor="+cursor, ""), 200)
		for _, r := range p.Items {
			ids = append(ids, r.Name)
		}
		if cursor = p.Next; cursor == "" {
			if pages != 1 {
				t.Errorf("%d pages more", pages)
			}
			break
		}
	}
	if d := cmp.Diff([]string{"exec-c", "exec-b", "exec-a"}, ids); d != "" {
		t.Error(d)
	}
}

func TestEmptyListsAreLists(t *testing.T) {
	a := newAPI(t, &source{})
	if got := strings.TrimSpace(a.call("GET", "/api/v1/runs", "").Body.String()); got != `{"items":[],"next":""}` {
		t.Errorf("runs: %s", got)
	}
	a.runs = some()
	for _, path := range []string{"/api/v1/agents", "/api/v1/runs/exec-a/attempts", "/api/v1/runs/exec-a/timeline", "/api/v1/runs/exec-a/artifacts"} {
		if got := strings.TrimSpace(a.call("GET", path, "").Body.String()); got != `{"items":[]}` {
			t.Errorf("%s: %s", path, got)
		}
	}
}

func TestSubmit(t *testing.T) {
	a := newAPI(t, &source{})
	first := answer[tallyman.Run](t, a.call("POST", "/api/v1/runs", `{"agent":"exec"}`, header("Idempotency-Key", "k")), 201)
	again := answer[tallyman.Run](t, a.call("POST", "/api/v1/runs", `{"agent":"exec","key":"k"}`, header("Idempotency-Key", "k")), 200)
	problem(t, a.call("POST", "/api/v1/runs", `{"agent":"exec","key":"other"}`, header("Idempotency-Key", "k")), 400)
	if first.ID == "" || again.ID != first.ID || again.Key != "k" {
		t.Errorf("%q, then %q with key %q", first.ID, again.ID, again.Key)
	}
	if got := answer[tallyman.Run](t, a.call("POST", "/api/v1/runs", `{"agent":"exec","key":"k"}`), 200); got.ID != first.ID {
		t.Errorf("by the key in the body: %q", got.ID)
	}
	if got := answer[tallyman.Run](t, a.call("POST", "/api/v1/runs", `{"agent":"exec"}`), 201); got.ID == first.ID {
		t.Error("without a key it is the same run")
	}
	a.err = tallyman.Errorf(tallyman.Conflict, "the key has brought another request")
	problem(t, a.call("POST", "/api/v1/runs", `{"agent":"other"}`, header("Idempotency-Key", "k")), 409)
}

func TestWhatOnlyTheOwnerMayAskFor(t *testing.T) {
	for name, c := range map[string]struct {
		body    string
		says    string // to a caller by token; "": taken from both
		asOwner int
	}{
		"an agent of the caller's":   {`{"agent":"x","inline":{"name":"x","spec":{"harness":"exec"}}}`, "inline: an agent comes with a submit over the socket only", 201},
		"a folder":                   {`{"agent":"x","workspace":"/srv/work"}`, "workspace /srv/work: a folder of the server's machine", 201},
		"a folder, in the long form": {`{"agent":"x","workspace":{"path":"/srv/work","keep":true}}`, "workspace /srv/work: a folder of the server's machine", 201},
		"a fresh workspace":          {`{"agent":"x","workspace":"fresh"}`, "", 201},
		"a repository":               {`{"agent":"x","workspace":"git:https://example.org/r#main"}`, "", 201},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, &source{})
			w := a.call("POST", "/api/v1/runs", c.body)
			switch {
			case c.says == "" && w.Code != 201:
				t.Errorf("by token: %d %s", w.Code, w.Body)
			case c.says != "":
				if p := problem(t, w, 400); p.Code != tallyman.Invalid || !strings.Contains(p.Detail, c.says) || len(a.asked) > 0 {
					t.Errorf("by token: %+v, submitted %d", p, len(a.asked))
				}
			}
			if w := a.call("POST", "/api/v1/runs", c.body, owner); w.Code != c.asOwner {
				t.Errorf("the owner gets %d %s", w.Code, w.Body)
			}
		})
	}
}

func TestTheSourceOfARunIsNotTheCallersToSay(t *testing.T) {
	a := newAPI(t, &source{})
	a.call("POST", "/api/v1/runs", `{"agent":"x","source":"cli"}`)
	a.call("POST", "/api/v1/runs", `{"agent":"x"}`)
	a.call("POST", "/api/v1/runs", `{"agent":"x","source":"cli"}`, owner)
	for i, want := range []tallyman.Source{tallyman.SourceAPI, tallyman.SourceAPI, tallyman.SourceCLI} {
		if got := a.asked[i].Source; got != want {
			t.Errorf("%d: %q, want %q", i, got, want)
		}
	}
}

func TestStopRerunDelete(t *testing.T) {
	a := newAPI(t, &source{runs: some()})
	if run := answer[tallyman.Run](t, a.call("POST", "/api/v1/runs/exec-c/stop", ""), 200); run.Name != "exec-c" || a.by != "the API" {
		t.Errorf("stopped %q by %q", run.Name, a.by)
	}
	if a.call("POST", "/api/v1/runs/exec-c/stop", "", owner); a.by != "the command line" {
		t.Errorf("stopped by %q", a.by)
	}
	answer[tallyman.Run](t, a.call("POST", "/api/v1/runs/exec-a/rerun", `{"set":{"model":"m","label.x":"y"}}`), 201)
	if d := cmp.Diff(map[string]string{"model": "m", "label.x": "y"}, a.set); d != "" || a.from != tallyman.SourceAPI {
		t.Errorf("from %q: %s", a.from, d)
	}
	answer[tallyman.Run](t, a.call("POST", "/api/v1/runs/exec-a/rerun", `{}`, owner), 201)
	if a.set != nil || a.from != tallyman.SourceCLI {
		t.Errorf("from %q with %v", a.from, a.set)
	}
	if w := a.call("DELETE", "/api/v1/runs/exec-a", ""); w.Code != 204 || w.Body.Len() > 0 {
		t.Errorf("delete: %d %q", w.Code, w.Body)
	}
	for _, c := range [][3]string{{"POST", "/stop", ""}, {"POST", "/rerun", "{}"}, {"DELETE", "", ""}, {"GET", "", ""}, {"GET", "/attempts", ""}, {"GET", "/timeline", ""}, {"GET", "/artifacts", ""}, {"GET", "/prompt", ""}, {"GET", "/events", ""}, {"GET", "/artifact?name=x", ""}} {
		if p := problem(t, a.call(c[0], "/api/v1/runs/nobody"+c[1], c[2]), 404); p.Code != tallyman.NotFound || p.Detail != `there is no run "nobody"` {
			t.Errorf("%s %s: %+v", c[0], c[1], p)
		}
	}
}

func TestAPreviewCreatesNothing(t *testing.T) {
	src := &source{}
	a := newAPI(t, src)
	got := answer[map[string]string](t, a.call("POST", "/api/v1/preview", `{"agent":"demo","prompt":"hi"}`), 200)
	if got["kind"] != "Job" || len(src.asked) != 1 || src.asked[0].Agent != "demo" || len(src.keys) != 0 {
		t.Errorf("got %v, asked %+v", got, src.asked)
	}
	for _, body := range []string{`{"agent":"demo","promt":"hi"}`, `{"agent":"demo","workspace":{"path":"/etc"}}`} {
		problem(t, a.call("POST", "/api/v1/preview", body), 400)
	}
}

func TestPruneAndInfo(t *testing.T) {
	a := newAPI(t, &source{})
	got := answer[tallyman.PruneResult](t, a.call("POST", "/api/v1/prune", `{"age":"720h","dry_run":true}`), 200)
	if (got != tallyman.PruneResult{Runs: 3, Blobs: 2, Bytes: 1}) || (a.pruned != tallyman.PruneRequest{Age: tallyman.Duration(720 * time.Hour), DryRun: true}) {
		t.Errorf("asked %+v, got %+v", a.pruned, got)
	}
	if i := answer[tallyman.Info](t, a.call("GET", "/api/v1/info", ""), 200); i.Version != "v9" || i.MaxRunning != 4 {
		t.Errorf("info %+v", i)
	}
	link := answer[struct{ URL string }](t, a.call("POST", "/api/v1/login-link", ""), 200)
	if code, ok := strings.CutPrefix(link.URL, "http://127.0.0.1:7333/login?code="); !ok || len(code) < 26 {
		t.Errorf("link %q", link.URL)
	}
}
