package telemetry_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/telemetry"
)

// sources are those of a server with little to do.
func sources() telemetry.Sources {
	return telemetry.Sources{
		Counts: func(context.Context) (map[string]map[tallyman.State]int, error) {
			return map[string]map[tallyman.State]int{"default": {tallyman.Queued: 3, tallyman.Failed: 2}, "team": {tallyman.Failed: 1}}, nil
		},
		Load: func(context.Context) (int, map[string]int, error) {
			return 3, map[string]int{tallyman.AgentKey("default", "exec"): 2, tallyman.AgentKey("team", `odd"agent`): 1}, nil
		},
		Queue: func(context.Context, int) ([]tallyman.Run, error) {
			return []tallyman.Run{
				{CreatedAt: time.Now().Add(-time.Minute), Waiting: &tallyman.Waiting{Reason: tallyman.AgentCap}},
				{CreatedAt: time.Now().Add(-time.Hour), Waiting: &tallyman.Waiting{Reason: tallyman.AgentCap}},
				{CreatedAt: time.Now()},
			}, nil
		},
		Ready:   func(context.Context) error { return nil },
		Version: "v9", MaxRunning: 4,
	}
}

func serve(m *telemetry.Metrics, s telemetry.Sources) http.Handler {
	mux := http.NewServeMux()
	m.Routes(mux, s)
	return mux
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

// scrape reads every figure of ours, by its name and labels.
func scrape(t *testing.T, h http.Handler) map[string]float64 {
	t.Helper()
	w := get(h, "/metrics")
	if w.Code != http.StatusOK {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	all := map[string]float64{}
	for line := range strings.Lines(w.Body.String()) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "tallyman_") {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all[line[:i]] = v
	}
	return all
}

func TestWhatIsKeptIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := scrape(t, serve(telemetry.New(), sources()))
		maps.DeleteFunc(got, func(name string, _ float64) bool {
			return strings.HasPrefix(name, "tallyman_start_seconds") || strings.HasPrefix(name, "tallyman_run_seconds")
		})
		want := map[string]float64{
			`tallyman_build_info{version="v9"}`:                         1,
			`tallyman_slots`:                                            4,
			`tallyman_slots_taken{agent="exec",namespace="default"}`:    2,
			`tallyman_slots_taken{agent="odd\"agent",namespace="team"}`: 1,
			`tallyman_runs_waiting{reason="AgentCap"}`:                  2,
			`tallyman_queue_oldest_seconds`:                             3600,
			`tallyman_runs{namespace="default",state="queued"}`:         3,
			`tallyman_runs{namespace="team",state="queued"}`:            0,
			`tallyman_runs{namespace="default",state="starting"}`:       0,
			`tallyman_runs{namespace="team",state="starting"}`:          0,
			`tallyman_runs{namespace="default",state="running"}`:        0,
			`tallyman_runs{namespace="team",state="running"}`:           0,
			`tallyman_runs{namespace="default",state="suspended"}`:      0,
			`tallyman_runs{namespace="team",state="suspended"}`:         0,
			`tallyman_runs{namespace="default",state="succeeded"}`:      0,
			`tallyman_runs{namespace="team",state="succeeded"}`:         0,
			`tallyman_runs{namespace="default",state="failed"}`:         2,
			`tallyman_runs{namespace="team",state="failed"}`:            1,
			`tallyman_runs{namespace="default",state="stopped"}`:        0,
			`tallyman_runs{namespace="team",state="stopped"}`:           0,
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

func TestAServerWithoutRunsHasFigures(t *testing.T) {
	s := sources()
	s.Counts = func(context.Context) (map[string]map[tallyman.State]int, error) { return nil, nil }
	got := scrape(t, serve(telemetry.New(), s))
	if n, there := got[`tallyman_runs{namespace="default",state="failed"}`]; !there || n != 0 {
		t.Errorf("failed runs: %v, told %t", n, there)
	}
}

func TestTheProcessIsShownToo(t *testing.T) {
	body := get(serve(telemetry.New(), sources()), "/metrics").Body.String()
	for _, name := range []string{"go_goroutines ", "process_resident_memory_bytes ", "# HELP tallyman_runs_waiting "} {
		if !strings.Contains(body, "\n"+name) {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestEndsAreCounted(t *testing.T) {
	m := telemetry.New()
	h := serve(m, sources())
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	started, ended := created.Add(2*time.Second), created.Add(12*time.Second)
	run := tallyman.Run{
		Namespace: "team", Agent: "exec", State: tallyman.Succeeded, Reason: tallyman.Completed, CreatedAt: created, StartedAt: &started, EndedAt: &ended,
		Usage: tallyman.Usage{InputTokens: 10, OutputTokens: 20, CacheReadTokens: 30, CacheWriteTokens: 40, CostUSD: 0.25, CostSource: tallyman.CostHarness},
	}
	m.Ended(run)
	m.Ended(run)
	m.Ended(tallyman.Run{Namespace: "team", Agent: "exec", State: tallyman.Stopped, Reason: tallyman.ReasonStopped, CreatedAt: created, EndedAt: &ended}) // it never started
	got := scrape(t, h)
	for name, want := range map[string]float64{
		`tallyman_runs_ended_total{agent="exec",namespace="team",reason="Completed",state="succeeded"}`: 2,
		`tallyman_runs_ended_total{agent="exec",namespace="team",reason="Stopped",state="stopped"}`:     1,
		`tallyman_tokens_total{agent="exec",kind="input",namespace="team"}`:                             20,
		`tallyman_tokens_total{agent="exec",kind="output",namespace="team"}`:                            40,
		`tallyman_tokens_total{agent="exec",kind="cache_read",namespace="team"}`:                        60,
		`tallyman_tokens_total{agent="exec",kind="cache_write",namespace="team"}`:                       80,
		`tallyman_cost_usd_total{agent="exec",namespace="team",source="harness"}`:                       0.5,
		`tallyman_start_seconds_count`: 2,
		`tallyman_start_seconds_sum`:   4,
		`tallyman_run_seconds_count`:   2,
		`tallyman_run_seconds_sum`:     20,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (there: %v), want %v", name, v, ok, want)
		}
	}
}

func TestARunThatUsedNothingAddsNoFigures(t *testing.T) {
	m := telemetry.New()
	m.Ended(tallyman.Run{Namespace: "team", Agent: "exec", State: tallyman.Failed, Reason: tallyman.InvalidSpec, Usage: tallyman.Usage{InputTokens: -1, CostUSD: -1}})
	for name := range scrape(t, serve(m, sources())) {
		if strings.HasPrefix(name, "tallyman_tokens_total") || strings.HasPrefix(name, "tallyman_cost_usd_total") {
			t.Errorf("%s is shown", name)
		}
	}
}

func TestWhatCannotBeReadFailsTheScrape(t *testing.T) {
	broken := errors.New("disk /dev/x")
	for name, fail := range map[string]func(*telemetry.Sources){
		"counts": func(s *telemetry.Sources) {
			s.Counts = func(context.Context) (map[string]map[tallyman.State]int, error) { return nil, broken }
		},
		"load": func(s *telemetry.Sources) {
			s.Load = func(context.Context) (int, map[string]int, error) { return 0, nil, broken }
		},
		"queue": func(s *telemetry.Sources) {
			s.Queue = func(context.Context, int) ([]tallyman.Run, error) { return nil, broken }
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := sources()
			fail(&s)
			h := serve(telemetry.New(), s)
			for range 2 {
				if w := get(h, "/metrics"); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "disk /dev/x") {
					t.Errorf("scrape: %d %.200s", w.Code, w.Body)
				}
			}
			if w := get(h, "/healthz"); w.Code != http.StatusOK {
				t.Errorf("healthz: %d", w.Code)
			}
		})
	}
}

func TestHealthAndReadiness(t *testing.T) {
	s := sources()
	var why error
	s.Ready = func(context.Context) error { return why }
	h := serve(telemetry.New(), s)
	answers := func() []string {
		var all []string
		for _, path := range []string{"/healthz", "/readyz"} {
			w := get(h, path)
			all = append(all, strconv.Itoa(w.Code)+" "+strings.TrimSpace(w.Body.String()))
		}
		return all
	}
	if got := answers(); !slices.Equal(got, []string{"200 ok", "200 ready"}) {
		t.Errorf("ready: %q", got)
	}
	why = errors.New("the store does not answer")
	if got := answers(); !slices.Equal(got, []string{"200 ok", "503 not ready: the store does not answer"}) {
		t.Errorf("not ready: %q", got)
	}
}

func TestTheQueueIsLookedAtInPart(t *testing.T) {
	s := sources()
	asked := 0
	s.Queue = func(_ context.Context, perAgent int) ([]tallyman.Run, error) { asked = perAgent; return nil, nil }
	if got := scrape(t, serve(telemetry.New(), s)); asked != 50 || got["tallyman_queue_oldest_seconds"] != 0 {
		t.Errorf("asked for %d, oldest %v", asked, got["tallyman_queue_oldest_seconds"])
	}
}
