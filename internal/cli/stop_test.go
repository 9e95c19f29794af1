package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/client"
)

func TestWaitingForAnEndGivesUpInASentence(t *testing.T) {
	state := tallyman.Running
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := w.Write([]byte(`{"id":"1","name":"exec-1","state":"` + string(state) + `"}`)); err != nil {
			t.Error(err)
		}
	}))
	defer h.Close()
	to, err := client.New(h.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	s := &session{Client: to}
	_, err = waitEnd(t.Context(), s, "1", time.Millisecond)
	if want := "run exec-1 is still running after 1ms: it is asked to stop, and tallyman show exec-1 tells more"; err == nil || err.Error() != want || exitOf(err) != ExitFailed {
		t.Errorf("got %v", err)
	}
	state = tallyman.Stopped
	if run, err := waitEnd(t.Context(), s, "1", time.Millisecond); err != nil || run.State != tallyman.Stopped {
		t.Errorf("one that has ended: %s, %v", run.State, err)
	}
	if help := (&command{}).stopCommand().Long; !strings.Contains(help, "1 one is still at work after 2 minutes") || stopWait != 2*time.Minute {
		t.Errorf("the help of stop: %s", help)
	}
}
