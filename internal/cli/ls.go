package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/render"
)

// listed is how many runs ls prints for people.
const listed = 50

func (c *command) lsCommand() *cobra.Command {
	var o tallyman.Filter
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
					return usageError("--state %s: known are %s", s, strings.Join(tallyman.StateNames(), ", "))
				}
				o.States = append(o.States, tallyman.State(s))
			}
			var err error
			if o.Labels, err = readLabels(labels); err != nil {
				return err
			}
			return c.ls(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&states, "state", nil, "any of these: "+strings.Join(tallyman.StateNames(), ", "))
	f.StringVar(&o.Agent, "agent", "", "of this agent: NAME, or NAMESPACE/NAME")
	f.StringVar(&o.Namespace, "namespace", "", "of agents in this namespace; agents from files are in default (default: all)")
	f.StringArrayVar(&labels, "label", nil, "k=v; all must match")
	f.StringVar(&o.Text, "search", "", "words in name, agent, labels or the beginning of the prompt")
	f.IntVar(&o.Limit, "limit", 0, "most runs to print (default 50; with -o json or yaml all)")
	f.StringVar(&o.After, "cursor", "", "go on from the \"next\" of the page before")
	c.outputFlag(cmd, "json", "yaml", "wide", "name")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("state", completeStates))
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("agent", c.completeAgentFlag))
	return cmd
}

func (c *command) ls(ctx context.Context, o tallyman.Filter) error {
	s, err := c.connect(ctx, looks)
	if err != nil {
		return err
	}
	want := o.Limit
	if want == 0 && !c.whole() {
		want = listed
	}
	runs, next, err := collect(ctx, s, o, want)
	if err != nil {
		return err
	}
	switch {
	case c.whole():
		return c.printObject(map[string]any{"items": runs, "next": next})
	case c.output == "name":
		return c.printNames(runNames(runs))
	}
	if len(runs) == 0 {
		if o.Namespace != "" || len(o.States) > 0 || o.Agent != "" || len(o.Labels) > 0 || o.Text != "" || o.After != "" {
			fmt.Fprintln(c.errOut, "no such runs")
		} else {
			fmt.Fprintln(c.errOut, "no runs; start one: tallyman run demo \"say hello\"")
		}
		return nil
	}
	if err := c.table(runs); err != nil {
		return err
	}
	if next != "" {
		fmt.Fprintf(c.errOut, "more: the same with --cursor %s\n", next)
	}
	return nil
}

// collect reads pages until there are as many runs as are wanted, all of them
// with 0, and returns the cursor of what follows.
func collect(ctx context.Context, s *session, o tallyman.Filter, want int) (runs []tallyman.Run, next string, err error) {
	runs, next = []tallyman.Run{}, o.After
	for {
		o.After, o.Limit = next, 1000
		if want > 0 {
			o.Limit = min(want-len(runs), 1000)
		}
		var page []tallyman.Run
		if page, next, err = s.Runs(ctx, o); err != nil {
			return nil, "", err
		}
		runs = append(runs, page...)
		if next == "" || want > 0 && len(runs) >= want {
			return runs, next, nil
		}
	}
}

func runNames(runs []tallyman.Run) []string {
	var names []string
	for _, r := range runs {
		names = append(names, r.Name)
	}
	return names
}

func (c *command) table(runs []tallyman.Run) error {
	head := []string{"NAME", "STATE", "REASON", "AGE", "DURATION", "TURNS", "COST"}
	if c.output == "wide" {
		head = append(head, "AGENT", "MODEL", "ATTEMPT", "ID")
	}
	several := slices.ContainsFunc(runs, func(r tallyman.Run) bool { return r.Namespace != tallyman.DefaultNamespace })
	if several {
		head = append([]string{"NAMESPACE"}, head...)
	}
	var rows [][]string
	for _, r := range runs {
		now := time.Now()
		row := []string{r.Name, string(r.State), why(r), render.Took(now.Sub(r.CreatedAt)), took(r, now), turns(r), cost(r.Usage)}
		if c.output == "wide" {
			row = append(row, r.Agent, r.Model, strconv.Itoa(r.Attempt), r.ID)
		}
		if several {
			row = append([]string{r.Namespace}, row...)
		}
		rows = append(rows, row)
	}
	return c.printTable(head, rows)
}

// turns is empty for a command, which has none.
func turns(r tallyman.Run) string {
	if r.Harness == "exec" {
		return ""
	}
	return strconv.Itoa(r.Usage.Turns)
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
