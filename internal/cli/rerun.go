package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

func (c *command) rerunCommand() *cobra.Command {
	var set []string
	var detach bool
	cmd := &cobra.Command{
		Use:   "rerun RUN",
		Short: "Submit a run's request again, with changes",
		Long: `The request goes out again without its key, with the agent that it brought; one that
brought only a name, over --server or the API, gets the agent that the server has
under it now. rerun watches, prints and exits as tallyman run does.`,
		Example: `  tallyman rerun demo-8c4q2k7v1x
  tallyman rerun demo-8c4q2k7v1x --set model=claude-opus-4-6 --set deadline=30m --set label.try=2`,
		Args:              args(1, 1, "one run"),
		ValidArgsFunction: c.completeRuns,
		RunE: func(cmd *cobra.Command, given []string) error {
			changes := map[string]string{}
			for _, kv := range set {
				k, v, ok := strings.Cut(kv, "=")
				if !ok || k == "" {
					return usageError("--set %q has no key and value; %s", kv, writeItLike("set"))
				}
				changes[k] = v
			}
			if err := onlyText(set); err != nil {
				return err
			}
			s, err := c.connectFor(cmd.Context(), detach)
			if err != nil {
				return err
			}
			run, err := s.Rerun(cmd.Context(), given[0], changes)
			if err != nil {
				return err
			}
			if detach {
				return c.printRun(run)
			}
			return c.watch(cmd.Context(), s, run)
		},
	}
	cmd.Flags().StringArrayVar(&set, "set", nil, "k=v: prompt, model, agent, priority, deadline, idle, tool, maxTurns, budgetUSD, maxTokens, label.KEY, env.KEY")
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "print the run and leave it running")
	c.outputFlag(cmd, "json", "yaml", "name")
	return cmd
}
