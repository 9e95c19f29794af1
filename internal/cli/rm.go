package cli

import (
	"io"

	"github.com/spf13/cobra"
)

func (c *command) rmCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm RUN…",
		Short: "Remove ended runs with their events and artifacts",
		Long: `Removes one run after the other, and stops at the first that it cannot remove: one
that has not ended is exit code 2, one that is unknown 5. What its key brings stays
known for 30 days.

` + whenFreed,
		Example:           "  tallyman rm demo-8c4q2k7v1x",
		Args:              args(1, -1, "one run or more"),
		ValidArgsFunction: c.completeRuns,
		RunE: func(cmd *cobra.Command, given []string) error {
			s, err := c.connect(cmd.Context(), looks)
			if err != nil {
				return err
			}
			for _, id := range given {
				if err := s.Delete(cmd.Context(), id); err != nil {
					return err
				}
				if _, err := io.WriteString(c.out, "removed "+id+"\n"); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
