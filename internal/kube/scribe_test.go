package kube

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
)

// office takes a scribe's journal and its facts. It refuses lines while it is
// full, and everything about journals while it is closed.
type office struct {
	mu      sync.Mutex
	full    bool
	closed  bool
	refused int
	lines   [][]byte
	facts   []tallyman.Fact
}

func (o *office) Next(context.Context, string) (uint64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return uint64(len(o.lines)) + 1, o.refuses(o.closed)
}

// refuses is called with the office locked.
func (o *office) refuses(does bool) error {
	if !does {
		return nil
	}
	o.refused++
	return errors.New("the disk is full")
}

func (o *office) Read(_ context.Context, _ string, _ uint64, fn func(uint64, []byte) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.refuses(o.closed); err != nil {
		return err
	}
	for i, line := range o.lines {
		if err := fn(uint64(i)+1, line); err != nil {
			return err
		}
	}
	return nil
}

func (o *office) Append(_ context.Context, _ string, _ uint64, lines [][]byte) (uint64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.refuses(o.full || o.closed); err != nil {
		return 0, err
	}
	o.lines = append(o.lines, lines...)
	return uint64(len(o.lines)) + 1, nil
}

func (o *office) Greet(context.Context, tallyman.AttemptRef, tallyman.Proof, tallyman.Hello) (tallyman.Welcome, tallyman.HelloVerdict, error) {
	return tallyman.Welcome{Epoch: 1}, tallyman.HelloWelcome, nil
}

func (o *office) Report(_ context.Context, _ tallyman.AttemptRef, _ int64, r tallyman.ControlReport) (tallyman.ControlAnswer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.facts = append(o.facts, r.Facts...)
	return tallyman.ControlAnswer{}, nil
}

func (o *office) opens() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.full, o.closed = false, false
}

// texts are what the journal has, by their type where they have no text.
func (o *office) texts(t *testing.T) (all []string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, line := range o.lines {
		var e tallyman.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		if e.Text == "" {
			e.Text = string(e.Type)
		}
		all = append(all, e.Text)
	}
	return all
}

// printed serves a Pod's log, until it is gone.
func printed(t *testing.T, b *Backend, log string) (gone func()) {
	t.Helper()
	var mu sync.Mutex
	there := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if there {
			_, _ = io.WriteString(w, log)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
	}))
	t.Cleanup(server.Close)
	core, err := corev1client.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	b.core = core
	return func() {
		mu.Lock()
		defer mu.Unlock()
		there = false
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not in 10 s: %s", what)
		}
	}
}

// A log that was read and is not kept yet is waited for, however long the
// agent has ended, and also where its Pod is gone meanwhile: what is known of
// its end is told then.
func TestABareLogThatHistoryRefuses(t *testing.T) {
	for name, c := range map[string]struct{ closed, goes bool }{
		"it takes no lines":      {false, false},
		"its Pod is deleted":     {false, true},
		"it answers nothing":     {true, false},
		"nor after the deletion": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := &office{full: true, closed: c.closed}
			pod := podThat(corev1.PodFailed, tallyman.RunnerBare, terminated(3))
			b := known(t, Options{Control: o, History: o, Object: func(context.Context, tallyman.AttemptRef) (string, error) { return "agents/pod", nil }}, []client.Object{pod.DeepCopy()}, pod)
			gone := printed(t, b, "2026-10-03T12:00:01.5Z hello\n")
			a := tallyman.Attempt{RunID: attempt.RunID, Number: 1, Object: "agents/pod", Journal: "pod-pod"}

			var writing sync.WaitGroup
			defer writing.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			b.scribe.look(ctx, &writing)
			b.scribe.mu.Lock()
			b.scribe.pods["pod"].since = time.Now().Add(-time.Hour)
			b.scribe.mu.Unlock()
			eventually(t, "it was refused", func() bool { o.mu.Lock(); defer o.mu.Unlock(); return o.refused >= 2 })
			if c.goes {
				gone()
				if err := b.seen.pods[0].GetIndexer().Delete(pod); err != nil {
					t.Fatal(err)
				}
				b.scribe.look(ctx, &writing)
			}
			if seen, err := b.Observe(t.Context(), a); err != nil || seen.Gone || !seen.Running || seen.Cause != nil || seen.StartedAt == nil {
				t.Errorf("while its log is not kept: %+v, %v", seen, err)
			}
			if err := b.Kill(t.Context(), a); err != nil || !c.goes && !b.has(t, pod) {
				t.Errorf("it is killed with its log: %v", err)
			}

			o.opens()
			eventually(t, "all is written", func() bool { return b.scribe.writing(a) == nil })
			want := []string{"agent.started", "hello", "runner.ended"}
			if c.goes {
				want = []string{"agent.started", "runner.ended"} // nobody can read it any more
			}
			if diff := cmp.Diff(want, o.texts(t)); diff != "" {
				t.Errorf("the journal: %s", diff)
			}
			last := o.facts[len(o.facts)-1]
			if last.Kind != tallyman.FactFinal || last.Outcome.Reason != tallyman.AgentError || *last.Outcome.ExitCode != 3 {
				t.Errorf("the last fact is %+v %+v", last, last.Outcome)
			}
		})
	}
}

// A Pod that is gone before its agent's end was seen has none to tell.
func TestABarePodThatIsGone(t *testing.T) {
	o := &office{}
	pod := podThat(corev1.PodRunning, tallyman.RunnerBare, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}})
	b := known(t, Options{Control: o, History: o, Object: func(context.Context, tallyman.AttemptRef) (string, error) { return "agents/pod", nil }}, nil)
	gone := printed(t, b, "")
	gone()
	p := &page{ref: attempt, pod: pod, since: noon}
	b.scribe.pods["pod"] = p
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	b.scribe.follow(ctx, p, pod)
	if diff := cmp.Diff([]string{"agent.started"}, o.texts(t)); diff != "" || !p.done {
		t.Errorf("done: %t, the journal: %s", p.done, diff)
	}
	seen, err := b.Observe(t.Context(), tallyman.Attempt{RunID: attempt.RunID, Number: 1, Object: "agents/pod", Journal: "pod-pod"})
	if err != nil || !seen.Gone || seen.Cause == nil || seen.Cause.Reason != tallyman.PodDeleted {
		t.Errorf("got %+v, %v", seen, err)
	}
}

// A server that takes over goes on with a journal: the words of a kubelet,
// which have no time, change nothing about what is read already, and the last
// lines are known whoever has written them.
func TestAJournalIsGoneOnWith(t *testing.T) {
	o := &office{}
	ended := podThat(corev1.PodFailed, tallyman.RunnerBare, terminated(3))
	const log = "2026-12-01T11:59:31.5Z first\n" + "failed to create fsnotify watcher: too many open files\n" + "2026-12-01T11:59:32.5Z second\n"
	for _, printedSoFar := range []string{log, log + "2026-12-01T11:59:33.5Z third\n"} {
		b := known(t, Options{Control: o, History: o, Object: func(context.Context, tallyman.AttemptRef) (string, error) { return "agents/pod", nil }}, nil, ended)
		printed(t, b, printedSoFar)
		e := &entry{scribe: b.scribe, page: &page{ref: attempt, pod: ended}, ref: attempt, pod: ended, journal: "pod-pod", next: uint64(len(o.lines)) + 1}
		var err error
		if e.place, err = b.scribe.placeOf(t.Context(), e.journal, e.next); err != nil {
			t.Fatal(err)
		}
		if _, err := e.read(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if len(o.lines) < 4 {
			continue
		}
		if err := e.finish(t.Context(), tallyman.Fact{Kind: tallyman.FactFinal, At: noon, Outcome: &tallyman.Outcome{Reason: tallyman.AgentError}}); err != nil {
			t.Fatal(err)
		}
	}
	words := []string{"first", "failed to create fsnotify watcher: too many open files", "second", "third"}
	if diff := cmp.Diff(append(words, "runner.ended"), o.texts(t)); diff != "" {
		t.Errorf("the journal: %s", diff)
	}
	if got := o.facts[len(o.facts)-1].Outcome.OutputTail; got != strings.Join(words, "\n")+"\n" {
		t.Errorf("its last lines are %q", got)
	}
}
