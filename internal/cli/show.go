package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/render"
)

func (c *command) showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show RUN",
		Short: "Show a run: how it ended and why, its attempts, files and timeline",
		Long: `RUN is a name, an id, or a unique part of an id of at least six characters. With -o
json or yaml it is one object: the run, its attempts, artifacts and timeline.`,
		Example: `  tallyman show demo-8c4q2k7v1x
  tallyman show demo-8c4q2k7v1x -o json`,
		Args:              args(1, 1, "one run"),
		ValidArgsFunction: c.completeRuns,
		RunE:              func(cmd *cobra.Command, given []string) error { return c.show(cmd.Context(), given[0]) },
	}
	c.outputFlag(cmd, "json", "yaml", "name")
	return cmd
}

func (c *command) show(ctx context.Context, id string) error {
	s, err := c.connect(ctx, looks)
	if err != nil {
		return err
	}
	run, err := s.Run(ctx, id)
	if err != nil {
		return err
	}
	if c.output == "name" {
		return c.printRun(run)
	}
	attempts, err := s.Attempts(ctx, run.ID)
	if err != nil {
		return err
	}
	timeline, err := s.Timeline(ctx, run.ID)
	if err != nil {
		return err
	}
	artifacts, err := s.Artifacts(ctx, run.ID)
	if err != nil {
		return err
	}
	if c.whole() {
		return c.printObject(shownRun{run, attempts, artifacts, timeline})
	}
	c.describe(run)
	for _, a := range attempts {
		c.describeAttempt(run, a)
	}
	if len(artifacts) > 0 {
		fmt.Fprintln(c.out, "\nartifacts")
	}
	for _, a := range artifacts {
		fmt.Fprintf(c.out, "  %s, %s, attempt %d\n", printable(a.Name), render.Bytes(a.Size), a.Attempt)
	}
	fmt.Fprintln(c.out, "\ntimeline")
	for _, e := range timeline {
		fmt.Fprintf(c.out, "  %s  %s", e.At.Local().Format("2006-01-02 15:04:05.000"), e.Kind)
		if e.Message != "" {
			fmt.Fprintf(c.out, ": %s", render.OneLine(e.Message, 300))
		}
		fmt.Fprintln(c.out)
	}
	return nil
}

// shownRun is a run with all that is known of it.
type shownRun struct {
	tallyman.Run
	Attempts  []tallyman.Attempt       `json:"attempts"`
	Artifacts []tallyman.Artifact      `json:"artifacts"`
	Timeline  []tallyman.TimelineEntry `json:"timeline"`
}

func (c *command) describe(run tallyman.Run) {
	line := func(label, format string, args ...any) {
		fmt.Fprintf(c.out, "  %-10s%s\n", label, printable(fmt.Sprintf(format, args...)))
	}
	fmt.Fprintf(c.out, "%s  (%s)\n", run.Name, run.ID)
	line("agent", "%s, harness %s", tallyman.AgentName(run.Namespace, run.Agent), run.Harness)
	if run.Model != "" {
		line("model", "%s", run.Model)
	}
	for _, l := range render.Summary(run) {
		fmt.Fprintf(c.out, "  %s\n", l)
	}
	if w := run.Waiting; w != nil {
		line("waiting", "%s: %s%s", w.Reason, w.Detail, inQueue(w.Position))
	}
	for _, k := range slices.Sorted(maps.Keys(run.Labels)) {
		line("label", "%s=%s", k, run.Labels[k])
	}
	if run.Key != "" {
		line("key", "%s", run.Key)
	}
	if run.Parent != "" {
		line("rerun of", "%s", run.Parent)
	}
	line("created", "%s by %s", run.CreatedAt.Local().Format(time.DateTime), run.Source)
	if run.Result != "" {
		line("result", "%s", render.OneLine(run.Result, 300))
	}
}

// inQueue is a place in the queue, for who has one.
func inQueue(position int) string {
	if position == 0 {
		return ""
	}
	return fmt.Sprintf(" (position %d)", position)
}

func (c *command) describeAttempt(run tallyman.Run, a tallyman.Attempt) {
	fmt.Fprintf(c.out, "\nattempt %d on %s", a.Number, a.Backend)
	if a.Reason != "" {
		fmt.Fprintf(c.out, ": %s", a.Reason)
	}
	fmt.Fprintln(c.out)
	if a.Message != "" && a.Message != run.Message {
		fmt.Fprintf(c.out, "  %s\n", render.OneLine(a.Message, 500))
	}
	c.describeEvidence(a.Evidence)
	if a.Reason == "" || a.Reason == tallyman.Completed {
		return
	}
	for _, tail := range []struct{ name, text string }{{"last output", a.OutputTail}, {"last errors", a.StderrTail}} {
		if tail.text != "" {
			fmt.Fprintf(c.out, "  %s\n", tail.name)
			for _, l := range lastOf(tail.text, 10) {
				fmt.Fprintf(c.out, "    %s\n", render.OneLine(l, 300))
			}
		}
	}
}

func lastOf(text string, n int) []string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return lines[max(0, len(lines)-n):]
}
