package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman"
)

// stopWait is how long stop waits for a run to end.
const (
	stopWait = 2 * time.Minute
	stopHelp = "2 minutes"
)

func (c *command) stopCommand() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "stop RUN…",
		Short: "Stop runs, with everything they have started",
		Long: fmt.Sprintf(`Asks one run after the other to end, and waits for each: its processes get a TERM, and
after the server's grace (10 s) a KILL. A run that had ended stays as it is.

Exit codes: 0 all have ended, however they ended; 1 one is still at work after %s;
4 no server; 5 an unknown run, and those after it were not asked.`, stopHelp),
		Example: `  tallyman stop demo-8c4q2k7v1x
  tallyman stop --wait=false demo-8c4q2k7v1x`,
		Args:              args(1, -1, "one run or more"),
		ValidArgsFunction: c.completeRuns,
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.stop(cmd.Context(), given, wait)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", true, fmt.Sprintf("wait up to %s for each run to end; --wait=false only asks, and exits 0", stopHelp))
	c.outputFlag(cmd, "json", "yaml", "name")
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
			if run, err = waitEnd(ctx, s, run.ID, stopWait); err != nil {
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

// printStopped prints what -o asks for: one object, however many runs there
// are.
func (c *command) printStopped(runs []tallyman.Run) error {
	switch {
	case c.output == "":
		return nil
	case c.whole() && len(runs) > 1:
		return c.printObject(map[string]any{"items": runs})
	}
	for _, run := range runs {
		if err := c.printRun(run); err != nil {
			return err
		}
	}
	return nil
}
