package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman"
)

func (c *command) stopCommand() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:               "stop RUN…",
		Short:             "Stop runs, with everything they have started",
		Example:           "  tallyman stop demo-8c4q2k7v1x",
		Args:              args(1, -1, "one run or more"),
		ValidArgsFunction: c.completeRuns,
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.stop(cmd.Context(), given, wait)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", true, "wait until the processes are gone")
	c.outputFlag(cmd, "json", "name")
	return cmd
}

func (c *command) stop(ctx context.Context, ids []string, wait bool) error {
	s, err := c.connect(ctx, drives)
	if err != nil {
		return err
	}
	var stopped []tallyman.Run
	for _, id := range ids {
		run, err := s.Stop(ctx, id)
		if err != nil {
			return err
		}
		if wait && !run.State.Terminal() {
			if run, err = waitEnd(ctx, s, run.ID, 2*time.Minute); err != nil {
				return err
			}
		}
		stopped = append(stopped, run)
		if c.output == "" {
			fmt.Fprintf(c.out, "%s %s\n", run.Name, run.State)
		}
	}
	return c.printStopped(stopped)
}

// printStopped prints what -o asks for; JSON is one object, however many runs
// there are.
func (c *command) printStopped(runs []tallyman.Run) error {
	switch {
	case c.output == "":
		return nil
	case c.output == "json" && len(runs) > 1:
		return c.printJSON(map[string]any{"items": runs})
	}
	for _, run := range runs {
		if err := c.printRun(run); err != nil {
			return err
		}
	}
	return nil
}
