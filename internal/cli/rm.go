package cli

import (
	"io"

	"github.com/spf13/cobra"
)

func (c *command) rmCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "rm RUN…",
		Short:             "Remove ended runs with their events and artifacts",
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
