package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/catalog"
	"github.com/tallyman-dev/tallyman/internal/harness"
	"github.com/tallyman-dev/tallyman/internal/render"
	"github.com/tallyman-dev/tallyman/internal/strictyaml"
)

func (c *command) agentsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agents [NAME]",
		Short: "List the agents that can be run from here, or show one",
		Long: `With --server the agents are the server's; otherwise those that tallyman run finds
here, and those that a cluster has where a server of the data folder watches one. One agent is shown whole, as JSON unless -o says otherwise. Exit code 2 when
there is no such agent, or a file with agents cannot be used.`,
		Example: `  tallyman agents
  tallyman agents -o wide
  tallyman agents reviewer -o yaml`,
		Args:              args(0, 1, "at most one agent"),
		RunE:              func(cmd *cobra.Command, given []string) error { return c.agents(cmd.Context(), given) },
		ValidArgsFunction: c.completeAgents,
	}
	c.outputFlag(cmd, "json", "yaml", "wide", "name")
	return cmd
}

func (c *command) agents(ctx context.Context, names []string) error {
	agents, faults, err := c.findAgents(ctx)
	if err != nil {
		return err
	}
	if len(names) == 1 {
		return c.agent(agents, names[0])
	}
	if c.whole() {
		err = c.printObject(map[string]any{"items": agents})
	} else {
		err = c.listAgents(agents)
	}
	if fault := errors.Join(faults...); fault != nil {
		return &exitError{ExitUsage, errors.Join(err, fault)}
	}
	return err
}

// agent shows the agent of a name.
func (c *command) agent(agents []tallyman.Agent, name string) error {
	i := slices.IndexFunc(agents, func(a tallyman.Agent) bool { return tallyman.AgentName(a.Namespace, a.Name) == name })
	if i < 0 {
		hint := ""
		if near := strictyaml.Nearest(name, namesOf(agents)); near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		return usageError("no agent %q%s", name, hint)
	}
	if c.output == "name" || c.output == "wide" {
		return c.listAgents(agents[i : i+1])
	}
	return c.printObject(agents[i])
}

func namesOf(agents []tallyman.Agent) []string {
	var names []string
	for _, a := range agents {
		names = append(names, tallyman.AgentName(a.Namespace, a.Name))
	}
	return names
}

// listAgents prints an agent a line.
func (c *command) listAgents(agents []tallyman.Agent) error {
	if c.output == "name" {
		return c.printNames(namesOf(agents))
	}
	head := []string{"NAME", "HARNESS", "MODEL", "FROM", "DESCRIPTION"}
	wide := []string{"NAME", "HARNESS", "MODEL", "DEADLINE", "MAX-TURNS", "BUDGET", "MAX-RUNNING", "FROM", "DESCRIPTION"}
	var rows [][]string
	for _, a := range agents {
		row := []string{tallyman.AgentName(a.Namespace, a.Name), a.Spec.Harness, a.Spec.Model}
		if c.output == "wide" {
			l := a.Spec.Limits
			row = append(row, shown(l.Deadline), shown(l.MaxTurns), shown(l.BudgetUSD), shown(a.Spec.Concurrency.Max))
		}
		rows = append(rows, append(row, a.Origin, render.OneLine(a.Description, 300)))
	}
	if c.output == "wide" {
		head = wide
	}
	return c.printTable(head, rows)
}

// shown writes what is given, and nothing for what is not.
func shown[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}

func (c *command) findAgents(ctx context.Context) ([]tallyman.Agent, []error, error) {
	cfg, _, err := c.config()
	if err != nil {
		return nil, nil, err
	}
	if cfg.Server != "" {
		s, err := c.connect(ctx, looks)
		if err != nil {
			return nil, nil, err
		}
		items, err := s.Agents(ctx)
		return items, nil, err
	}
	items, faults := c.catalog(cfg.Agents).List(ctx)
	return withResources(items, c.resources(ctx, cfg)), faults, nil
}

// catalog is the agents as this command line finds them.
func (c *command) catalog(flags []string) *catalog.Catalog {
	return catalog.New(catalog.Resolve(here(), flags, c.env.get), catalog.Builtin(harness.DemoSteps()), nil)
}
