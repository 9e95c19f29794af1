package kube

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/kube/observe"
)

func TestLinesOfALog(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	in := "2026-12-01T12:00:00.123456789Z one\n2026-12-01T12:00:00.5Z \n2026-12-01T12:00:01Z two words\r\n" +
		"failed to create fsnotify watcher\n2026-12-01T12:00:02Z " + long + "\n2026-12-01T12:00:03Z unended"
	want := []string{
		"12:00:00.123456789 one", "12:00:00.5 ", "12:00:01 two words\r", "00:00:00 failed to create fsnotify watcher",
		"12:00:02 " + long, "12:00:03 unended",
	}
	for name, r := range map[string]io.Reader{"whole": strings.NewReader(in), "a byte at a time": iotest.OneByteReader(strings.NewReader(in))} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for lines := newLogLines(r); ; {
				at, text, err := lines.next()
				if text != nil {
					got = append(got, at.Format("15:04:05.999999999 ")+string(text))
				}
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestALineOfALogWithoutAnEnd(t *testing.T) {
	lines := newLogLines(io.LimitReader(repeat('y'), tallyman.MaxRaw+12_345))
	_, text, err := lines.next()
	if want := "… [12345 bytes cut]"; err != io.EOF || !strings.HasSuffix(string(text), want) || len(text) != tallyman.MaxRaw+len(want) {
		t.Errorf("%d bytes that end in %q: %v", len(text), text[max(0, len(text)-40):], err)
	}
}

type repeat byte

func (r repeat) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(r)
	}
	return len(b), nil
}

// However a journal was interrupted, reading the log again from the second of
// its last line brings each line once.
func TestALogIsGoneOnWith(t *testing.T) {
	at := func(micros int) time.Time { return noon.Add(time.Duration(micros) * time.Microsecond) }
	log := []time.Time{at(1), at(1), at(1), at(5), at(9), at(9), at(2_000_000), at(2_000_000)}
	for have := range len(log) + 1 {
		var p place
		for _, line := range log[:have] {
			p.pass(tallyman.Event{Time: line})
		}
		skip := p
		var fresh []string
		for i, line := range log {
			if have > 0 && line.Before(p.at.Truncate(time.Second)) {
				continue // the cluster does not send it
			}
			if !skip.has(line.Add(300)) { // a log knows nanoseconds, a journal does not
				fresh = append(fresh, fmt.Sprint(i))
			}
		}
		var want []string
		for i := have; i < len(log); i++ {
			want = append(want, fmt.Sprint(i))
		}
		if diff := cmp.Diff(want, fresh); diff != "" {
			t.Errorf("with %d lines:\n%s", have, diff)
		}
	}
}

func TestALineThatIsNoText(t *testing.T) {
	e := lineEvent(noon, []byte("a\xffb"))
	if e.Text != "a\uFFFDb" || string(e.RawB64) != "a\xffb" {
		t.Errorf("got %+v", e)
	}
}

// The journal of a bare Pod is waited for from when it could be begun, or its
// end was seen: one that has ended long ago, while no server was up, has its
// time too, and so has one whose node has another clock.
func TestAnEndWaitsForItsJournal(t *testing.T) {
	isRunning := podThat(corev1.PodRunning, tallyman.RunnerBare, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}})
	ended := podThat(corev1.PodFailed, tallyman.RunnerBare, terminated(3))
	never := podThat(corev1.PodPending, tallyman.RunnerBare, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}})
	unable := ended.DeepCopy()
	observe.Agent(unable).State.Terminated.StartedAt = metav1.Unix(0, 0)
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		first *corev1.Pod // as its scribe saw it an hour ago, nil: it did not
		ago   time.Duration
		done  bool
		want  bool
	}{
		"it was never at work":           {pod: never, want: true},
		"it could not be started":        {pod: unable, want: true},
		"its scribe is about to begin":   {pod: ended},
		"its end was seen at once":       {pod: ended, first: ended, want: true},
		"its end has just been seen":     {pod: ended, first: isRunning, ago: 29 * time.Second},
		"nobody could read what it said": {pod: ended, first: isRunning, ago: 31 * time.Second, want: true},
		"all is written":                 {pod: ended, first: isRunning, ago: time.Second, done: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scribe{pods: map[types.UID]*page{}}
				if c.first != nil {
					p := &page{pod: c.first, since: time.Now(), done: c.done}
					s.pods["pod"] = p
					time.Sleep(time.Hour)
					p.sees(c.pod)
					time.Sleep(c.ago)
				}
				if got := s.finished(c.pod); got != c.want {
					t.Errorf("finished: %t", got)
				}
			})
		})
	}
}
