//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
)

// visitor is a browser that came to a real server by its login link.
type visitor struct {
	*stage
	ctx    context.Context
	server *exec.Cmd
	addr   string
	link   string // used by the browser
}

var loginLink = regexp.MustCompile(`http://(\S+)/login\?code=\S+`)

// visit starts a server and a browser, and logs in.
func visit(t *testing.T, flags ...string) *visitor {
	t.Helper()
	s := newStage(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that the server can have again
	if err != nil {
		t.Fatal(err)
	}
	v := &visitor{stage: s, addr: l.Addr().String()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	server, said := s.serve(v.addr, flags...)
	m := loginLink.FindStringSubmatch(said)
	if m == nil || m[1] != v.addr {
		t.Fatalf("no login link to %s in:\n%s", v.addr, said)
	}
	v.server, v.link = server, m[0]
	v.browse()
	v.do(chromedp.Navigate(v.link))
	v.until(`location.pathname === "/runs" && document.readyState === "complete"`)
	return v
}

func (v *visitor) browse() {
	v.t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		v.t.Fatal("this test needs chromium: test/e2e/install.sh")
	}
	alloc, stop := chromedp.NewExecAllocator(v.t.Context(),
		chromedp.ExecPath(path), chromedp.UserDataDir(v.t.TempDir()), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true))
	ctx, cancel := chromedp.NewContext(alloc)
	v.t.Cleanup(func() { cancel(); stop() })
	limited, done := context.WithTimeout(ctx, 90*time.Second)
	v.t.Cleanup(done)
	v.ctx = limited
	v.do(chromedp.EmulateViewport(1280, 800))
}

func (v *visitor) do(steps ...chromedp.Action[chromedp.Void]) {
	v.t.Helper()
	if err := chromedp.Do(v.ctx, steps...); err != nil {
		v.t.Fatal(err)
	}
}

// eval returns what an expression is on the page, promises awaited.
func eval[T any](v *visitor, js string) T {
	v.t.Helper()
	x, err := chromedp.Run(v.ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		v.t.Fatalf("%s: %v", js, err)
	}
	return x
}

// until waits until an expression is true. While a page is left, there is
// none to ask.
func (v *visitor) until(js string) {
	v.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ok, err := chromedp.Run(v.ctx, chromedp.Evaluate[bool]("!!("+js+")")); err == nil && ok {
			return
		}
	}
	text, _ := chromedp.Run(v.ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText`)) // it helps if it is there
	v.t.Fatalf("never true: %s\non the page %s", js, text)
}

func (v *visitor) click(css string) {
	v.t.Helper()
	v.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector(%q).click()", css)))
}

// open goes to a page of the server.
func (v *visitor) open(path string) {
	v.t.Helper()
	v.do(chromedp.Navigate("http://" + v.addr + path))
}

// script runs a shell script in the background.
func (v *visitor) script(text string, flags ...string) tallyman.Run {
	v.t.Helper()
	o := v.call("", append(append([]string{"run", "-d", "-o", "json", "exec"}, flags...), "--", "sh", "-c", text)...)
	return v.decode(o.out, o)
}

// here is the run whose page is shown.
func (v *visitor) here() tallyman.Run {
	v.t.Helper()
	return v.show(tallyman.Run{ID: eval[string](v, `location.pathname.split("/")[2]`)})
}

const (
	isRunning = `document.querySelector("#f-head .s-running")`
	articles  = `[...document.querySelectorAll("#log .ev")]`
)

func TestTheLoginLinkWorksOnceAndForItsBrowser(t *testing.T) {
	v := visit(t)
	run := v.script("echo begun; sleep 300")
	v.open("/runs/" + run.ID)
	v.until(isRunning)

	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	ask := func(method, url, host string, form url.Values) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, url, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Accept", "text/html")
		if form != nil {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	base := "http://" + v.addr
	if code, body := ask("GET", v.link, "", nil); code != http.StatusUnauthorized || !strings.Contains(body, "tallyman config --login-link") {
		t.Errorf("the link works twice: %d %s", code, body)
	}
	for _, path := range []string{"/", "/runs", "/runs/" + run.ID, "/new", "/runs/" + run.ID + "/transcript.txt"} {
		code, body := ask("GET", base+path, "", nil)
		if code != http.StatusUnauthorized || !strings.Contains(body, "tallyman up") || strings.Contains(body, "begun") || strings.Contains(body, run.Name) {
			t.Errorf("%s without a cookie: %d %s", path, code, body)
		}
	}

	// The next link logs this client in; what a stranger's page could send with its cookie is refused.
	link := loginLink.FindString(v.ok("config", "--login-link"))
	if code, _ := ask("GET", link, "", nil); code != http.StatusOK {
		t.Fatalf("the second link: %d", code)
	}
	if code, _ := ask("GET", base+"/runs", "", nil); code != http.StatusOK {
		t.Fatalf("after the login: %d", code)
	}
	if code, body := ask("GET", base+"/runs", "attacker.example", nil); code != http.StatusMisdirectedRequest {
		t.Errorf("a foreign host: %d %s", code, body)
	}
	foreign := eval[string](v, `document.querySelector("[name=csrf]").value`)
	for name, form := range map[string]url.Values{"no token": {}, "an empty token": {"csrf": {""}}, "another browser's token": {"csrf": {foreign}}} {
		if code, body := ask("POST", base+"/runs/"+run.ID+"/stop", "", form); code != http.StatusUnauthorized {
			t.Errorf("a form with %s: %d %s", name, code, body)
		}
	}
	if now := v.show(run); now.State != tallyman.Running || now.StopRequestedAt != nil {
		t.Errorf("a refused form has stopped the run: %+v", now)
	}

	token, err := os.ReadFile(filepath.Join(v.dir, "data", "token"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/runs", "/runs/" + run.ID, "/new"} {
		v.open(path)
		if html := eval[string](v, `document.documentElement.outerHTML + document.cookie`); strings.Contains(html, strings.TrimSpace(string(token))) || strings.Contains(html, "code=") {
			t.Errorf("%s holds the token or the code", path)
		}
	}
	v.ok("stop", run.ID)
	v.ended(run)
}

// watch writes down the texts as they are written, and those that are there
// twice: as they came and as they stay.
const watch = `window.here = true; window.partial = []; window.twice = []; new MutationObserver(() => {
	for (const e of document.querySelectorAll(".live.k-text")) {
		const t = e.innerText.trim();
		if (t && partial.at(-1) !== t) partial.push(t);
		for (const whole of document.querySelectorAll(".k-text:not(.live) .prose")) if (whole.innerText.trim() === t) twice.push(t);
	}
}).observe(document.getElementById("log"), { childList: true, subtree: true, characterData: true })`

func TestARunIsSubmittedAndWatched(t *testing.T) {
	v := visit(t, "--max-running", "1")
	blocker := v.script("sleep 300")
	v.open("/new")
	v.do(chromedp.Evaluate[chromedp.Void](`document.getElementById("agent").value = "demo"`), chromedp.SendKeys(chromedp.ID("prompt"), "say hello"))
	v.until(`document.querySelector("#new .cmd code").innerText === "tallyman run demo 'say hello'"`)
	v.click("#new .go")
	v.until(`document.querySelector("#f-why .wait")?.innerText.includes("Next in line") && document.getElementById("nothing").innerText === "It has not started yet."`)
	v.do(chromedp.Evaluate[chromedp.Void](watch))
	v.ok("stop", blocker.ID)

	v.until(`document.querySelector("#f-head .s-succeeded") && document.querySelector(".k-end")`)
	if !eval[bool](v, `window.here === true && document.title.startsWith("✓") && !document.querySelector(".live")`) {
		t.Error("the page was loaded again, or keeps what was only live")
	}
	said := []string{"Hello. I look around first.", "The prompt has 9 bytes.", "You said: say hello"}
	if got := eval[[]string](v, articles+`.filter((e) => e.matches(".k-text")).map((e) => e.innerText.replace(/^#\s*/, "").trim())`); !cmp.Equal(said, got) {
		t.Errorf("texts, each once: %s", cmp.Diff(said, got))
	}
	partial := eval[[]string](v, "partial")
	if !slices.ContainsFunc(partial, func(p string) bool { return !slices.Contains(said, p) }) {
		t.Errorf("no text was seen while it was written: %q", partial)
	}
	for _, p := range partial {
		if !slices.ContainsFunc(said, func(whole string) bool { return strings.HasPrefix(whole, p) }) {
			t.Errorf("%q was seen, with which no text begins", p)
		}
	}
	if twice := eval[[]string](v, "twice"); len(twice) > 0 {
		t.Errorf("texts were there twice: %q", twice)
	}
	if got := eval[string](v, `document.querySelector(".k-call[id] > .sub:not(:empty)").innerText`); !strings.Contains(got, "Read") || !strings.Contains(got, said[1]) {
		t.Errorf("the sub-agent's part lies under its call: %q", got)
	}
	if eval[bool](v, `document.querySelector(".k-thinking details").open`) {
		t.Error("thinking is not folded")
	}
	v.do(chromedp.Evaluate[chromedp.Void](`window.bash = ` + articles + `.find((e) => e.querySelector("summary b")?.innerText === "Bash"); bash.querySelector("summary").click()`))
	v.until(`bash.querySelector("details").open && bash.querySelector("details").innerText.includes("echo attempt 1")`)
	if got := eval[string](v, `document.getElementById("f-usage").innerText`); !strings.Contains(got, "3,700") || !strings.Contains(got, "$0.017") {
		t.Errorf("usage: %s", got)
	}
	if run := v.here(); run.Source != tallyman.SourceWeb || run.Result != "say hello" {
		t.Errorf("the run: %+v", run)
	}
	v.ended(blocker)
}

func TestARunIsStoppedAndRepeatedFromThePage(t *testing.T) {
	v := visit(t)
	first := v.script("echo begun; sleep 300")
	v.open("/runs/" + first.ID)
	v.until(isRunning + ` && document.getElementById("log").innerText.includes("begun")`)
	v.click(`[data-k="stop"] summary`)
	if got := eval[string](v, `document.querySelector('[data-k="stop"]').innerText`); !strings.Contains(got, "Stop "+first.Name+"?") {
		t.Errorf("it asks %q", got)
	}
	if now := v.show(first); now.StopRequestedAt != nil {
		t.Error("it stopped before it was answered")
	}
	v.click(`[data-k="stop"] button`)
	v.until(`document.querySelector("#f-head .s-stopped")`)
	if first = v.ended(first); first.Reason != tallyman.ReasonStopped || !strings.Contains(first.Message, "dashboard") {
		t.Errorf("it ended %s: %s", first.Reason, first.Message)
	}
	for _, args := range v.processes() {
		if strings.HasPrefix(args, "sleep 300") {
			t.Errorf("left: %s", args)
		}
	}

	done := v.ended(v.script("echo once more"))
	v.open("/runs/" + done.ID)
	v.click(`[data-k="rerun"] summary`)
	v.click(`[data-k="rerun"] button`)
	v.until(`location.pathname.startsWith("/runs/") && location.pathname !== "/runs/` + done.ID + `" && document.querySelector("#f-head .s-succeeded")`)
	v.until(`document.getElementById("log").innerText.includes("once more")`)
	if again := v.here(); again.Parent != done.ID || again.State != tallyman.Succeeded {
		t.Errorf("the repetition: %+v", again)
	}
}

func TestNewRunsGatherOnTheList(t *testing.T) {
	v := visit(t)
	if got := eval[string](v, "document.body.innerText"); !strings.Contains(got, "No runs yet") {
		t.Errorf("an empty list says %s", got)
	}
	old := v.script("sleep 300")
	v.until(`document.querySelectorAll("#rows tr").length === 1 && document.querySelector("#rows .s-running")`)
	var names []string
	for range 3 {
		names = append([]string{v.script("true").Name}, names...)
	}
	v.until(`document.getElementById("gathered").innerText === "3 new"`)
	v.ok("stop", old.ID)
	v.until(`document.querySelector("#rows .s-stopped")`)
	rows := `[...document.querySelectorAll("#rows .nm")].map((e) => e.innerText)`
	if diff := cmp.Diff([]string{old.Name}, eval[[]string](v, rows)); diff != "" {
		t.Errorf("rows before they were asked for: %s", diff)
	}
	v.click("#gathered")
	if diff := cmp.Diff(append(names, old.Name), eval[[]string](v, rows)); diff != "" {
		t.Errorf("rows: %s", diff)
	}
	v.until(`document.getElementById("gathered").hidden && document.querySelectorAll("#rows .s-succeeded").length === 3`)
}

func TestThePageGoesOnAfterTheServerWasKilled(t *testing.T) {
	v := visit(t)
	run := v.script(`i=0; while [ ! -e enough ]; do i=$((i+1)); echo "tick $i"; sleep 0.05; done; echo "the last"`)
	v.open("/runs/" + run.ID)
	v.until(articles + `.filter((e) => e.innerText.includes("tick")).length > 10`)
	v.do(chromedp.Evaluate[chromedp.Void]("window.here = true"))
	if err := v.server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = v.server.Wait() // it was killed
	v.until(`document.getElementById("conn").innerText.startsWith("connection lost since ")`)
	before := eval[int](v, articles+`.length`)
	v.serve(v.addr)
	v.until(`document.getElementById("conn").innerText === "" && ` + articles + fmt.Sprintf(`.length > %d`, before+10))
	v.write("work/enough", "")
	v.until(`document.querySelector("#f-head .s-succeeded") && document.getElementById("log").innerText.includes("the last")`)
	if !eval[bool](v, "window.here === true") {
		t.Error("the page was loaded again")
	}
	ticks := eval[[]string](v, articles+`.map((e) => e.querySelector("pre")?.textContent).filter((t) => t?.startsWith("tick "))`)
	for i, got := range ticks {
		if want := fmt.Sprintf("tick %d", i+1); got != want {
			t.Fatalf("line %d is %q, want %q: nothing may be missing or doubled", i+1, got, want)
		}
	}
	if run = v.ended(run); run.Attempt != 1 {
		t.Errorf("%d attempts", run.Attempt)
	}
}

func TestArtifactsAreFetchedFromThePage(t *testing.T) {
	v := visit(t)
	run := v.ended(v.script(`mkdir -p out; printf '<script>alert(1)</script>' > "out/a b#1.html"; seq 1 20000 > out/numbers.txt`, "--output", "out/*"))
	v.open("/runs/" + run.ID)
	type file struct{ Name, Type, Disposition, Text string }
	text := eval[string](v, `Promise.all([...document.querySelectorAll("#f-files a")].map(async (a) => {
		const r = await fetch(a.href);
		return { Name: a.innerText, Type: r.headers.get("Content-Type"), Disposition: r.headers.get("Content-Disposition"), Text: await r.text() };
	})).then(JSON.stringify)`)
	var files []file
	if err := json.Unmarshal([]byte(text), &files); err != nil {
		t.Fatal(err)
	}
	if len(files) != 2 || files[0].Name != "out/a b#1.html" || files[0].Text != "<script>alert(1)</script>" || files[1].Name != "out/numbers.txt" || !strings.HasSuffix(files[1].Text, "\n20000\n") {
		t.Fatalf("the files: %.500s", text)
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Disposition, "attachment") || strings.Contains(f.Type, "html") {
			t.Errorf("%s would be shown, not saved: %s, %s", f.Name, f.Type, f.Disposition)
		}
	}
}
