//go:build kube

package kube_test

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// A server whose clock is set while it has runs at work ends none of them for
// that, and forgets none.
func TestAServersClockIsSet(t *testing.T) {
	t.Parallel()
	program := withAnotherClock(t)
	for name, set := range map[string]string{"an hour on": "1h@12s", "an hour back": "-1h@12s"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "CLOCK_IS_SET="+set, "TALLYMAN_START_TIMEOUT=60s", "TALLYMAN_PULL_PATIENCE=60s")
			p.stop(syscall.SIGTERM)
			p.program = program
			p.up()
			counts := "for n in $(seq 1 40); do echo $n; sleep 0.5; done"
			p.agent("counts", shell(counts)+"limits: {deadline: 5m}")
			p.agent("pod", shell(counts)+podWorkload)
			p.agent("bare", bare(counts)+"limits: {deadline: 5m}")
			p.agent("no-image", strings.Replace(shell("true"), shellImage, "127.0.0.1:1/nothing:1", 1))
			var runs []tallyman.Run
			for _, agent := range []string{"counts", "pod", "bare"} {
				runs = append(runs, p.detach(agent))
			}
			none := p.detach("no-image")
			for _, run := range runs {
				p.running(run)
			}
			p.eventually("the clock was set", func() bool { return p.clock().Sub(time.Now()).Abs() > 50*time.Minute })
			time.Sleep(4 * time.Second)
			p.eventually("what waits for its image says so", func() bool {
				now := p.show(none.ID)
				if now.State != tallyman.Starting {
					t.Fatalf("what waits for its image is %s %s: %s", now.State, now.Reason, now.Message)
				}
				return now.Waiting != nil
			})
			p.ok("stop", none.ID)
			for _, run := range runs {
				run = p.ended(run.ID)
				p.holds(run, tallyman.Completed)
				p.once(run)
				if got := p.ok("logs", run.ID); got != numbers(40) {
					t.Errorf("the transcript of %s is %q", run.Agent, got)
				}
			}
			p.holds(p.ended(p.detach("counts").ID), tallyman.Completed)
		})
	}
}

// clock is the server's.
func (p *place) clock() time.Time {
	p.Helper()
	c := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: 5 * time.Second}
	_, port, _ := net.SplitHostPort(p.address)
	answer, err := c.Get("https://127.0.0.1:" + port + "/healthz")
	p.must(err)
	p.must(answer.Body.Close())
	at, err := http.ParseTime(answer.Header.Get("Date"))
	p.must(err)
	return at
}

// withAnotherClock builds the server with a clock that can be set: Go's own
// package time, whose Now is wrong by what CLOCK_IS_SET says, like 1h@12s, from
// so long after the start on. What has passed is right, as with a clock that
// somebody sets.
func withAnotherClock(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	const began = "	mono -= startNano\n"
	at := strings.Index(string(text), "func Now() Time {")
	if at < 0 || !strings.Contains(string(text[at:]), began) {
		t.Fatal("Go's package time is another than this test knows")
	}
	changed := strings.Replace(string(text[:at]), "import (", "import (\n\t\"syscall\"", 1) +
		strings.Replace(string(text[at:]), began, began+"	sec += setBy(mono)\n", 1) + `
var setAt, setTo = clockIsSet()

func setBy(mono int64) int64 {
	if setAt == 0 || mono < setAt {
		return 0
	}
	return setTo
}

func clockIsSet() (at, to int64) {
	text, _ := syscall.Getenv("CLOCK_IS_SET")
	for i := range len(text) {
		if text[i] == '@' {
			by, _ := ParseDuration(text[:i])
			after, _ := ParseDuration(text[i+1:])
			return int64(after), int64(by / Second)
		}
	}
	return 0, 0
}
`
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {source: filepath.Join(dir, "time.go")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"time.go": []byte(changed), "overlay.json": overlay} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "tallyman-server")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "../../cmd/tallyman-server")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}
