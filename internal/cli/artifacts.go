package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

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
	c.outputFlag(ls, "json", "yaml", "wide", "name")
	var to string
	get := &cobra.Command{
		Use: "get RUN NAME", Short: "Fetch a file that a run left",
		Long: `Writes the file and prints where. A file that is there already is not overwritten
(exit code 2). An unknown run or name is exit code 5.`,
		Args: args(2, 2, "a run and the name of a file"), ValidArgsFunction: c.completeArtifacts,
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
	if c.whole() {
		return c.printObject(map[string]any{"items": items})
	}
	var names []string
	var rows [][]string
	head := []string{"NAME", "SIZE", "ATTEMPT", "DIGEST"}
	if c.output == "wide" {
		head = append(head, "BYTES", "KEPT")
	}
	for _, a := range items {
		row := []string{a.Name, render.Bytes(a.Size), strconv.Itoa(a.Attempt), a.Digest}
		if c.output == "wide" {
			row = append(row, strconv.FormatInt(a.Size, 10), a.At.Local().Format(time.DateTime))
		}
		names, rows = append(names, a.Name), append(rows, row)
	}
	if c.output == "name" {
		return c.printNames(names)
	}
	return c.printTable(head, rows)
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
	if !filepath.IsAbs(to) && here() == "" {
		return errNowhere
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
