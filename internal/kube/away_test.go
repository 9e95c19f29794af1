package kube

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tallyman-dev/tallyman"
)

// A server starts while its cluster is away, says what it waits for, and ends
// when it is told to.
func TestAClusterThatIsAway(t *testing.T) {
	b, err := New(Options{Config: &rest.Config{Host: "https://127.0.0.1:1"}, Namespace: "agents", Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	a := tallyman.Attempt{RunID: "01KBCB7TMKFCGE0000000000AB", Number: 1}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, err := b.Observe(ctx, a)
		var e *tallyman.Error
		if !errors.As(err, &e) || e.Wait != tallyman.NoBackend {
			t.Fatalf("got %v", err)
		}
		if strings.Contains(e.Message, "connection refused") {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("it does not say why: %v", err)
		}
	}
	time.Sleep(2 * time.Second) // so that what tries again pauses
	began := time.Now()
	cancel()
	if err := <-done; err != nil || time.Since(began) > time.Second {
		t.Errorf("it ended with %v, after %v", err, time.Since(began))
	}
}

// A namespace that may not be looked at keeps nobody from seeing the others:
// only of what was made there nothing is known, and of what may have been.
func TestANamespaceThatMayNotBeLookedAt(t *testing.T) {
	running := podThat(corev1.PodRunning, tallyman.RunnerInject, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now())}})
	for name, c := range map[string]struct {
		memory  []client.Object
		attempt tallyman.Attempt
		want    tallyman.Observation
		says    string
	}{
		"it is at work where we look":       {[]client.Object{running}, tallyman.Attempt{Object: "agents/pod"}, tallyman.Observation{Running: true}, ""},
		"it was never started":              {nil, tallyman.Attempt{}, tallyman.Observation{}, ""},
		"what was made for it is gone":      {nil, tallyman.Attempt{Object: "agents/pod"}, tallyman.Observation{Gone: true}, ""},
		"what was made for it is hidden":    {nil, tallyman.Attempt{Object: "hidden/pod"}, tallyman.Observation{}, "no role in hidden"},
		"its namespace is ours no more":     {nil, tallyman.Attempt{Object: "old/pod"}, tallyman.Observation{}, "add it to --namespaces"},
		"its runner was heard from nowhere": {nil, tallyman.Attempt{Journal: "J"}, tallyman.Observation{}, "no role in hidden"},
	} {
		t.Run(name, func(t *testing.T) {
			b := known(t, Options{Namespaces: []string{"hidden"}}, nil, c.memory...)
			forbidden := error(apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no role in hidden")))
			b.seen.places[1].broken.Store(&forbidden)
			b.live = interceptor.NewClient(b.live.(client.WithWatch), interceptor.Funcs{List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
				if (&client.ListOptions{}).ApplyOptions(o).Namespace == "hidden" {
					return forbidden
				}
				return w.List(ctx, list, o...)
			}})
			c.attempt.RunID, c.attempt.Number = attempt.RunID, 1
			o, err := b.Observe(t.Context(), c.attempt)
			if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says %v", err)
			}
			if o.Running != c.want.Running || o.Gone != c.want.Gone {
				t.Errorf("got %+v", o)
			}
		})
	}
}
