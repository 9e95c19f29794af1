package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman/internal/render"
)

func (c *command) artifactsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "artifacts",
		Short: "List and fetch the files that a run left",
		Example: `  tallyman artifacts ls demo-8c4q2k7v1x
  tallyman artifacts get demo-8c4q2k7v1x report.md
  tallyman artifacts get demo-8c4q2k7v1x report.md --to - | less`,
	}
	ls := &cobra.Command{
		Use: "ls RUN", Short: "List the files that a run left",
		Args: args(1, 1, "one run"), ValidArgsFunction: c.completeRuns,
		Example: "  tallyman artifacts ls demo-8c4q2k7v1x",
		RunE:    func(cmd *cobra.Command, given []string) error { return c.artifactsLs(cmd.Context(), given[0]) },
	}
	c.outputFlag(ls, "json", "name")
	var to string
	get := &cobra.Command{
		Use: "get RUN NAME", Short: "Fetch a file that a run left",
		Args: args(2, 2, "a run and the name of a file"), ValidArgsFunction: c.completeRuns,
		Example: "  tallyman artifacts get demo-8c4q2k7v1x report.md --to /tmp/report.md",
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.artifactsGet(cmd.Context(), given[0], given[1], to)
		},
	}
	get.Flags().StringVar(&to, "to", "", "where to write it; - is standard output (default its own name, here)")
	cmd.AddCommand(ls, get)
	needsVerb(cmd)
	return cmd
}

func (c *command) artifactsLs(ctx context.Context, id string) error {
	s, err := c.connect(ctx, looks)
	if err != nil {
		return err
	}
	items, err := s.Artifacts(ctx, id)
	if err != nil {
		return err
	}
	switch c.output {
	case "json":
		return c.printJSON(map[string]any{"items": items})
	case "name":
		for _, a := range items {
			fmt.Fprintln(c.out, a.Name)
		}
		return nil
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSIZE\tATTEMPT\tDIGEST")
	for _, a := range items {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", a.Name, render.Bytes(a.Size), a.Attempt, a.Digest)
	}
	return w.Flush()
}

func (c *command) artifactsGet(ctx context.Context, id, name, to string) (err error) {
	s, err := c.connect(ctx, looks)
	if err != nil {
		return err
	}
	body, size, err := s.Artifact(ctx, id, name)
	if err != nil {
		return err
	}
	defer body.Close()
	if to == "-" {
		_, err = io.Copy(c.out, body)
		return err
	}
	if to == "" {
		to = filepath.Base(name)
	}
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, os.ErrExist) {
		return usageError("%s is there already; name another place with --to", to)
	}
	if err != nil {
		return err
	}
	n, err := io.Copy(f, body)
	if err = errors.Join(err, f.Close()); err == nil && n != size {
		err = fmt.Errorf("artifact %s has %d bytes, %d arrived", name, size, n)
	}
	if err != nil {
		return errors.Join(err, os.Remove(to))
	}
	_, err = fmt.Fprintln(c.out, to)
	return err
}
