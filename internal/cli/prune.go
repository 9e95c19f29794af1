package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/render"
)

// whenFreed says when removing a run gives its disk space back.
const whenFreed = `Disk space: workspaces and logs of the runs go at once, and the space of their events
is used again by later ones. Artifacts, and prompts and results above 64 KiB, go once
no run names them and they are older than an hour: with the next prune, or by the
server, which looks every hour.`

func (c *command) pruneCommand() *cobra.Command {
	var age time.Duration
	var dry bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove runs that ended long ago, with their events and artifacts",
		Long: `What is queued or at work stays. Idempotency keys are kept for 30 days. A server does
the same every hour with its retention.age (0: never).

` + whenFreed,
		Example: `  tallyman prune --dry-run
  tallyman prune --age 168h
  tallyman prune -o yaml`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := c.connect(cmd.Context(), looks)
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("age") {
				if age = s.cfg.Retention.Age.D(); age == 0 {
					return usageError("retention.age is 0, so nothing grows old by itself; %s", writeItLike("age"))
				}
			}
			p, err := s.Prune(cmd.Context(), tallyman.PruneRequest{Age: tallyman.Duration(age), DryRun: dry})
			if err != nil {
				return err
			}
			if c.whole() {
				return c.printObject(p)
			}
			if dry {
				_, err = fmt.Fprintf(c.out, "would remove %d runs that ended more than %s ago\n", p.Runs, age)
				return err
			}
			_, err = fmt.Fprintf(c.out, "removed %d runs that ended more than %s ago, and %d files (%s)\n", p.Runs, age, p.Blobs, render.Bytes(p.Bytes))
			return err
		},
	}
	cmd.Flags().DurationVar(&age, "age", 0, "runs that ended longer ago than this (default retention.age, 720h)")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say how many runs would be removed; nothing changes")
	c.outputFlag(cmd, "json", "yaml")
	return cmd
}
