package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/client"
	"github.com/tallyman-dev/tallyman/internal/render"
)

// watch shows a run until it has ended and returns its exit code.
func (c *command) watch(ctx context.Context, s *session, run tallyman.Run) error {
	interrupted := c.stopOnInterrupt(ctx, s, run)
	c.outlive(s)
	quiet := c.output != ""
	show := c.transcript(run, quiet)
	if !quiet {
		fmt.Fprintf(c.errOut, "%s %s\n", run.Name, run.State)
	}
	err := s.Events(ctx, run.ID, client.EventOptions{
		Follow: true, Deltas: !quiet,
		Lost: func(error) error { return s.ensure(ctx) },
	}, show)
	switch {
	case run.State.Terminal() && tallyman.CodeOf(err) == tallyman.NotFound:
		// A key has brought what is left of a run that was removed.
		if !quiet {
			fmt.Fprintln(c.errOut, "the run was removed; this is how it ended")
		}
	case errors.Is(err, syscall.EPIPE):
		fmt.Fprintf(c.errOut, "nobody reads on: %s goes on by itself; follow it with: tallyman logs -f %[1]s\n", run.Name)
		return &exitError{code: ExitFailed}
	default:
		now, asked := s.Run(ctx, run.ID)
		if err != nil && (asked != nil || !now.State.Terminal()) {
			return err
		}
		if asked != nil {
			return asked
		}
		if run = now; err != nil { // what is missing of the transcript hides no end
			fmt.Fprintf(c.errOut, "tallyman: %v; once they are here this shows them: tallyman logs %s\n", err, run.Name)
		}
	}
	if err := c.tellEnd(run); err != nil {
		return err
	}
	return endOf(run, interrupted())
}

// tellEnd prints the run as -o says, and the block without it.
func (c *command) tellEnd(run tallyman.Run) error {
	if c.output != "" {
		return c.printRun(run)
	}
	return c.summary(run)
}

// endOf is the exit of a command that waited for a run.
func endOf(run tallyman.Run, interrupted bool) error {
	code := ExitOK
	switch {
	case run.State == tallyman.Succeeded:
		return nil
	case run.State == tallyman.Stopped && interrupted:
		code = ExitInterrupted
	case run.State == tallyman.Stopped:
		code = ExitStopped
	case run.Reason == tallyman.DeadlineExceeded || run.Reason == tallyman.IdleTimeout:
		code = ExitTimeout
	default:
		code = ExitFailed
	}
	return &exitError{code: code}
}

// stopPatience is how long leaving at once waits for the stop to be recorded.
const stopPatience = 300 * time.Millisecond

// stopOnInterrupt stops the run at the first Ctrl-C and leaves at the second.
// The function returned says whether there was one.
func (c *command) stopOnInterrupt(ctx context.Context, s *session, run tallyman.Run) func() bool {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	asked := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		close(asked)
		fmt.Fprintf(c.errOut, "\nstopping %s; again to leave at once\n", run.Name)
		recorded := make(chan struct{})
		go func() {
			defer close(recorded)
			if _, err := s.Stop(ctx, run.ID); err != nil {
				fmt.Fprintln(c.errOut, "tallyman: stopping:", err)
			}
		}()
		<-signals
		select {
		case <-recorded:
		case <-time.After(stopPatience):
		}
		if err := s.abandon(); err != nil {
			fmt.Fprintln(c.errOut, "tallyman:", err)
		}
		os.Exit(ExitInterrupted)
	}()
	return func() bool {
		select {
		case <-asked:
			return true
		default:
			return false
		}
	}
}

// outlive keeps a run looked after when its terminal closes or its reader
// leaves: what this process has served goes on in the background.
func (c *command) outlive(s *session) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // so that writing says it
	if signal.Ignored(syscall.SIGHUP) {
		return
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	go func() {
		<-hangup
		if err := s.abandon(); err != nil {
			fmt.Fprintln(c.errOut, "tallyman:", err)
		}
		os.Exit(128 + int(syscall.SIGHUP))
	}()
}

// transcript returns a function that prints events as they come.
func (c *command) transcript(run tallyman.Run, quiet bool) func([]byte) error {
	if quiet {
		return func([]byte) error { return nil }
	}
	exec := run.Harness == "exec"
	terminal := isTerminal(c.out)
	r := render.New(render.Options{Exec: exec})
	p := render.NewPrinter(c.out, render.Style{
		Exec: exec, Terminal: terminal, Colour: terminal && c.env.get("NO_COLOR") == "",
		Width: width(c.out), ASCII: !utf8Locale(c.env), Err: c.errOut,
	})
	return func(line []byte) error {
		if strings.HasPrefix(string(line[:min(len(line), len(tallyman.Provisional))]), tallyman.Provisional) {
			if !terminal {
				return nil
			}
			var d tallyman.Delta
			if err := json.Unmarshal(line, &d); err != nil {
				return nil // it is for display only
			}
			return p.Delta(d)
		}
		id, e, err := decodeEvent(line)
		if err != nil {
			return err
		}
		return p.Print(r.Event(id, e))
	}
}

func (c *command) summary(run tallyman.Run) error {
	text := "\n" + run.Name + "\n"
	for _, line := range render.Summary(run) {
		text += "  " + line + "\n"
	}
	_, err := io.WriteString(c.errOut, text)
	return err
}

// waitEnd waits for a run to end, at most for a while; then it says that the
// run is still at work.
func waitEnd(ctx context.Context, s *session, id string, patience time.Duration) (tallyman.Run, error) {
	for until := time.Now().Add(patience); ; {
		run, err := s.Run(ctx, id)
		if err != nil || run.State.Terminal() {
			return run, err
		}
		if time.Now().After(until) {
			return run, fmt.Errorf("run %s is still %s after %s: it is asked to stop, and tallyman show %[1]s tells more", run.Name, run.State, patience)
		}
		select {
		case <-ctx.Done():
			return run, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
