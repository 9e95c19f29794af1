package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman"
)

// completeRuns completes names of runs.
func (c *command) completeRuns(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	s, err := c.connect(cmd.Context(), looks)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	runs, _, err := s.Runs(cmd.Context(), tallyman.Filter{Limit: 100})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return runNames(runs), cobra.ShellCompDirectiveNoFileComp
}

// completeAgents completes the name of one agent.
func (c *command) completeAgents(cmd *cobra.Command, given []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.completeAgentFlag(cmd, given, typed)
}

// completeRun completes the agent of a run. What follows it is a prompt or a
// command, where a shell offers files.
func (c *command) completeRun(cmd *cobra.Command, given []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 || cmd.Flags().Changed("harness") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return c.completeAgents(cmd, given, typed)
}

// completeArtifacts completes a run, and then the name of a file that it left.
func (c *command) completeArtifacts(cmd *cobra.Command, given []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(given) == 0 {
		return c.completeRuns(cmd, given, typed)
	}
	s, err := c.connect(cmd.Context(), looks)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	items, err := s.Artifacts(cmd.Context(), given[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, a := range items {
		names = append(names, a.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeAgentFlag completes the name of an agent behind a flag.
func (c *command) completeAgentFlag(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	agents, _, err := c.findAgents(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return namesOf(agents), cobra.ShellCompDirectiveNoFileComp
}

// completeStates completes the last of a list of states.
func completeStates(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndex(typed, ",")+1]
	names := tallyman.StateNames()
	for i, name := range names {
		names[i] = before + name
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
