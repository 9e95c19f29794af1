package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/client"
)

// A transcript whose end is still on its way hides neither how the run ended
// nor its exit code; a run that goes on is not said to have ended.
func TestWhatIsMissingHidesNoEnd(t *testing.T) {
	const late = `{"error":"attempt 1 has ended, but its last events are still on their way: 27 are missing"}` + "\n"
	for name, c := range map[string]struct {
		run  string
		says []string
		code int
	}{
		"failed":    {`"state":"failed","reason":"BackendError","message":"no space left on device"`, []string{"27 are missing", "tallyman logs exec-1", "BackendError", "no space left on device"}, ExitFailed},
		"succeeded": {`"state":"succeeded","reason":"Completed"`, []string{"27 are missing", "Completed"}, ExitOK},
		"stopped":   {`"state":"stopped","reason":"Stopped"`, []string{"27 are missing", "Stopped"}, ExitStopped},
		"at work":   {`"state":"running"`, nil, ExitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer := `{"id":"1","name":"exec-1","harness":"exec",` + c.run + `}`
				if strings.HasSuffix(r.URL.Path, "/events") {
					answer = late
				}
				if _, err := w.Write([]byte(answer)); err != nil {
					t.Error(err)
				}
			}))
			defer h.Close()
			to, err := client.New(h.URL, "")
			if err != nil {
				t.Fatal(err)
			}
			var told bytes.Buffer
			cmd := &command{out: &told, errOut: &told, env: environ{lookup: func(string) (string, bool) { return "", false }}}
			err = cmd.watch(t.Context(), &session{Client: to}, tallyman.Run{ID: "1", Name: "exec-1", State: tallyman.Running, Harness: "exec"})
			if err == nil && c.code != ExitOK || err != nil && exitOf(err) != c.code {
				t.Errorf("want exit code %d: %v", c.code, err)
			}
			if c.says == nil && (err == nil || !strings.Contains(err.Error(), "27 are missing")) {
				t.Errorf("got %v", err)
			}
			for _, says := range c.says {
				if !strings.Contains(told.String(), says) {
					t.Errorf("%q is not in:\n%s", says, told.String())
				}
			}
		})
	}
}
