package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/catalog"
	"github.com/tallyman-dev/tallyman/internal/harness"
	"github.com/tallyman-dev/tallyman/internal/strictyaml"
)

func (c *command) agentsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agents [NAME]",
		Short: "List the agents that can be run from here, or show one",
		Long:  "With --server the agents are the server's; otherwise those that tallyman run finds here.",
		Example: `  tallyman agents
  tallyman agents reviewer -o json`,
		Args: args(0, 1, "at most one agent"),
		RunE: func(cmd *cobra.Command, given []string) error { return c.agents(cmd.Context(), given) },
	}
	c.outputFlag(cmd, "json", "name")
	return cmd
}

func (c *command) agents(ctx context.Context, names []string) error {
	agents, faults, err := c.findAgents(ctx)
	if err != nil {
		return err
	}
	if len(names) == 1 {
		for _, a := range agents {
			if a.Name != names[0] {
				continue
			}
			if c.output != "name" {
				return c.printJSON(a)
			}
			_, err := fmt.Fprintln(c.out, a.Name)
			return err
		}
		var known []string
		for _, a := range agents {
			known = append(known, a.Name)
		}
		hint := ""
		if near := strictyaml.Nearest(names[0], known); near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		return &exitError{ExitUsage, fmt.Errorf("no agent %q%s", names[0], hint)}
	}
	switch c.output {
	case "json":
		err = c.printJSON(map[string]any{"items": agents})
	case "name":
		for _, a := range agents {
			fmt.Fprintln(c.out, a.Name)
		}
	default:
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "NAME\tHARNESS\tMODEL\tFROM\tDESCRIPTION")
		for _, a := range agents {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", a.Name, a.Spec.Harness, a.Spec.Model, a.Origin, a.Description)
		}
		err = w.Flush()
	}
	if fault := errors.Join(faults...); fault != nil {
		return &exitError{ExitUsage, errors.Join(err, fault)}
	}
	return err
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
	cwd, err := os.Getwd()
	if err != nil {
		return nil, nil, fmt.Errorf("find the working folder: %w", err)
	}
	items, faults := c.catalog(cwd, cfg.Agents).List(ctx)
	return items, faults, nil
}

// catalog is the agents as this command line finds them.
func (c *command) catalog(cwd string, flags []string) *catalog.Catalog {
	return catalog.New(catalog.Resolve(cwd, flags, c.env.get), catalog.Builtin(harness.DemoSteps()), nil)
}

func (c *command) initCommand() *cobra.Command {
	var kind string
	var force bool
	cmd := &cobra.Command{
		Use:   "init NAME",
		Short: "Write an agent file to start from: ./agents/NAME.yaml",
		Example: `  tallyman init reviewer
  tallyman init nightly --harness exec`,
		Args: args(1, 1, "the name of the agent"),
		RunE: func(cmd *cobra.Command, given []string) error {
			text, err := catalog.Template(given[0], kind)
			if err != nil {
				return &exitError{ExitUsage, err}
			}
			path := filepath.Join("agents", given[0]+".yaml")
			if err := os.MkdirAll("agents", 0o755); err != nil {
				return err
			}
			how := os.O_CREATE | os.O_WRONLY | os.O_EXCL
			if force {
				how = os.O_CREATE | os.O_WRONLY | os.O_TRUNC
			}
			f, err := os.OpenFile(path, how, 0o644)
			if errors.Is(err, os.ErrExist) {
				return usageError("%s is there already; --force overwrites it", path)
			}
			if err != nil {
				return err
			}
			_, err = f.Write(text)
			if err = errors.Join(err, f.Close()); err != nil {
				return fmt.Errorf("write %s: %w", path, err)
			}
			_, err = fmt.Fprintf(c.out, "%s\nrun it with: tallyman run %s \"…\"\n", path, given[0])
			return err
		},
	}
	cmd.Flags().StringVar(&kind, "harness", "claude", "claude, exec or script")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite the file")
	return cmd
}
