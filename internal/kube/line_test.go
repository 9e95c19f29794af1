package kube

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
)

// While the API server is away nothing becomes of what waits for it, whatever
// memory says; what is at work, or has ended, is as it was.
func TestWhatWaitsWhileTheClusterIsAway(t *testing.T) {
	waiting := podThat(corev1.PodPending, tallyman.RunnerInject, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}})
	running := podThat(corev1.PodRunning, tallyman.RunnerInject, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	ended := podThat(corev1.PodFailed, tallyman.RunnerInject, terminated(3))
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		journal string
		waits   bool
	}{
		"it waits":                {waiting, "", true},
		"nobody has heard of it":  {running, "", false},
		"it is at work":           {running, "J", false},
		"memory is behind":        {waiting, "J", false},
		"it has ended by itself":  {ended, "J", false},
		"it could not even begin": {ended, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := known(t, Options{}, []client.Object{c.pod.DeepCopy()}, c.pod)
			refused := errors.New("connection refused")
			a := tallyman.Attempt{RunID: attempt.RunID, Number: 1, Object: "agents/pod", Journal: c.journal}
			for _, away := range []bool{true, false} {
				b.line.down.Store(nil)
				if away {
					b.line.down.Store(&refused)
				}
				_, err := b.Observe(t.Context(), a)
				var e *tallyman.Error
				if waits := errors.As(err, &e) && e.Wait == tallyman.NoBackend; waits != (c.waits && away) || !waits && err != nil {
					t.Errorf("away: %t, it says %v", away, err)
				}
			}
		})
	}
}

// Who does not wait for an answer knows nothing of the line; who has waited long
// enough does.
func TestARequestThatIsGivenUp(t *testing.T) {
	left, leave := context.WithCancel(t.Context())
	leave()
	late, end := context.WithTimeout(t.Context(), 0)
	defer end()
	for ctx, down := range map[context.Context]bool{t.Context(): true, left: false, late: true} {
		l := &line{}
		fails := l.watched(roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("no answer") }))
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:1", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fails.RoundTrip(request); err == nil || (l.err() != nil) != down {
			t.Errorf("%v: down: %v, want %t", ctx.Err(), l.err(), down)
		}
	}
}

// That the API server is away is known from what is asked of it, and that it
// is back from asking.
func TestAnAPIServerThatComesBack(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	address := server.Listener.Addr().String()
	b, err := New(Options{Config: &rest.Config{Host: server.URL}, Namespace: "agents", Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	ask := func() { _ = b.live.List(t.Context(), &corev1.PodList{}, client.InNamespace("agents")) }
	ask()
	if err := b.line.err(); err != nil {
		t.Errorf("what refuses is there: %v", err)
	}
	server.Close()
	ask()
	if b.line.err() == nil {
		t.Error("it is not known to be away")
	}
	go b.probe(t.Context())
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	again := httptest.NewUnstartedServer(server.Config.Handler)
	again.Listener = listener
	again.Start()
	defer again.Close()
	select {
	case <-b.Changed():
	case <-time.After(10 * time.Second):
		t.Error("it is not told that it is back")
	}
	if err := b.line.err(); err != nil {
		t.Errorf("it is back: %v", err)
	}
}
