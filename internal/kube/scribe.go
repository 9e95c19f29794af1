package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tallyman-dev/tallyman"
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
	since time.Time // when the scribe first saw it at work, or ended
	done  bool
}

func newScribe(b *Backend) *scribe {
	return &scribe{backend: b, control: b.o.Control, history: b.o.History, wake: make(chan struct{}, 1), log: b.o.Log, pods: map[types.UID]*page{}}
}

// patience with a log that cannot be read: after it the attempt ends without
// the rest.
const logPatience = 30 * time.Second

// finished reports whether the journal of a bare Pod has all that it will
// have: its scribe says so, or has had its time. That counts from when it
// could begin: a Pod may have ended long ago, while no server was up.
func (s *scribe) finished(pod *corev1.Pod, now time.Time) bool {
	agent := agentStatus(pod)
	if agent == nil || agent.State.Terminated == nil || agent.State.Terminated.StartedAt.IsZero() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[pod.UID]
	if p == nil {
		return false // it is about to begin
	}
	since := p.since
	if ended := agent.State.Terminated.FinishedAt.Time; ended.After(since) {
		since = ended
	}
	return p.done || now.Sub(since) > logPatience
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
		if pod.Labels[labelRunner] != string(tallyman.RunnerBare) {
			continue
		}
		there[pod.UID] = true
		if s.pods[pod.UID] != nil || startOf(pod).IsZero() {
			continue
		}
		p := &page{since: time.Now()}
		s.pods[pod.UID] = p
		writing.Go(func() { s.follow(ctx, pod, p) })
	}
	for uid, p := range s.pods {
		if !there[uid] && p.done {
			delete(s.pods, uid)
		}
	}
}

// startOf is when a Pod's agent began, zero before that.
func startOf(pod *corev1.Pod) time.Time {
	agent := agentStatus(pod)
	switch {
	case agent == nil:
	case agent.State.Running != nil:
		return agent.State.Running.StartedAt.Time
	case agent.State.Terminated != nil:
		return agent.State.Terminated.StartedAt.Time
	}
	return time.Time{}
}

// follow writes a Pod's journal to its end, trying again what fails.
func (s *scribe) follow(ctx context.Context, pod *corev1.Pod, p *page) {
	ref, ours := refOf(pod.Labels)
	for wait := 100 * time.Millisecond; ours; wait = min(2*wait, 5*time.Second) {
		err := s.writeOnce(ctx, ref, pod)
		if code := tallyman.CodeOf(err); err == nil || code == tallyman.NotFound || code == tallyman.Stale {
			break // all is written, or it is not a Pod of this server's
		}
		if ctx.Err() != nil {
			return
		}
		s.log.WarnContext(ctx, "writing the journal of a Pod without a runner", "attempt", ref.String(), "err", err)
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

// entry is what one pass over a Pod's log is made of.
type entry struct {
	*scribe
	ref     tallyman.AttemptRef
	pod     *corev1.Pod
	journal string
	next    uint64
	epoch   int64
	place   place
	tail    []string // the last lines
	pending [][]byte
}

// writeOnce says hello for the Pod, brings its journal up to date and goes on
// with it until the agent has ended.
func (s *scribe) writeOnce(ctx context.Context, ref tallyman.AttemptRef, pod *corev1.Pod) error {
	e := &entry{scribe: s, ref: ref, pod: pod, journal: "pod-" + string(pod.UID)}
	err := s.backend.checkOwner(ctx, ref, pod)
	if err != nil {
		return err
	}
	if e.next, err = s.history.Next(ctx, e.journal); err != nil {
		return err
	}
	w, verdict, err := s.control.Greet(ctx, ref, tallyman.Proof{Pod: string(pod.UID)}, tallyman.Hello{JournalID: e.journal, LastCursor: e.next - 1})
	if err != nil || verdict != tallyman.HelloWelcome {
		return err
	}
	e.epoch = w.Epoch
	began := startOf(pod)
	if e.next == 1 {
		e.add(tallyman.Event{Type: tallyman.EventAgentStarted, Time: began})
		if err := e.flush(ctx); err != nil {
			return err
		}
	} else if e.place, err = s.placeOf(ctx, e.journal, e.next); err != nil {
		return err
	}
	if err := e.report(ctx, tallyman.Fact{Cursor: 1, Kind: tallyman.FactStarted, At: began}); err != nil {
		return err
	}
	if e.place.ended != nil {
		return e.report(ctx, *e.place.ended)
	}
	for {
		if _, err := e.read(ctx, true); err != nil {
			return err
		}
		end, err := e.ended(ctx)
		if err != nil {
			return err
		}
		if end == nil {
			continue
		}
		if err := e.readRest(ctx); err != nil && tallyman.CodeOf(err) != tallyman.NotFound {
			return err // where the Pod is gone by now, its end is known all the same
		}
		return e.finish(ctx, *end)
	}
}

// readRest reads what reaches the log only after its container has ended: a
// kubelet that follows does not wait for it. It is whole when it stays as it
// is.
func (e *entry) readRest(ctx context.Context) error {
	for {
		before := e.next
		half, err := e.read(ctx, false)
		if err != nil {
			return err
		}
		if e.next == before {
			if half != nil {
				e.write(*half)
			}
			return e.flush(ctx)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (e *entry) report(ctx context.Context, f tallyman.Fact) error {
	_, err := e.control.Report(ctx, e.ref, e.epoch, tallyman.ControlReport{Facts: []tallyman.Fact{f}})
	return err
}

// add puts an event at the end of the journal, durable with flush.
func (e *entry) add(ev tallyman.Event) {
	ev.Time = ev.Time.UTC().Truncate(time.Microsecond)
	e.pending = append(e.pending, ev.AppendJSON(nil))
}

func (e *entry) flush(ctx context.Context) error {
	if len(e.pending) == 0 {
		return nil
	}
	next, err := e.history.Append(ctx, e.journal, e.next, e.pending)
	if err != nil {
		return err
	}
	e.next, e.pending = next, nil
	return nil
}

// batch is how many lines become durable at once.
const batch = 256

// read reads the log from the place that the journal has reached, with follow
// until the container ends. It is an end that may be no end: a kubelet was
// started anew. A last line without an end of its own may be half of one: it
// is returned and not written.
func (e *entry) read(ctx context.Context, follow bool) (half *tallyman.Event, err error) {
	o := corev1.PodLogOptions{Container: tallyman.PodAgent, Follow: follow}
	if !e.place.at.IsZero() {
		o.SinceTime = timeFor(e.place.at)
	}
	body, err := e.backend.openLog(ctx, e.pod, o)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	lines, skip := newLogLines(body), e.place
	for {
		at, text, err := lines.next()
		fresh := text != nil && !skip.has(at)
		if err != nil {
			if fresh {
				half = new(lineEvent(at, text))
			}
			return half, errors.Join(e.flush(ctx), unlessEnd(err))
		}
		if fresh {
			e.write(lineEvent(at, text))
		}
		if len(e.pending) >= batch || !lines.more() {
			if err := e.flush(ctx); err != nil {
				return nil, err
			}
		}
	}
}

// write adds a line of the log.
func (e *entry) write(ev tallyman.Event) {
	e.place.pass(ev.Time)
	e.tail = append(e.tail[max(0, len(e.tail)-int(keptLines)+1):], cutTo(ev.Text, int(keptBytes)))
	e.add(ev)
}

// endPatience is how long the informers may take to hear of an end that the
// log knows already.
const endPatience = 10 * time.Second

// ended waits for the Pod's end to be known, nil when it goes on.
func (e *entry) ended(ctx context.Context) (*tallyman.Fact, error) {
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for until := time.Now().Add(endPatience); ; {
		scene, err := e.backend.seen.scene(e.ref, objectOf(e.pod))
		if err != nil {
			return nil, err
		}
		if scene.Pod == nil || scene.Pod.UID != e.pod.UID {
			return nil, tallyman.Errorf(tallyman.NotFound, "Pod %s is gone", e.pod.Name)
		}
		scene.Made, scene.Now = true, time.Now()
		if o := Look(scene); o.Gone && o.Cause != nil {
			return e.verdict(scene.Pod, *o.Cause), nil
		}
		if time.Now().After(until) {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-t.C:
		}
	}
}

// verdict is the last fact of a bare attempt.
func (e *entry) verdict(pod *corev1.Pod, c tallyman.Cause) *tallyman.Fact {
	out := &tallyman.Outcome{Reason: c.Reason, Message: c.Message, ExitCode: c.ExitCode, Signal: c.Signal, Started: true}
	at := time.Now()
	if agent := agentStatus(pod); agent != nil && agent.State.Terminated != nil {
		if out.Reason == tallyman.Completed {
			out.Result = agent.State.Terminated.Message
		}
		if pod.DeletionTimestamp == nil {
			at = agent.State.Terminated.FinishedAt.Time
		}
	}
	return &tallyman.Fact{Kind: tallyman.FactFinal, At: at, Outcome: out}
}

// finish writes the journal's last event and tells it.
func (e *entry) finish(ctx context.Context, f tallyman.Fact) error {
	for _, line := range e.tail {
		f.Outcome.OutputTail += line + "\n"
	}
	agent := tallyman.ContainerState{Name: tallyman.PodAgent, Kind: tallyman.AgentContainer, ExitCode: f.Outcome.ExitCode, Output: f.Outcome.OutputTail}
	cause := notExecutable(&tallyman.Cause{Reason: f.Outcome.Reason, Message: f.Outcome.Message},
		&tallyman.Evidence{Node: e.pod.Spec.NodeName, Containers: []tallyman.ContainerState{agent}})
	f.Outcome.Reason, f.Outcome.Message = cause.Reason, cause.Message
	data, err := json.Marshal(f.Outcome)
	if err != nil {
		return fmt.Errorf("encode the outcome: %w", err)
	}
	e.add(tallyman.Event{Type: tallyman.EventRunnerEnded, Time: f.At, Data: data})
	f.Cursor = e.next
	if err := e.flush(ctx); err != nil {
		return err
	}
	return e.report(ctx, f)
}
