package kube

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/kube/job"
)

// openLog opens what a container printed, each line with its time; with
// follow as it goes on, until the container ends.
func (b *Backend) openLog(ctx context.Context, pod *corev1.Pod, o corev1.PodLogOptions) (io.ReadCloser, error) {
	o.Timestamps = true
	body, err := b.core.Pods(pod.Namespace).GetLogs(pod.Name, &o).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the log of Pod %s: %w", pod.Name, err)
	}
	return body, nil
}

// How much of what a container printed is kept with its attempt.
const (
	keptLines    = int64(50)
	keptBytes    = int64(8 << 10)
	tailPatience = 5 * time.Second
)

// addOutput adds to the evidence of an ended attempt what no journal has: what
// its init containers and sidecars printed last, and its agent's container
// where no runner has said hello. What cannot be read is said in its place.
func (b *Backend) addOutput(ctx context.Context, pod *corev1.Pod, e *tallyman.Evidence, silent bool) {
	ctx, cancel := context.WithTimeout(ctx, tailPatience)
	defer cancel()
	for i := range e.Containers {
		c := &e.Containers[i]
		quiet := c.Name == job.InitContainer && c.ExitCode != nil && *c.ExitCode == 0 // it says nothing
		if c.State == "waiting" || quiet || c.Kind == tallyman.AgentContainer && !silent {
			continue
		}
		text, err := b.tail(ctx, pod, c.Name)
		if err != nil {
			text = "(" + err.Error() + ")"
		}
		c.Output = text
	}
}

// tail is the last of what a container printed.
func (b *Backend) tail(ctx context.Context, pod *corev1.Pod, container string) (string, error) {
	body, err := b.openLog(ctx, pod, corev1.PodLogOptions{Container: container, TailLines: new(keptLines)})
	if err != nil {
		return "", err
	}
	defer body.Close()
	lines := newLogLines(body)
	var all []string
	size := 0
	for {
		_, text, err := lines.next()
		if text != nil {
			line := cutTo(strings.ToValidUTF8(string(text), "\uFFFD"), int(keptBytes))
			all = append(all, line)
			for size += len(line) + 1; size > int(keptBytes); all = all[1:] {
				size -= len(all[0]) + 1
			}
		}
		if errors.Is(err, io.EOF) {
			return strings.Join(all, "\n"), nil
		}
		if err != nil {
			return "", fmt.Errorf("read the log of Pod %s: %w", pod.Name, err)
		}
	}
}

// cutTo is the beginning of a text, valid as UTF-8.
func cutTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-len("…")], "") + "…"
}

// logLines reads a log with times: lines of any length, of which MaxRaw bytes
// are kept.
type logLines struct{ in *bufio.Reader }

func newLogLines(r io.Reader) *logLines { return &logLines{in: bufio.NewReaderSize(r, 64<<10)} }

// next returns a line and its time, which is zero for one that has none. The
// text is good until the next call. What is left at the end is a line too; it
// comes with the error of the end, and more of it may be read another time.
func (l *logLines) next() (at time.Time, text []byte, err error) {
	var line []byte
	dropped := 0
	var end error
	for {
		part, err := l.in.ReadSlice('\n')
		switch room := tallyman.MaxRaw - len(line); {
		case line == nil && err == nil:
			line = part
		case len(part) <= room:
			line = append(line, part...)
		default:
			line, dropped = append(line, part[:room]...), dropped+len(part)-room
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		end = err
		break
	}
	if end != nil && len(line) == 0 {
		return at, nil, end
	}
	line = bytes.TrimSuffix(line, []byte("\n"))
	stamp, text, ok := bytes.Cut(line, []byte(" "))
	if at, err = time.Parse(time.RFC3339Nano, string(stamp)); err != nil || !ok {
		at, text = time.Time{}, line
	}
	if dropped > 0 {
		text = fmt.Appendf(text, "… [%d bytes cut]", dropped)
	}
	return at, text, end
}

// more reports whether a next line is near, so that it is worth waiting for.
func (l *logLines) more() bool { return l.in.Buffered() > 0 }
