package cli

import (
	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/client"
)

func (c *command) eventsCommand() *cobra.Command {
	var follow bool
	var after string
	cmd := &cobra.Command{
		Use:   "events RUN",
		Short: "Print the events of a run, one a line",
		Long: `Prints every event of the run's journals in order and without gaps, as NDJSON. Each
begins with its id, ATTEMPT.CURSOR. The timeline and text that is still being
written are not among them. -o json is the same.`,
		Example: `  tallyman events demo-8c4q2k7v1x
  tallyman events -f --after 1.42 demo-8c4q2k7v1x -o json | jq .type`,
		Args:              args(1, 1, "one run"),
		ValidArgsFunction: c.completeRuns,
		RunE: func(cmd *cobra.Command, given []string) error {
			if _, err := tallyman.ParseEventID(after); err != nil {
				return usageError("--after: %w", err)
			}
			s, err := c.connect(cmd.Context(), followRole(follow))
			if err != nil {
				return err
			}
			run, err := s.Run(cmd.Context(), given[0])
			if err != nil {
				return err
			}
			o := client.EventOptions{Follow: follow || run.State.Terminal(), After: after, Lost: func(error) error { return s.ensure(cmd.Context()) }}
			return s.Events(cmd.Context(), run.ID, o, func(line []byte) error {
				_, err := c.out.Write(append(line, '\n'))
				return err
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run has ended")
	cmd.Flags().StringVar(&after, "after", "", "only those after this id, like 1.42")
	c.outputFlag(cmd, "json")
	return cmd
}
