package rest_test

import (
	"mime"
	"net/url"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman"
)

const helloDigest = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"

func TestArtifactsAreFilesToKeepNeverPages(t *testing.T) {
	for name, base := range map[string]string{
		"report.html":           "report.html",
		"out/deep/x.svg":        "x.svg",
		"with space.txt":        "with space.txt",
		`q"uote\.txt`:           `q"uote\.txt`,
		"ümläut € 漢.txt":        "ümläut € 漢.txt",
		"new\r\nX-Evil: 1":      "new\r\nX-Evil: 1",
		"a;b=c,d.txt":           "a;b=c,d.txt",
		"-":                     "-",
		"..hidden":              "..hidden",
		strings.Repeat("n", 99): strings.Repeat("n", 99),
	} {
		a := newAPI(t, &source{runs: some(), body: "hello", artifact: tallyman.Artifact{Name: name, Size: 5, Digest: helloDigest}})
		w := a.call("GET", "/api/v1/runs/exec-a/artifact?name="+url.QueryEscape(name), "")
		if w.Code != 200 || w.Body.String() != "hello" {
			t.Errorf("%q: %d %s", name, w.Code, w.Body)
			continue
		}
		for k, v := range map[string]string{
			"Content-Type": "application/octet-stream", "Content-Length": "5", "X-Content-Type-Options": "nosniff",
			"Repr-Digest": "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:",
		} {
			if got := w.Header().Get(k); got != v {
				t.Errorf("%q: %s is %q", name, k, got)
			}
		}
		kind, params, err := mime.ParseMediaType(w.Header().Get("Content-Disposition"))
		if err != nil || kind != "attachment" || params["filename"] != base || strings.ContainsAny(w.Header().Get("Content-Disposition"), "\r\n") {
			t.Errorf("%q is offered as %q: %v", name, w.Header().Get("Content-Disposition"), err)
		}
	}
}

func TestAnArtifactThatIsNotThere(t *testing.T) {
	a := newAPI(t, &source{runs: some(), artifact: tallyman.Artifact{Name: "x"}})
	if p := problem(t, a.call("GET", "/api/v1/runs/exec-a/artifact?name=..%2Fx", ""), 404); !strings.Contains(p.Detail, `has no artifact "../x"`) {
		t.Errorf("got %+v", p)
	}
}

func TestPrompt(t *testing.T) {
	for _, body := range []string{"", "<script>alert(1)</script>\r\nü\x00", strings.Repeat("p", 3<<20)} {
		a := newAPI(t, &source{runs: some(), body: body})
		w := a.call("GET", "/api/v1/runs/exec-a/prompt", "")
		if w.Code != 200 || w.Body.String() != body {
			t.Errorf("%d with %d bytes of %d", w.Code, w.Body.Len(), len(body))
		}
		if h := w.Header(); h.Get("Content-Type") != "text/plain; charset=utf-8" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("headers %v", h)
		}
	}
}
