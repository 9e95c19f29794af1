package cli

import (
	"bytes"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/client"
	"github.com/tallyman-dev/tallyman/internal/render"
)

func (c *command) logsCommand() *cobra.Command {
	var follow bool
	var tail int
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "logs RUN",
		Short: "Print the transcript of a run",
		Long: `Prints the transcript alone. Of harness exec these are its lines as they were
written: standard output on standard output, standard error on standard error.`,
		Example: `  tallyman logs demo-8c4q2k7v1x
  tallyman logs -f --tail 20 demo-8c4q2k7v1x
  tallyman logs --since 10m demo-8c4q2k7v1x`,
		Args:              args(1, 1, "one run"),
		ValidArgsFunction: c.completeRuns,
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.logs(cmd.Context(), given[0], follow, tail, since)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run has ended")
	cmd.Flags().IntVar(&tail, "tail", -1, "only the last N entries; of harness exec, lines")
	cmd.Flags().DurationVar(&since, "since", 0, "only what happened in this last time, like 10m")
	cmd.Flags().Lookup("tail").DefValue = "all"
	return cmd
}

func (c *command) logs(ctx context.Context, id string, follow bool, tail int, since time.Duration) error {
	s, err := c.connect(ctx, followRole(follow))
	if err != nil {
		return err
	}
	run, err := s.Run(ctx, id)
	if err != nil {
		return err
	}
	show := c.transcript(run, false)
	var from time.Time
	if since > 0 {
		from = time.Now().Add(-since)
	}
	o := client.EventOptions{Follow: follow || run.State.Terminal(), Deltas: follow, Lost: func(error) error { return s.ensure(ctx) }}
	keep := func(line []byte) error {
		if from.IsZero() {
			return show(line)
		}
		_, e, err := decodeEvent(line)
		if err == nil && e.Time.Before(from) {
			return nil
		}
		return show(line)
	}
	if tail < 0 {
		return s.Events(ctx, run.ID, o, keep)
	}
	last, err := c.tail(ctx, s, run, tail, keep)
	if err != nil || !o.Follow {
		return err
	}
	o.After = last
	return s.Events(ctx, run.ID, o, keep)
}

// tail prints the last n entries of the transcript that is there, and returns
// the id of the last event. Events that print nothing are no entries.
func (c *command) tail(ctx context.Context, s *session, run tallyman.Run, n int, show func([]byte) error) (last string, err error) {
	var ring [][]byte
	prints := printing(run)
	err = s.Events(ctx, run.ID, client.EventOptions{}, func(line []byte) error {
		id, e, err := decodeEvent(line)
		if err != nil {
			return err
		}
		last = id.String()
		if !prints(id, e) {
			return nil
		}
		ring = append(ring, append([]byte(nil), line...))
		if len(ring) > n {
			ring = ring[1:]
		}
		return nil
	})
	if err != nil {
		return last, err
	}
	for _, line := range ring {
		if err := show(line); err != nil {
			return last, err
		}
	}
	return last, nil
}

// printing returns a function that tells whether an event of the run, the
// next in order, prints something.
func printing(run tallyman.Run) func(tallyman.EventID, tallyman.Event) bool {
	exec := run.Harness == "exec"
	var printed bytes.Buffer
	r := render.New(render.Options{Exec: exec})
	p := render.NewPrinter(&printed, render.Style{Exec: exec})
	return func(id tallyman.EventID, e tallyman.Event) bool {
		printed.Reset()
		err := p.Print(r.Event(id, e))
		return err == nil && printed.Len() > 0
	}
}
