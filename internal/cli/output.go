package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"
)

// outputFlag adds -o to a verb. Its long name is the same in every verb.
func (c *command) outputFlag(cmd *cobra.Command, formats ...string) {
	known := strings.Join(formats, ", ")
	cmd.Flags().StringVarP(&c.output, "output-format", "o", "", "print as "+known)
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("output-format", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if c.output == "" || slices.Contains(formats, c.output) {
			return nil
		}
		return usageError("-o %s: known are %s", c.output, known)
	}
}

// whole reports whether -o asks for objects with all that is known.
func (c *command) whole() bool { return c.output == "json" || c.output == "yaml" }

// printObject prints one object and nothing else: as YAML where -o says so,
// else as JSON.
func (c *command) printObject(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode what is printed: %w", err)
	}
	text := b.Bytes()
	if c.output == "yaml" {
		var err error
		if text, err = toYAML(text); err != nil {
			return err
		}
	}
	_, err := c.out.Write(text)
	return err
}

// printNames prints a name a line.
func (c *command) printNames(names []string) error {
	for _, name := range names {
		if _, err := fmt.Fprintln(c.out, name); err != nil {
			return err
		}
	}
	return nil
}

// printTable prints rows below a head, in columns.
func (c *command) printTable(head []string, rows [][]string) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		for i := range row {
			row[i] = printable(row[i])
		}
		if _, err := io.WriteString(w, strings.Join(row, "\t")+"\n"); err != nil {
			return err
		}
	}
	return w.Flush()
}

// printable quotes what would leave its line or steer a terminal: the names
// of files and labels are whatever somebody wrote.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
