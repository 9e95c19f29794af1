package cli

import (
	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman/client"
)

// completeRuns completes names of runs.
func (c *command) completeRuns(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	s, err := c.connect(cmd.Context(), looks)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	runs, _, err := s.Runs(cmd.Context(), client.ListOptions{Limit: 100})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, r := range runs {
		names = append(names, r.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
