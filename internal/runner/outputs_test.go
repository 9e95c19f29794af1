package runner

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

func TestOutputsAreUploadedAndJudged(t *testing.T) {
	outputs := func(paths ...string) func(*tallyman.RunnerSpec) {
		return func(s *tallyman.RunnerSpec) {
			for _, p := range paths {
				s.Agent.Outputs = append(s.Agent.Outputs, tallyman.Output{Path: p})
			}
		}
	}
	optional := func(s *tallyman.RunnerSpec) {
		s.Agent.Outputs = []tallyman.Output{{Path: "*.md", Required: ptr(false)}}
	}
	for name, c := range map[string]struct {
		script string
		change func(*tallyman.RunnerSpec)
		reason tallyman.Reason
		want   map[string]string
	}{
		"what was left":                  {`echo a > a.txt; mkdir -p d/e; printf b > "d/e/b ü%?.txt"; echo c > c.md`, outputs("**/*.txt"), tallyman.Completed, map[string]string{"a.txt": "a\n", "d/e/b ü%?.txt": "b"}},
		"an empty file":                  {`: > empty`, outputs("empty"), tallyman.Completed, map[string]string{"empty": ""}},
		"a file that two patterns match": {`echo a > a.txt`, outputs("*.txt", "a.*"), tallyman.Completed, map[string]string{"a.txt": "a\n"}},
		"nothing, though it must":        {`true`, outputs("a.txt"), tallyman.NoOutput, map[string]string{}},
		"nothing, and it may":            {`true`, optional, tallyman.Completed, map[string]string{}},
		"a file older than the attempt":  {`touch -d '2 days ago' a.txt`, outputs("a.txt"), tallyman.NoOutput, map[string]string{}},
		"a link that leads out":          {`ln -s /etc/passwd a.txt`, outputs("a.txt"), tallyman.NoOutput, map[string]string{}},
		"a failure keeps its reason":     {`echo a > a.txt; exit 1`, outputs("a.txt", "b.txt"), tallyman.AgentError, map[string]string{"a.txt": "a\n"}},
		"too many":                       {`i=0; while [ $i -le 1000 ]; do : > $i.txt; i=$((i+1)); done`, outputs("*.txt"), tallyman.OutputTooLarge, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			a := work(t, agentSpec(t, c.script, c.change))
			a.ended(c.reason)
			if fmt.Sprint(a.artifacts) != fmt.Sprint(c.want) {
				t.Errorf("uploaded were %q, want %q", a.artifacts, c.want)
			}
			if n := len(a.texts(tallyman.EventArtifact)); n != len(c.want) {
				t.Errorf("%d events for %d artifacts", n, len(c.want))
			}
		})
	}
}

func TestARefusedOutputFailsARunThatWasGood(t *testing.T) {
	for status, reason := range map[int]tallyman.Reason{
		http.StatusBadRequest: tallyman.OutputInvalid, http.StatusRequestEntityTooLarge: tallyman.OutputTooLarge, http.StatusConflict: tallyman.BackendError,
	} {
		a := &attempt{channel: newChannel(t), dir: t.TempDir()}
		a.spec = agentSpec(t, `echo a > a.txt`, func(s *tallyman.RunnerSpec) { s.Agent.Outputs = []tallyman.Output{{Path: "a.txt"}} })
		a.before = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut {
				answer(w, status, map[string]string{"detail": "not this one"})
			}
			return r.Method == http.MethodPut
		}
		out := a.work(t.Context()).ended(reason)
		if !strings.Contains(out.Message, "a.txt") || !strings.Contains(out.Message, "not this one") {
			t.Errorf("the message is %q", out.Message)
		}
	}
}

func TestAnUploadThatNobodyTakesEndsWithTheDrainBudget(t *testing.T) {
	a := &attempt{channel: newChannel(t), dir: t.TempDir()}
	a.spec = agentSpec(t, `echo a > a.txt`, func(s *tallyman.RunnerSpec) {
		s.Agent.Outputs = []tallyman.Output{{Path: "a.txt"}}
		s.DrainBudget = tallyman.Duration(300 * time.Millisecond)
	})
	a.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			answer(w, http.StatusServiceUnavailable, map[string]string{"detail": "no space left"})
		}
		return r.Method == http.MethodPut
	}
	out := a.work(t.Context()).ended(tallyman.BackendError)
	if !strings.Contains(out.Message, "a.txt") {
		t.Errorf("the message is %q", out.Message)
	}
}
