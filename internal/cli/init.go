package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/catalog"
)

func (c *command) initCommand() *cobra.Command {
	var kind string
	var force bool
	cmd := &cobra.Command{
		Use:   "init NAME",
		Short: "Write an agent file to start from: ./agents/NAME.yaml",
		Long: `Refuses to overwrite a file unless --force is given. An agent of a built-in one's name
is allowed: run in this folder, the file takes the built-in one's place, and init
says so on standard error.`,
		Example: `  tallyman init reviewer
  tallyman init nightly --harness exec`,
		Args: args(1, 1, "the name of the agent"),
		RunE: func(_ *cobra.Command, given []string) error { return c.init(given[0], kind, force) },
	}
	cmd.Flags().StringVar(&kind, "harness", "claude", "claude, exec or script")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite the file")
	return cmd
}

func (c *command) init(name, kind string, force bool) error {
	text, err := catalog.Template(name, kind)
	if err != nil {
		return &exitError{ExitUsage, err}
	}
	if here() == "" {
		return errNowhere
	}
	path := filepath.Join("agents", name+".yaml")
	if err := os.MkdirAll("agents", 0o755); err != nil {
		return fmt.Errorf("make the folder of the agents: %w", err)
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
		return fmt.Errorf("write the agent's file: %w", err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if slices.ContainsFunc(catalog.Builtin(nil), func(a tallyman.Agent) bool { return a.Name == name }) {
		fmt.Fprintf(c.errOut, "in this folder %s now takes the place of the built-in agent %s\n", path, name)
	}
	_, err = fmt.Fprintf(c.out, "%s\nrun it with: tallyman run %s \"…\"\n", path, name)
	return err
}
