package runner

import (
	"fmt"
	"net/http"
	"os"
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
		http.StatusBadRequest: tallyman.OutputInvalid, http.StatusRequestEntityTooLarge: tallyman.OutputTooLarge, http.StatusConflict: tallyman.NoOutput,
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

// Three files have one budget. The agent has done its work: that the server
// has no room is no reason to let it do it again.
func TestUploadsThatNobodyTakesEndWithOneDrainBudget(t *testing.T) {
	for required, reason := range map[bool]tallyman.Reason{true: tallyman.NoOutput, false: tallyman.Completed} {
		t.Run(fmt.Sprint("required ", required), func(t *testing.T) {
			a := &attempt{channel: newChannel(t), dir: t.TempDir()}
			a.spec = agentSpec(t, `echo a > a.txt; echo b > b.txt; echo c > c.txt`, func(s *tallyman.RunnerSpec) {
				s.Agent.Outputs = []tallyman.Output{{Path: "*.txt", Required: &required}}
				s.DrainBudget = tallyman.Duration(1500 * time.Millisecond)
			})
			a.before = busyUploads
			began := time.Now()
			out := a.work(t.Context()).ended(reason)
			if took := time.Since(began); took > 4200*time.Millisecond {
				t.Errorf("it took %s", took)
			}
			told := out.Message
			if !required {
				told = strings.Join(a.texts(tallyman.EventNotice), "\n")
			}
			if !strings.Contains(told, "output a.txt is there, but could not be kept") || !strings.Contains(told, "no space left") {
				t.Errorf("it is told: %s", told)
			}
		})
	}
}

func busyUploads(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodPut {
		answer(w, http.StatusServiceUnavailable, map[string]string{"detail": "no space left"})
	}
	return r.Method == http.MethodPut
}

func TestUploadsEndWithTheAttempt(t *testing.T) {
	for name, refuse := range map[string]func(*uplink, chan struct{}){
		"the server refuses the runner": func(_ *uplink, lost chan struct{}) { close(lost) },
		"the attempt is final":          func(u *uplink, _ chan struct{}) { u.closeState() },
	} {
		t.Run(name, func(t *testing.T) {
			c := newChannel(t)
			c.before = busyUploads
			l := newLink(t, c)
			r := &run{rec: newRecorder(l.w, l.provisional), up: l.uplink, spec: agentSpec(t, "")}
			r.spec.Agent.Outputs = []tallyman.Output{{Path: "a.txt"}}
			if err := os.MkdirAll(r.spec.WorkDir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(r.spec.WorkDir+"/a.txt", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			lost := make(chan struct{})
			time.AfterFunc(100*time.Millisecond, func() { refuse(r.up, lost) })
			began := time.Now()
			v := r.outputs(t.Context(), lost, time.Time{})
			if v == nil || v.reason != tallyman.NoOutput || !strings.Contains(v.message, name) || time.Since(began) > 5*time.Second {
				t.Errorf("after %s: %+v", time.Since(began), v)
			}
		})
	}
}
