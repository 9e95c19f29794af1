package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/kube/observe"
)

// entry is what one pass over a Pod's log is made of.
type entry struct {
	*scribe
	page    *page
	ref     tallyman.AttemptRef
	pod     *corev1.Pod
	journal string
	next    uint64
	epoch   int64
	place   place
	pending [][]byte
}

// writeOnce says hello for the Pod, brings its journal up to date and goes on
// with it until the agent has ended.
func (s *scribe) writeOnce(ctx context.Context, p *page, pod *corev1.Pod) error {
	ref := p.ref
	e := &entry{scribe: s, page: p, ref: ref, pod: pod, journal: "pod-" + string(pod.UID)}
	err := s.backend.checkOwner(ctx, ref, pod)
	if err != nil {
		return err
	}
	if e.next, err = s.history.Next(ctx, e.journal); err != nil {
		return refusal(err)
	}
	w, verdict, err := s.control.Greet(ctx, ref, tallyman.Proof{Pod: string(pod.UID)}, tallyman.Hello{JournalID: e.journal, LastCursor: e.next - 1})
	if err != nil || verdict != tallyman.HelloWelcome {
		return err
	}
	e.epoch = w.Epoch
	began := observe.StartOf(pod)
	if e.next == 1 {
		e.add(tallyman.Event{Type: tallyman.EventAgentStarted, Time: began})
		if err := e.flush(ctx); err != nil {
			return err
		}
	} else if e.place, err = s.placeOf(ctx, e.journal, e.next); err != nil {
		return refusal(err)
	}
	if err := e.report(ctx, tallyman.Fact{Cursor: 1, Kind: tallyman.FactStarted, At: began}); err != nil {
		return err
	}
	if e.place.ended != nil {
		return e.report(ctx, *e.place.ended)
	}
	for {
		if _, err := e.read(ctx, true); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		end, err := e.ended(ctx)
		if err != nil {
			return err
		}
		if end == nil {
			continue
		}
		if err := e.readRest(ctx); err != nil && !apierrors.IsNotFound(err) {
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
		return refusal(err)
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
	last, fresh := observe.StartOf(e.pod), e.place.at.IsZero()
	for {
		at, text, err := lines.next()
		if !at.IsZero() {
			last, fresh = at, !skip.has(at)
		} // else the kubelet itself has something to say: it goes with the line before
		if err != nil {
			if text != nil && fresh {
				half = new(lineEvent(last, text))
			}
			return half, errors.Join(e.flush(ctx), unlessEnd(err))
		}
		if text != nil && fresh {
			e.write(lineEvent(last, text))
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
	e.place.pass(ev)
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
		pod, err := e.endedPod(e.page)
		if err != nil {
			return nil, err
		}
		if pod != nil {
			o := observe.Look(observe.Scene{Pod: pod, Bare: true, Made: true, Now: e.backend.clock.now()})
			return e.verdict(pod, *o.Cause), nil
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
	at := e.backend.clock.now()
	if agent := observe.Agent(pod); agent != nil && agent.State.Terminated != nil {
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
	for _, line := range e.place.tail {
		f.Outcome.OutputTail += line + "\n"
	}
	agent := tallyman.ContainerState{Name: tallyman.PodAgent, Kind: tallyman.AgentContainer, ExitCode: f.Outcome.ExitCode, Output: f.Outcome.OutputTail}
	cause := observe.NotExecutable(&tallyman.Cause{Reason: f.Outcome.Reason, Message: f.Outcome.Message},
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
