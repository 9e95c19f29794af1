package cli

import (
	"fmt"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/render"
)

// describeEvidence prints what a cluster said about an attempt: where it was,
// its containers with what they printed beside the journal, and warnings.
func (c *command) describeEvidence(e *tallyman.Evidence) {
	if e == nil {
		return
	}
	if e.Pod != "" {
		fmt.Fprintf(c.out, "  Pod %s", printable(e.Pod))
		if e.Namespace != "" {
			fmt.Fprintf(c.out, " in namespace %s", printable(e.Namespace))
		}
		if e.Node != "" {
			fmt.Fprintf(c.out, " on node %s", printable(e.Node))
		}
		fmt.Fprintln(c.out)
	}
	for _, k := range e.Containers {
		fmt.Fprintf(c.out, "  %s container %s: %s\n", k.Kind, printable(k.Name), render.OneLine(k.Describe(), 300))
		if k.Output != "" {
			for _, l := range lastOf(k.Output, 10) {
				fmt.Fprintf(c.out, "    %s\n", render.OneLine(l, 300))
			}
		}
	}
	for _, w := range e.Events {
		fmt.Fprintf(c.out, "  warning %s %s: %s", w.At.Local().Format(time.TimeOnly), w.Reason, render.OneLine(w.Message, 300))
		if w.Count > 1 {
			fmt.Fprintf(c.out, " (%d times)", w.Count)
		}
		fmt.Fprintln(c.out)
	}
}
