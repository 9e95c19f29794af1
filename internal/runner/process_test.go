package runner

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

func TestTheRunnersProcess(t *testing.T) {
	refuse := func(status int, final string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			if final != "" {
				w.Header().Set("Tallyman-Final", final)
			}
			answer(w, status, map[string]string{"detail": "no"})
			return true
		}
	}
	for name, c := range map[string]struct {
		before func(http.ResponseWriter, *http.Request) bool
		boot   func(tallyman.Bootstrap) string // what the pipe holds; nil: the bootstrap
		code   int
		log    string
	}{
		"works an attempt":                 {code: ExitOK},
		"is refused: another process":      {before: refuse(http.StatusGone, ""), code: ExitRefused, log: "refused by the server"},
		"is refused: final":                {before: refuse(http.StatusGone, "true"), code: ExitRefused, log: "refused by the server"},
		"is refused: another key":          {before: refuse(http.StatusUnauthorized, ""), code: ExitRefused, log: "refused by the server"},
		"gets half a bootstrap":            {boot: func(tallyman.Bootstrap) string { return `{"attempt":"01` }, code: ExitFailed, log: "reading the bootstrap"},
		"gets no bootstrap":                {boot: func(tallyman.Bootstrap) string { return "" }, code: ExitFailed, log: "reading the bootstrap"},
		"gets an attempt that is none":     {boot: func(b tallyman.Bootstrap) string { return `{"attempt":"../x","dir":"/nowhere"}` }, code: ExitFailed, log: "not an attempt"},
		"gets a folder that does not work": {boot: func(b tallyman.Bootstrap) string { return `{"attempt":"` + testAttempt + `","dir":"/proc/nowhere"}` }, code: ExitFailed, log: "journal"},
	} {
		t.Run(name, func(t *testing.T) {
			a := &attempt{channel: newChannel(t), dir: t.TempDir()}
			a.spec, a.before = agentSpec(t, "echo hello"), c.before
			b, err := json.Marshal(a.boot(a.dir))
			if err != nil {
				t.Fatal(err)
			}
			if c.boot != nil {
				b = []byte(c.boot(a.boot(a.dir)))
			}
			code, log, lock := runProcess(t, b)
			if code != c.code || !strings.Contains(log, c.log) {
				t.Errorf("exit code %d, want %d; its log:\n%s", code, c.code, log)
			}
			if pid, err := strconv.Atoi(strings.TrimSpace(lock)); code == ExitOK && (err != nil || pid < 2) {
				t.Errorf("the lock names %q", lock)
			}
			if strings.Contains(log, `"key"`) || strings.Contains(log, "Bearer") {
				t.Errorf("the log tells the key:\n%s", log)
			}
		})
	}
}

// runProcess runs the runner's process with a bootstrap.
func runProcess(t *testing.T, boot []byte) (code int, log, lock string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	held, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	var out bytes.Buffer
	cmd := exec.Command(self, "runner")
	cmd.ExtraFiles, cmd.Stderr = []*os.File{read, held}, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := write.Write(boot); err != nil {
		t.Fatal(err)
	}
	_, _ = write.Close(), read.Close()
	timer := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait() // the code tells
	text, err := os.ReadFile(held.Name())
	if err != nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), string(text)
}
