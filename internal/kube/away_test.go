package kube

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tallyman-dev/tallyman"
)

// A server starts while its cluster is away, says what it waits for, and ends
// when it is told to.
func TestAClusterThatIsAway(t *testing.T) {
	b, err := New(Options{Config: &rest.Config{Host: "https://127.0.0.1:1"}, Namespace: "agents", Log: slog.New(slog.DiscardHandler)})
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
