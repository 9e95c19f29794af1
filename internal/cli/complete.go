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

// completeAgentFlag completes the name of an agent behind a flag.
func (c *command) completeAgentFlag(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	agents, _, err := c.findAgents(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return namesOf(agents), cobra.ShellCompDirectiveNoFileComp
}

// knownStates are the states as they are written, in the order of a run's
// life.
func knownStates() []string {
	var names []string
	for _, s := range tallyman.States {
		names = append(names, string(s))
	}
	return names
}

// completeStates completes the last of a list of states.
func completeStates(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndex(typed, ",")+1]
	names := knownStates()
	for i, name := range names {
		names[i] = before + name
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
