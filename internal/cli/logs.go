package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman/client"
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
	cmd.Flags().IntVar(&tail, "tail", -1, "only the last N events")
	cmd.Flags().DurationVar(&since, "since", 0, "only what happened in this last time, like 10m")
	return cmd
}

func (c *command) logs(ctx context.Context, id string, follow bool, tail int, since time.Duration) error {
	s, err := c.connect(ctx, follow)
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
	last, err := c.tail(ctx, s, run.ID, tail, keep)
	if err != nil || !o.Follow {
		return err
	}
	o.After = last
	return s.Events(ctx, run.ID, o, keep)
}

// tail prints the last n events that are there and returns the id of the last.
func (c *command) tail(ctx context.Context, s *session, id string, n int, show func([]byte) error) (string, error) {
	var ring [][]byte
	o := client.EventOptions{}
	last := ""
	err := s.Events(ctx, id, o, func(line []byte) error {
		event, _, err := decodeEvent(line)
		if err != nil {
			return err
		}
		last = event.String()
		ring = append(ring, append([]byte(nil), line...))
		if len(ring) > n {
			ring = ring[1:]
		}
		return nil
	})
	for _, line := range ring {
		if err := show(line); err != nil {
			return last, err
		}
	}
	return last, err
}
