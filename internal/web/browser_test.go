//go:build browser

package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/tracing"
	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"
	"github.com/tallyman-dev/tallyman"
)

// browse starts a browser of its own on a dashboard of f.
func browse(t *testing.T, f *fake) (context.Context, *httptest.Server) {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("this test needs chromium: apt-get install chromium")
	}
	server := httptest.NewServer(open(f))
	alloc, stop := chromedp.NewExecAllocator(t.Context(),
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true))
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(func() {
		cancel()
		stop()
		server.CloseClientConnections()
		server.Close()
	})
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1440, 900)); err != nil {
		t.Fatal(err)
	}
	limited, done := context.WithTimeout(ctx, 90*time.Second)
	t.Cleanup(done)
	return limited, server
}

func do(t *testing.T, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

func eval[T any](t *testing.T, ctx context.Context, js string) T {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](js))
	if err != nil {
		t.Fatalf("%s: %v", js, err)
	}
	return v
}

// until waits until an expression is true.
func until(t *testing.T, ctx context.Context, js string) {
	t.Helper()
	limited, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		ok, err := chromedp.Run(limited, chromedp.Evaluate[bool]("!!("+js+")"))
		if err == nil && ok {
			return
		}
		if limited.Err() != nil {
			t.Fatalf("never true: %s (%v)", js, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// contention is how much longer work takes here than its processor time:
// about 1 on an idle machine, more when others use it too.
func contention() float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var u syscall.Rusage
		if syscall.Getrusage(1, &u) != nil { // 1: this thread
			return 0
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	start, before := time.Now(), used()
	for used()-before < 300*time.Millisecond {
		if time.Since(start) > 10*time.Second {
			break
		}
	}
	return max(1, float64(time.Since(start))/float64(300*time.Millisecond))
}

// busiest traces a page until the function that it returns is called, which
// says how much processor time the page's longest task took. Unlike time by
// the clock that is the page's own doing, whatever else the machine does.
func busiest(t *testing.T, ctx context.Context) func() time.Duration {
	t.Helper()
	type entry struct {
		Name string `json:"name"`
		CPU  int64  `json:"tdur"` // microseconds
	}
	var longest time.Duration
	done := make(chan struct{})
	err := chromedp.Listen(ctx, func(ev any) {
		switch e := ev.(type) {
		case *tracing.EventDataCollected:
			for _, raw := range e.Value {
				var x entry
				if json.Unmarshal(raw, &x) == nil && x.Name == "RunTask" {
					longest = max(longest, time.Duration(x.CPU)*time.Microsecond)
				}
			}
		case *tracing.EventTracingComplete:
			close(done)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, tracing.Start, tracing.StartParams{TraceConfig: &tracing.TraceConfig{IncludedCategories: []string{"devtools.timeline", "disabled-by-default-devtools.timeline"}}}); err != nil {
		t.Fatal(err)
	}
	return func() time.Duration {
		t.Helper()
		if _, err := chromedp.Call(ctx, tracing.End, cdp.Empty{}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
		case <-ctx.Done():
			t.Fatal("the trace does not end")
		}
		return longest
	}
}

const watchTasks = `window.longest = 0; new PerformanceObserver((l) => { for (const e of l.getEntries()) longest = Math.max(longest, e.duration); }).observe({ type: "longtask", buffered: true })`

// The figures hold for a machine that does nothing else; on a busy one they
// are stretched by how busy it is.
func TestTenThousandEventsDoNotFreezeThePage(t *testing.T) {
	busy := contention()
	f := newFake()
	f.put(running(1))
	f.say(runID(1), texts(10000)...)
	ctx, server := browse(t, f)
	do(t, ctx, chromedp.Navigate("about:blank"))
	used := busiest(t, ctx)
	do(t, ctx, chromedp.Navigate(server.URL+"/runs/"+runID(1)), chromedp.Evaluate[chromedp.Void](watchTasks))
	last := `document.getElementById("log").lastElementChild?.textContent.includes("%s")`
	until(t, ctx, fmt.Sprintf(last, "text number 10000"))
	until(t, ctx, `performance.getEntriesByName("first-contentful-paint").length`)
	if paint := eval[float64](t, ctx, `performance.getEntriesByName("first-contentful-paint")[0].startTime`); paint > 1000*max(busy, contention()) {
		t.Errorf("the first paint came after %.0f ms", paint)
	}
	for i := range 20 { // ten thousand more while it is watched, tools among them
		var events []tallyman.Event
		for k := range 250 {
			id := fmt.Sprintf("%d-%d", i, k)
			events = append(events, tallyman.Event{Time: time.Now(), Type: tallyman.EventToolStarted, ToolID: id, Name: "Bash", Data: []byte(`{"command":"make test"}`)},
				tallyman.Event{Time: time.Now(), Type: tallyman.EventToolFinished, ToolID: id, Text: "ok  \tall of it\n"})
		}
		f.say(runID(1), events...)
	}
	f.say(runID(1), tallyman.Event{Time: time.Now(), Type: tallyman.EventText, Text: "the very last"})
	until(t, ctx, fmt.Sprintf(last, "the very last"))
	busy = max(busy, contention())
	cpu := used()
	if cpu > 200*time.Millisecond || cpu == 0 { // what a reader may have to wait; by the clock others have their part in it
		t.Errorf("a task needed %v of the processor", cpu)
	}
	if n := eval[int](t, ctx, `document.querySelectorAll("#log .ev").length`); n > 2500 {
		t.Errorf("%d events in the page", n)
	}
	if !eval[bool](t, ctx, `document.getElementById("end").getBoundingClientRect().bottom <= innerHeight + 48`) {
		t.Error("the page does not follow")
	}
	t.Logf("contention %.1f, longest task %.0f ms (%v of the processor), first paint %.0f ms, %d events kept", busy, eval[float64](t, ctx, "longest"), cpu,
		eval[float64](t, ctx, `performance.getEntriesByName("first-contentful-paint")[0].startTime`), eval[int](t, ctx, `document.querySelectorAll("#log .ev").length`))

	// What was dropped or never shown can be loaded, without a jump or a gap.
	do(t, ctx, chromedp.Evaluate[chromedp.Void](`scrollTo(0, 0); window.first = document.querySelector("#log .ev").id; window.top0 = document.getElementById(first).getBoundingClientRect().top; document.getElementById("older").click()`))
	until(t, ctx, `document.querySelector("#log .ev").id !== first`)
	if moved := eval[float64](t, ctx, `Math.abs(document.getElementById(first).getBoundingClientRect().top - top0)`); moved > 60 {
		t.Errorf("loading earlier events moved the page by %.0f pixels", moved)
	}
	cursors := eval[[]int](t, ctx, `[...document.querySelectorAll('#log .ev[id^="e"]')].map((e) => Number(e.id.split(".")[1]))`)
	for i := 1; i < len(cursors); i++ {
		if step := cursors[i] - cursors[i-1]; step < 1 || step > 2 { // a call has two events and one article
			t.Errorf("event %d is followed by %d", cursors[i-1], cursors[i])
		}
	}
}

func TestTheTranscriptIsLive(t *testing.T) {
	f := newFake()
	f.put(running(1))
	f.say(runID(1), texts(60)...)
	f.say(runID(1), tallyman.Event{Time: time.Now(), Type: tallyman.EventToolStarted, ToolID: "a", Name: "Agent", Data: []byte(`{"description":"look"}`)})
	ctx, server := browse(t, f)
	do(t, ctx, chromedp.Navigate(server.URL+"/runs/"+runID(1)))
	until(t, ctx, `document.getElementById("follow").hidden && scrollY > 0`)
	f.whisper(runID(1), `{"delta":"word by ","type":"text","block":"0"}`)
	until(t, ctx, `document.querySelector(".live.k-text")?.innerText.includes("word by")`)
	f.say(runID(1), tallyman.Event{Time: time.Now(), Type: tallyman.EventText, Text: "word by **word**"})
	until(t, ctx, `!document.querySelector(".live.k-text") && document.querySelector("#log").innerText.includes("word by word")`)

	do(t, ctx, chromedp.Evaluate[chromedp.Void](`document.querySelector(".k-call summary").click()`))
	f.say(runID(1), tallyman.Event{Time: time.Now(), Type: tallyman.EventText, Parent: "a", Text: "from inside"},
		tallyman.Event{Time: time.Now(), Type: tallyman.EventToolFinished, ToolID: "a", Text: "found"})
	until(t, ctx, `document.querySelector(".k-call .vd").innerText === "ok"`)
	if !eval[bool](t, ctx, `document.querySelector(".k-call details").open && document.querySelector(".k-call > .sub").innerText.includes("from inside")`) {
		t.Error("the call was folded, or lost what its sub-agent said")
	}

	do(t, ctx, chromedp.Sleep(150*time.Millisecond), chromedp.Evaluate[chromedp.Void](`scrollTo(0, 100)`))
	until(t, ctx, `!document.getElementById("follow").hidden`)
	at := eval[float64](t, ctx, "scrollY")
	f.say(runID(1), texts(50)...)
	until(t, ctx, `document.querySelectorAll("#log .ev").length > 100`)
	if now := eval[float64](t, ctx, "scrollY"); now != at {
		t.Errorf("the page moved from %v to %v under the reader", at, now)
	}
	do(t, ctx, chromedp.Evaluate[chromedp.Void](`document.getElementById("follow").click()`))
	until(t, ctx, `document.getElementById("end").getBoundingClientRect().bottom <= innerHeight + 48`)

	f.put(ended(1, tallyman.Completed, ""))
	until(t, ctx, `document.querySelector("#f-head .s-succeeded") && document.title.startsWith("✓")`)
}

func TestALostConnectionIsToldAndComesBack(t *testing.T) {
	f := newFake()
	f.put(running(1))
	f.say(runID(1), texts(3)...)
	ctx, server := browse(t, f)
	do(t, ctx, chromedp.Navigate(server.URL+"/runs/"+runID(1)), chromedp.Sleep(300*time.Millisecond))
	server.CloseClientConnections()
	until(t, ctx, `document.getElementById("conn").innerText.startsWith("connection lost since")`)
	f.say(runID(1), tallyman.Event{Time: time.Now(), Type: tallyman.EventText, Text: "meanwhile"})
	until(t, ctx, `document.getElementById("conn").innerText === "" && document.querySelectorAll("#log .ev").length === 4`)
}

func TestNewRunsGatherAndRowsStay(t *testing.T) {
	f := newFake()
	for n := range 3 {
		f.put(running(n))
	}
	ctx, server := browse(t, f)
	rows := `[...document.querySelectorAll("#rows .nm")].map((e) => e.innerText)`
	do(t, ctx, chromedp.Navigate(server.URL+"/runs"), chromedp.Sleep(300*time.Millisecond))
	for n := 3; n < 15; n++ {
		f.put(running(n))
	}
	f.put(ended(1, tallyman.MaxTurns, ""))
	until(t, ctx, `document.getElementById("gathered").innerText === "12 new" && document.querySelector(".s-failed")`)
	if diff := cmp.Diff([]string{"demo-2", "demo-1", "demo-0"}, eval[[]string](t, ctx, rows)); diff != "" {
		t.Errorf("rows moved: %s", diff)
	}
	do(t, ctx, chromedp.Click(chromedp.ID("gathered")))
	if got := eval[[]string](t, ctx, rows); len(got) != 15 {
		t.Errorf("%d rows after asking for the new ones", len(got))
	}
}

func TestTheKeyboard(t *testing.T) {
	f := newFake()
	for n := range 5 {
		f.put(running(n))
	}
	ctx, server := browse(t, f)
	do(t, ctx, chromedp.Navigate(server.URL+"/runs"), chromedp.KeyEvent("j"), chromedp.KeyEvent("j"), chromedp.KeyEvent("j"), chromedp.KeyEvent("k"))
	if got := eval[string](t, ctx, `document.activeElement.innerText`); got != "demo-3" {
		t.Errorf("j j j k leads to %q", got)
	}
	do(t, ctx, chromedp.KeyEvent("/"))
	if got := eval[string](t, ctx, `document.activeElement.id`); got != "search" {
		t.Errorf("/ leads to %q", got)
	}
	do(t, ctx, chromedp.KeyEvent("j"), chromedp.Evaluate[chromedp.Void](`document.activeElement.blur()`), chromedp.KeyEvent("?"))
	until(t, ctx, `document.getElementById("keys").open`)
	do(t, ctx, chromedp.Evaluate[chromedp.Void](`document.getElementById("keys").close()`), chromedp.KeyEvent("j"), chromedp.KeyEvent("\r"))
	until(t, ctx, `location.pathname === "/runs/`+runID(4)+`" && document.readyState === "complete"`)
	do(t, ctx, chromedp.KeyEvent("g"), chromedp.KeyEvent("q"))
	until(t, ctx, `location.pathname + location.search === "/runs?state=queued" && document.readyState === "complete"`)
	do(t, ctx, chromedp.KeyEvent("g"), chromedp.KeyEvent("r"))
	until(t, ctx, `location.pathname + location.search === "/runs"`)
}

func TestTheThemeIsSwitchedAndKept(t *testing.T) {
	ctx, server := browse(t, newFake())
	do(t, ctx, chromedp.Navigate(server.URL+"/runs"))
	ground := `getComputedStyle(document.body).backgroundColor`
	for _, want := range []string{"light rgb(255, 255, 255)", "dark rgb(15, 18, 22)"} {
		do(t, ctx, chromedp.Click(chromedp.ID("theme")))
		if got := eval[string](t, ctx, `document.documentElement.dataset.theme + " " + `+ground); got != want {
			t.Errorf("theme %q, want %q", got, want)
		}
	}
	do(t, ctx, chromedp.Reload())
	if got := eval[string](t, ctx, ground); got != "rgb(15, 18, 22)" {
		t.Errorf("after loading again the ground is %s", got)
	}
}

func TestARunIsSubmittedStoppedAndRepeated(t *testing.T) {
	f := newFake()
	ctx, server := browse(t, f)
	do(t, ctx, chromedp.Navigate(server.URL+"/new"), chromedp.SendKeys(chromedp.ID("prompt"), "say 'hello'"))
	until(t, ctx, `document.querySelector(".cmd code").innerText === "tallyman run claude 'say '\\''hello'\\'''"`)
	do(t, ctx, chromedp.Click(chromedp.CSS("#new .go")))
	until(t, ctx, `document.querySelector("#f-why")?.innerText.includes("Next in line")`)
	click := func(css string) {
		do(t, ctx, chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector(%q).click()", css)))
	}
	click(`[data-k="stop"] summary`)
	click(`[data-k="stop"] button`)
	until(t, ctx, `document.querySelector("#f-head .s-stopped")`)
	click(`[data-k="rerun"] summary`)
	click(`[data-k="rerun"] button`)
	until(t, ctx, `document.querySelector("#f-head .s-queued")`)
	want := []string{"submit claude say 'hello' web", "stop " + runID(0), "rerun " + runID(0)}
	if diff := cmp.Diff(want, f.asked); diff != "" {
		t.Error(diff)
	}
}
