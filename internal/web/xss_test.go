package web_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman"
)

// attacks are texts that would do something if they were taken for HTML.
var attacks = []string{
	`<script>alert(1)</script>`,
	`"><script>alert(1)</script>`,
	`'><img src=x onerror=alert(1)>`,
	`<svg/onload=alert(1)>`,
	`</pre></details></article><iframe src="javascript:alert(1)"></iframe>`,
	`<a href="javascript:alert(1)">x</a>`,
	"<div\nonclick=alert(1)>",
	`<!--><script>alert(1)</script-->`,
	`<style>*{display:none}</style>`,
	`<form action=//evil.example><button>x</button></form>`,
	`" autofocus onfocus=alert(1) x="`,
	`javascript:alert(1)`,
	"\x1b]8;;javascript:alert(1)\x07x\x1b]8;;\x07",
	`{{.Token}}`,
}

// links are Markdown whose links must not be live.
var links = []string{
	`[x](javascript:alert(1))`, `[x](JaVaScRiPt:alert(1))`, `[x](java&#115;cript:alert(1))`, "[x](java\tscript:alert(1))", `[x](<javascript:alert(1)>)`,
	`[x](data:text/html,<script>alert(1)</script>)`, `![x](data:image/svg+xml;base64,PHN2Zz4=)`, `![x](javascript:alert(1))`, `[x](vbscript:x)`, `[x](javascript://a.example/%0aalert(1))`, `<javascript://a.example/%0aalert(1)>`, `[x](data://a.example/x)`, `[x](file:///etc/passwd)`,
	`<javascript:alert(1)>`, `[x]: javascript:alert(1)` + "\n\n[x]", `[x](https://a.example/"onmouseover="alert(1))`, `[x](https://a.example 'title" onclick="alert(1)')`,
	`![alt](https://evil.example/seen.png)`, `[x](//evil.example/)`, `[x](/runs/1/stop)`, `[x](https:evil)`, "```\"><script>alert(1)</script>\nx\n```", `| <script>alert(1)</script> |` + "\n|---|\n| x |",
}

var (
	tag       = regexp.MustCompile(`<[a-zA-Z/!](?:"[^"]*"|'[^']*'|[^>"'])*>`)
	badTag    = regexp.MustCompile(`(?i)^</?(iframe|img|object|embed|style|base|meta http|math|template|body on|!--)`)
	badAttr   = regexp.MustCompile(`(?i)^<[^"'>]*(?:(?:"[^"]*"|'[^']*')[^"'>]*)*[\s/](on\w+|style|srcdoc|formaction)\s*=`)
	badTarget = regexp.MustCompile(`(?i)(?:href|src|action)\s*=\s*["']?\s*(?:javascript|data|vbscript|file):`)
	ours      = regexp.MustCompile(`^(?:<script src="/assets/app\.\w+\.js">|</script>|<form method="post" action="/runs/\w+/(?:stop|rerun|delete)"(?: class="row")?>|<form method="dialog">|<form method="post" action="/new" class="new" id="new">|<form class="filter" action="/runs" role="search">|</form>)$`)
	guarded   = regexp.MustCompile(`(?i)^</?(script|form)\b`)
	away      = regexp.MustCompile(`href="(//[^"]*|https?:[^"]*)"`)
)

// alive returns every tag that an attack may have made.
func alive(html string) (found []string) {
	for _, m := range tag.FindAllString(html, -1) {
		if badTag.MatchString(m) || badAttr.MatchString(m) || badTarget.MatchString(m) || guarded.MatchString(m) && !ours.MatchString(m) {
			found = append(found, m)
		}
	}
	return found
}

// harmless complains about those, and about links that nobody should follow.
func harmless(t *testing.T, where, html string) {
	t.Helper()
	for _, m := range alive(html) {
		t.Errorf("%s: live: %s", where, m)
	}
	for _, m := range tag.FindAllString(html, -1) {
		for _, a := range away.FindAllStringSubmatch(m, -1) {
			if !strings.HasPrefix(a[1], "https://a.example") && !strings.HasPrefix(a[1], "https://evil.example/seen.png") {
				t.Errorf("%s: leads to %s", where, a[1])
			}
		}
	}
}

func quoted(s string) json.RawMessage { return tallyman.AppendString(nil, s) }

func TestNothingThatAnAgentSaysIsLive(t *testing.T) {
	for _, a := range append(attacks, links...) {
		f := newFake()
		r := ended(1, tallyman.AgentError, a)
		r.Name, r.Agent, r.Model, r.Harness, r.Key, r.Source = a, a, a, a, a, tallyman.Source(a)
		r.Labels = map[string]string{a: a}
		f.put(r)
		f.prompts[r.ID] = a
		f.attempts[r.ID] = []tallyman.Attempt{{RunID: r.ID, Number: 1, StderrTail: a, OutputTail: a}}
		f.timeline[r.ID] = []tallyman.TimelineEntry{{At: began, Kind: a, Message: a}}
		f.artifacts[r.ID] = []tallyman.Artifact{{RunID: r.ID, Name: a, Digest: a}}
		f.agents = []tallyman.Agent{{Name: a, Description: a}}
		input := json.RawMessage(`{"command":` + string(quoted(a)) + `,` + string(quoted(a)) + `:1}`)
		for _, e := range everyKind() {
			e.Text, e.Name, e.ToolID = a, a, a
			f.say(r.ID, e)
			e.Data = input
			f.say(r.ID, e)
		}
		waiting := ended(2, tallyman.Completed, "")
		waiting.State, waiting.Result = tallyman.Queued, a
		waiting.Waiting = &tallyman.Waiting{Reason: tallyman.WaitReason(a), Detail: a}
		f.put(waiting)
		h := open(f)
		for _, path := range []string{"/runs", "/runs/" + r.ID, "/runs/" + waiting.ID, "/new?from=" + r.ID, "/runs/" + r.ID + "/events?before=1.50"} {
			harmless(t, path, page(t, h, path))
		}
		for _, e := range stream(t.Context(), h, "/runs/"+r.ID+"/live?after=") {
			if e.name == "html" || e.name == "facts" {
				harmless(t, "live "+e.name, e.data)
			}
		}
	}
}

// TestTheGuardSees is the negative control of harmless.
func TestTheGuardSees(t *testing.T) {
	for _, live := range []string{
		`<script>x</script>`, `<img src=x>`, `<p onclick="x">`, `<svg/onload=x>`, `<a href="javascript:x">`, `<a title="a" onclick=x>`, `<a href="//evil.example/">`, `<form action="//x">`, `<p style="x">`,
	} {
		var seen testing.T
		harmless(&seen, "control", live)
		if !seen.Failed() {
			t.Errorf("%s was not seen", live)
		}
	}
}

func FuzzWhatAnAgentSays(f *testing.F) {
	for _, a := range append(attacks, links...) {
		f.Add(a)
	}
	f.Fuzz(func(t *testing.T, s string) {
		src := newFake()
		src.put(ended(1, tallyman.AgentError, s))
		src.say(runID(1), tallyman.Event{Time: began, Type: tallyman.EventText, Text: s},
			tallyman.Event{Time: began, Type: tallyman.EventToolStarted, ToolID: s, Name: s, Data: json.RawMessage(`{"command":` + string(quoted(s)) + `}`)},
			tallyman.Event{Time: began, Type: tallyman.EventError, Text: s, Parent: s})
		for _, m := range alive(page(t, open(src), "/runs/"+runID(1))) {
			t.Errorf("live: %s", m)
		}
	})
}
