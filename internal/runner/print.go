package runner

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/journal"
	"github.com/tallyman-dev/tallyman/internal/render"
)

// print writes the transcript as the journal grows, until ctx ends and what is
// durable by then is written. A reader that does not take it does not hold the
// work up: the journal has it.
func (r *run) print(ctx context.Context) error {
	in, _, err := journal.Open(r.path("journal"))
	if err != nil {
		return err
	}
	defer in.Close()
	exec := r.spec.Agent.Harness == "exec"
	out := bufio.NewWriterSize(r.transcript, 64<<10)
	lines := render.New(render.Options{Exec: exec})
	printer := render.NewPrinter(out, render.Style{Exec: exec})
	for {
		ended, changed := ctx.Err() != nil, r.journal.Changed()
		for {
			cursor, rec, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("print the transcript: %w", err)
			}
			e, err := render.Decode(rec)
			if err != nil {
				return fmt.Errorf("print event %d: %w", cursor, err)
			}
			if err := printer.Print(lines.Event(tallyman.EventID{Attempt: r.spec.Attempt, Cursor: cursor}, e)); err != nil {
				return fmt.Errorf("print the transcript: %w", err)
			}
		}
		if err := out.Flush(); err != nil {
			return fmt.Errorf("print the transcript: %w", err)
		}
		if ended {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}
