package runner

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
)

func TestJudge(t *testing.T) {
	said := func(r tallyman.Reason) tallyman.Outcome {
		return tallyman.Outcome{Reason: r, Message: "said the harness"}
	}
	exit := func(code int) tallyman.Exit { return tallyman.Exit{Code: code} }
	killed, ours := tallyman.Exit{Code: -1, Signal: "SIGKILL"}, tallyman.Exit{Code: -1, Signal: "SIGKILL", Sent: "SIGKILL"}
	deadline := &order{tallyman.DeadlineExceeded, "too long"}
	for name, c := range map[string]struct {
		out         tallyman.Outcome
		exit        tallyman.Exit
		intent      *order
		interrupted bool
		said        bool // its result, before our signal
		oom         int
		own, any    bool
		want        tallyman.Outcome
	}{
		"the harness says it all":                                {out: said(tallyman.Completed), exit: exit(0), want: tallyman.Outcome{Reason: tallyman.Completed, Message: "said the harness", ExitCode: ptr(0)}},
		"its failure, too":                                       {out: said(tallyman.AgentError), exit: exit(3), want: tallyman.Outcome{Reason: tallyman.AgentError, Message: "said the harness", ExitCode: ptr(3)}},
		"a failure without words gets its name":                  {out: tallyman.Outcome{Reason: tallyman.NoResult}, exit: exit(0), want: tallyman.Outcome{Reason: tallyman.NoResult, Message: "NoResult", ExitCode: ptr(0)}},
		"our intent stands above it":                             {out: said(tallyman.AgentError), exit: exit(143), intent: deadline, want: tallyman.Outcome{Reason: tallyman.DeadlineExceeded, Message: "too long", ExitCode: ptr(143)}},
		"even above a good end":                                  {out: said(tallyman.Completed), exit: exit(0), intent: deadline, want: tallyman.Outcome{Reason: tallyman.DeadlineExceeded, Message: "too long", ExitCode: ptr(0)}},
		"and above an interruption and memory":                   {out: said(tallyman.AgentError), exit: killed, intent: deadline, interrupted: true, oom: 1, want: tallyman.Outcome{Reason: tallyman.DeadlineExceeded, Message: "too long", Signal: "SIGKILL", OOMKills: 1}},
		"interrupted: nobody here knows why":                     {out: said(tallyman.AgentError), exit: exit(143), interrupted: true, want: tallyman.Outcome{Interrupted: true, Message: "the runner was told to end while the agent was at work", ExitCode: ptr(143)}},
		"interrupted after the work was done":                    {out: said(tallyman.Completed), exit: exit(0), interrupted: true, said: true, want: tallyman.Outcome{Reason: tallyman.Completed, Message: "said the harness", ExitCode: ptr(0)}},
		"interrupted, and an exit code 0 after our signal":       {out: said(tallyman.Completed), exit: tallyman.Exit{Sent: "SIGTERM"}, interrupted: true, want: tallyman.Outcome{Interrupted: true, Message: "the runner was told to end while the agent was at work", ExitCode: ptr(0)}},
		"a result that was no success, interrupted":              {out: said(tallyman.RateLimited), exit: exit(1), interrupted: true, said: true, want: tallyman.Outcome{Interrupted: true, Message: "the runner was told to end while the agent was at work", ExitCode: ptr(1)}},
		"the counter moved beside an intent":                     {out: said(tallyman.AgentError), exit: exit(143), intent: deadline, oom: 3, want: tallyman.Outcome{Reason: tallyman.DeadlineExceeded, Message: "too long", ExitCode: ptr(143)}},
		"the counter moved beside a kill of ours with an intent": {out: said(tallyman.AgentError), exit: ours, intent: deadline, oom: 3, want: tallyman.Outcome{Reason: tallyman.DeadlineExceeded, Message: "too long", Signal: "SIGKILL"}},
		"the counter moved beside an interruption":               {out: said(tallyman.AgentError), exit: exit(143), interrupted: true, oom: 3, want: tallyman.Outcome{Interrupted: true, Message: "the runner was told to end while the agent was at work", ExitCode: ptr(143)}},
		"killed for memory while it obeyed our TERM":             {out: said(tallyman.AgentError), exit: tallyman.Exit{Code: -1, Signal: "SIGKILL", Sent: "SIGTERM"}, intent: deadline, oom: 3, want: tallyman.Outcome{Reason: tallyman.DeadlineExceeded, Message: "too long", Signal: "SIGKILL", OOMKills: 3}},
		"a child was killed, and a command hides it":             {out: said(tallyman.Completed), exit: exit(0), oom: 1, own: true, any: true, want: tallyman.Outcome{Reason: tallyman.OOMKilled, Message: "the kernel killed the agent for memory (kills in its control group: 1)", ExitCode: ptr(0), OOMKills: 1}},
		"a child was killed, and a harness goes on":              {out: said(tallyman.Completed), exit: exit(0), oom: 1, own: true, want: tallyman.Outcome{Reason: tallyman.Completed, Message: "said the harness", ExitCode: ptr(0), OOMKills: 1}},
		"a child was killed, and the harness fails":              {out: said(tallyman.NoResult), exit: exit(1), oom: 2, own: true, want: tallyman.Outcome{Reason: tallyman.OOMKilled, Message: "the kernel killed the agent for memory (kills in its control group: 2)", ExitCode: ptr(1), OOMKills: 2}},
		"a child was killed after our TERM":                      {out: said(tallyman.AgentError), exit: tallyman.Exit{Code: 143, Sent: "SIGTERM"}, intent: deadline, oom: 1, own: true, any: true, want: tallyman.Outcome{Reason: tallyman.DeadlineExceeded, Message: "too long", ExitCode: ptr(143), OOMKills: 1}},
		"killed for memory":                                      {out: said(tallyman.AgentError), exit: killed, oom: 2, want: tallyman.Outcome{Reason: tallyman.OOMKilled, Message: "the kernel killed the agent for memory (kills in its control group: 2)", Signal: "SIGKILL", OOMKills: 2}},
		"killed, and the counter did not move":                   {out: said(tallyman.AgentError), exit: killed, want: tallyman.Outcome{Reason: tallyman.AgentError, Message: "said the harness", Signal: "SIGKILL"}},
		"a kill of ours is no sign of memory":                    {out: said(tallyman.AgentError), exit: ours, oom: 2, want: tallyman.Outcome{Reason: tallyman.AgentError, Message: "said the harness", Signal: "SIGKILL"}},
		"another signal neither":                                 {out: said(tallyman.AgentError), exit: tallyman.Exit{Code: -1, Signal: "SIGSEGV"}, oom: 2, want: tallyman.Outcome{Reason: tallyman.AgentError, Message: "said the harness", Signal: "SIGSEGV"}},
		"an exit while the counter moved beside us":              {out: said(tallyman.AgentError), exit: exit(1), oom: 2, want: tallyman.Outcome{Reason: tallyman.AgentError, Message: "said the harness", ExitCode: ptr(1)}},
		"a counter that went back is no kill":                    {out: said(tallyman.Completed), exit: exit(0), oom: -1, want: tallyman.Outcome{Reason: tallyman.Completed, Message: "said the harness", ExitCode: ptr(0)}},
		"killed for memory after the result was said":            {out: said(tallyman.Completed), exit: killed, oom: 1, want: tallyman.Outcome{Reason: tallyman.Completed, Message: "said the harness", Signal: "SIGKILL", OOMKills: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(c.out, c.exit, ending{c.intent, c.interrupted, c.said}, memory{kills: c.oom, own: c.own, any: c.any})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
