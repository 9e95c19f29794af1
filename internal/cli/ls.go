package cli

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/client"
	"github.com/tallyman-dev/tallyman/internal/render"
)

// listed is how many runs ls prints for people.
const listed = 50

func (c *command) lsCommand() *cobra.Command {
	var o client.ListOptions
	var states, labels []string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List runs, the newest first",
		Example: `  tallyman ls
  tallyman ls --state failed --agent reviewer
  tallyman ls --label team=web -o json`,
		Args: args(0, 0, "no arguments; filter with --state, --agent, --label or --search"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, s := range states {
				if !tallyman.State(s).Valid() {
					return usageError("--state %s: known are %v", s, tallyman.States)
				}
				o.States = append(o.States, tallyman.State(s))
			}
			o.Labels = map[string]string{}
			for _, l := range labels {
				k, v, ok := strings.Cut(l, "=")
				if !ok {
					return usageError("--label %q: write k=v", l)
				}
				o.Labels[k] = v
			}
			return c.ls(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&states, "state", nil, "any of these: queued, starting, running, succeeded, failed, stopped")
	f.StringVar(&o.Agent, "agent", "", "of this agent")
	f.StringArrayVar(&labels, "label", nil, "k=v; all must match")
	f.StringVar(&o.Text, "search", "", "words in name, agent, labels or the beginning of the prompt")
	f.IntVar(&o.Limit, "limit", 0, "most runs to print (default 50; with -o json all)")
	f.StringVar(&o.Cursor, "cursor", "", "go on from the \"next\" of the page before")
	c.outputFlag(cmd, "json", "name", "wide")
	return cmd
}

func (c *command) ls(ctx context.Context, o client.ListOptions) error {
	if o.Limit < 0 {
		return usageError("--limit %d is negative", o.Limit)
	}
	s, err := c.connect(ctx, looks)
	if err != nil {
		return err
	}
	want := o.Limit
	if want == 0 && c.output != "json" {
		want = listed
	}
	runs, next := []tallyman.Run{}, o.Cursor
	for {
		o.Cursor, o.Limit = next, 1000
		if want > 0 {
			o.Limit = min(want-len(runs), 1000)
		}
		var page []tallyman.Run
		if page, next, err = s.Runs(ctx, o); err != nil {
			return err
		}
		runs = append(runs, page...)
		if next == "" || want > 0 && len(runs) >= want {
			break
		}
	}
	switch c.output {
	case "json":
		return c.printJSON(map[string]any{"items": runs, "next": next})
	case "name":
		for _, r := range runs {
			fmt.Fprintln(c.out, r.Name)
		}
		return nil
	}
	if len(runs) == 0 {
		fmt.Fprintln(c.errOut, "no runs; start one: tallyman run demo \"say hello\"")
		return nil
	}
	if err := c.table(runs); err != nil {
		return err
	}
	if next != "" {
		fmt.Fprintf(c.errOut, "more: tallyman ls --cursor %s\n", next)
	}
	return nil
}

func (c *command) table(runs []tallyman.Run) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	wide := c.output == "wide"
	head := "NAME\tSTATE\tREASON\tAGE\tDURATION\tTURNS\tCOST"
	if wide {
		head += "\tAGENT\tMODEL\tATTEMPT\tID"
	}
	fmt.Fprintln(w, head)
	for _, r := range runs {
		now := time.Now()
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s", r.Name, r.State, why(r), render.Took(now.Sub(r.CreatedAt)), took(r, now), r.Usage.Turns, cost(r.Usage))
		if wide {
			fmt.Fprintf(w, "\t%s\t%s\t%d\t%s", r.Agent, r.Model, r.Attempt, r.ID)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// why is what holds a run back, or why it ended otherwise than well.
func why(r tallyman.Run) string {
	switch {
	case r.Waiting != nil:
		return string(r.Waiting.Reason)
	case r.Reason == tallyman.Completed:
		return ""
	default:
		return string(r.Reason)
	}
}

func took(r tallyman.Run, now time.Time) string {
	if d := render.RunTook(r, now); d > 0 {
		return render.Took(d)
	}
	return ""
}

func cost(u tallyman.Usage) string {
	if u.CostSource == tallyman.CostHarness || u.CostSource == tallyman.CostEstimated {
		return render.Cost(u.CostUSD)
	}
	return ""
}
