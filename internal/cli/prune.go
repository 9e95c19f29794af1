package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/render"
)

func (c *command) pruneCommand() *cobra.Command {
	var age time.Duration
	var dry bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove runs that ended long ago, with their events and artifacts",
		Long:  "What is queued or at work stays. Idempotency keys are kept for 30 days.",
		Example: `  tallyman prune --dry-run
  tallyman prune --age 168h`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := c.connect(cmd.Context(), looks)
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("age") {
				age = s.cfg.Retention.Age.D()
			}
			if age < 0 {
				return usageError("--age %s is negative", age)
			}
			p, err := s.Prune(cmd.Context(), tallyman.Duration(age), dry)
			if err != nil {
				return err
			}
			if c.output == "json" {
				return c.printJSON(p)
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
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be removed")
	c.outputFlag(cmd, "json")
	return cmd
}
