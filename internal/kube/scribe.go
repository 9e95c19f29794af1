package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/kube/job"
	"github.com/tallyman-dev/tallyman/internal/kube/observe"
)

// Control is who learns of an attempt, as a runner would tell it.
type Control interface {
	Greet(ctx context.Context, ref tallyman.AttemptRef, p tallyman.Proof, h tallyman.Hello) (tallyman.Welcome, tallyman.HelloVerdict, error)
	Report(ctx context.Context, ref tallyman.AttemptRef, epoch int64, r tallyman.ControlReport) (tallyman.ControlAnswer, error)
}

// History is where journals are written.
type History interface {
	Next(ctx context.Context, journal string) (uint64, error)
	Read(ctx context.Context, journal string, after uint64, fn func(cursor uint64, line []byte) error) error
	Append(ctx context.Context, journal string, from uint64, lines [][]byte) (next uint64, err error)
}

// scribe writes the journals of attempts whose Pod has no runner, from what
// their agent's container prints: what is not in History yet is read again,
// whoever has written the rest.
type scribe struct {
	backend *Backend
	control Control
	history History
	wake    chan struct{}
	log     *slog.Logger

	mu   sync.Mutex
	pods map[types.UID]*page
}

// page is the scribe's own word about a Pod.
type page struct {
	ref   tallyman.AttemptRef
	pod   *corev1.Pod // as it was seen last
	since time.Time   // by our own clock: when it could begin, its end was seen, or History last refused it
	done  bool
}

// sees keeps the Pod as it is now.
func (p *page) sees(pod *corev1.Pod) {
	if observe.HasEnded(pod) && !observe.HasEnded(p.pod) {
		p.since = time.Now()
	}
	p.pod = pod
}

func newScribe(b *Backend) *scribe {
	return &scribe{backend: b, control: b.o.Control, history: b.o.History, wake: make(chan struct{}, 1), log: b.o.Log, pods: map[types.UID]*page{}}
}

// patience with a log that cannot be read: after it the attempt ends without
// the rest.
const logPatience = 30 * time.Second

// errRefused is of lines that were read and that History does not take. They
// are not given up: no patience runs out meanwhile.
var errRefused = errors.New("History does not take it")

// refusal is an error of History's.
func refusal(err error) error { return fmt.Errorf("%w: %w", errRefused, err) }

// finished reports whether the journal of a bare Pod that has ended has all
// that it will have: its scribe says so, or has had its time. That counts from
// what this process has seen: a Pod may have ended while no server was up, and
// by another clock.
func (s *scribe) finished(pod *corev1.Pod) bool {
	agent := observe.Agent(pod)
	if agent == nil || agent.State.Terminated == nil || observe.StartOf(pod).IsZero() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[pod.UID]
	if p == nil {
		return false // it is about to begin
	}
	return p.done || observe.HasEnded(p.pod) && time.Since(p.since) > logPatience
}

// writing is the Pod of an attempt as it was seen last, where it has ended and
// its journal is not finished: the Pod itself may be gone by now.
func (s *scribe) writing(a tallyman.Attempt) *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pods {
		if p.ref == a.Ref() && observe.ObjectOf(p.pod) == a.Object && !p.done && observe.HasEnded(p.pod) {
			return p.pod
		}
	}
	return nil
}

// run writes until ctx ends.
func (s *scribe) run(ctx context.Context) {
	var writing sync.WaitGroup
	defer writing.Wait()
	t := time.NewTicker(2 * time.Second)
	defer t.Stop()
	for {
		if s.backend.seen.ready() == nil {
			s.look(ctx, &writing)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-t.C:
		}
	}
}

// look begins a page for each bare Pod whose agent has begun, and forgets the
// Pods that are gone.
func (s *scribe) look(ctx context.Context, writing *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := map[types.UID]bool{}
	for pod := range s.backend.seen.pods.all() {
		if pod.Labels[job.LabelRunner] != string(tallyman.RunnerBare) {
			continue
		}
		there[pod.UID] = true
		if p := s.pods[pod.UID]; p != nil {
			p.sees(pod)
			continue
		}
		ref, ours := job.RefOf(pod.Labels)
		if !ours || observe.StartOf(pod).IsZero() {
			continue
		}
		p := &page{ref: ref, pod: pod, since: time.Now()}
		s.pods[pod.UID] = p
		writing.Go(func() { s.follow(ctx, p, pod) })
	}
	for uid, p := range s.pods {
		if !there[uid] && p.done {
			delete(s.pods, uid)
		}
	}
}

// follow writes a Pod's journal to its end, trying again what fails.
func (s *scribe) follow(ctx context.Context, p *page, pod *corev1.Pod) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := s.writeOnce(ctx, p, pod)
		if code := tallyman.CodeOf(err); err == nil || code == tallyman.NotFound || code == tallyman.Stale {
			break // all is written, or it is not a Pod of this server's
		}
		if ctx.Err() != nil {
			return
		}
		s.log.WarnContext(ctx, "writing the journal of a Pod without a runner", "attempt", p.ref.String(), "err", err)
		if errors.Is(err, errRefused) {
			s.mu.Lock()
			p.since = time.Now()
			s.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
	s.mu.Lock()
	p.done = true
	s.mu.Unlock()
	s.backend.tell()
}

// endedPod is a page's Pod once its agent has ended, nil before; a Pod that is
// gone is what it was when it was seen last.
func (s *scribe) endedPod(p *page) (*corev1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, there := s.backend.seen.pods.get(client.ObjectKeyFromObject(p.pod))
	switch {
	case there && now.UID == p.pod.UID:
		p.sees(now)
	case !observe.HasEnded(p.pod):
		return nil, tallyman.Errorf(tallyman.NotFound, "Pod %s is gone", p.pod.Name)
	}
	if !observe.HasEnded(p.pod) {
		return nil, nil
	}
	return p.pod, nil
}
