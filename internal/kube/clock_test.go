package kube

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Each answer tells whole seconds, rounded down, and is under way for a while.
func TestTheClustersClock(t *testing.T) {
	const second = time.Second
	began := time.Now()
	for name, c := range map[string]struct {
		answers [][2]time.Duration // after began: what was told, and when that was heard
		at      time.Duration
		want    time.Duration
	}{
		"one answer":                   {[][2]time.Duration{{-3600 * second, 0}}, 10 * second, -3590 * second},
		"a later second is nearer":     {[][2]time.Duration{{0, 900 * time.Millisecond}, {1 * second, 1100 * time.Millisecond}}, 2100 * time.Millisecond, 2 * second},
		"an older one changes nothing": {[][2]time.Duration{{1 * second, 1100 * time.Millisecond}, {2 * second, 2900 * time.Millisecond}}, 3100 * time.Millisecond, 3 * second},
		"it was set on":                {[][2]time.Duration{{0, 0}, {3600 * second, second}}, 2 * second, 3601 * second},
		"it was set back":              {[][2]time.Duration{{0, 0}, {-3600 * second, second}}, 2 * second, -3599 * second},
	} {
		var k clock
		for _, a := range c.answers {
			k.hear(began.Add(a[0]), began.Add(a[1]))
		}
		got := k.told.Add(began.Add(c.at).Sub(k.heard)).Sub(began)
		if got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	var k clock
	if d := time.Since(k.now()); d > second {
		t.Errorf("before any answer it is %v behind", d)
	}
}

// A backend goes by the time of the answers that it gets.
func TestABackendHearsTheClock(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", noon.UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	b, err := New(Options{Config: &rest.Config{Host: server.URL}, Namespace: "agents", Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.live.List(t.Context(), &corev1.PodList{}, client.InNamespace("agents")); err == nil {
		t.Fatal("it was not refused")
	}
	if d := b.clock.now().Sub(noon); d < 0 || d > 10*time.Second {
		t.Errorf("it is %v after noon", d)
	}
}

func TestClocksApart(t *testing.T) {
	for d, says := range map[time.Duration]string{0: "agree", time.Minute: "agree", -time.Minute: "agree", time.Hour: "1h0m0s ahead", -time.Hour: "1h0m0s behind"} {
		f := compare(noon.Add(d), noon)
		if !strings.Contains(f.Found, says) || f.Broken != (d.Abs() > time.Minute) {
			t.Errorf("%v: %+v", d, f)
		}
	}
}
