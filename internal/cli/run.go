package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/service"
)

// runOptions are the flags of run.
type runOptions struct {
	harness   string
	file      string
	env       []string
	labels    []string
	model     string
	priority  int
	deadline  time.Duration
	idle      time.Duration
	maxTurns  int
	budget    float64
	maxTokens int64
	key       string
	workspace string
	outputs   []string
	detach    bool
	dry       bool
}

func (c *command) runCommand() *cobra.Command {
	o := &runOptions{}
	cmd := &cobra.Command{
		Use:   "run AGENT PROMPT… | run exec -- COMMAND ARG…",
		Short: "Run an agent and watch it until it ends",
		Long: `Submits a run, shows its transcript as it is written, and ends with one block that
says how it ended. Ctrl-C stops the run properly; a second one leaves at once.

What is piped in reaches the agent only where - or --file - asks for it. To agents
of other harnesses than exec, words after -- are the prompt: run demo -- "--dash".

Agents are looked for in --agents, ./agents, $XDG_CONFIG_HOME/tallyman/agents, and
among the built-in ones: demo, exec, claude, codex, gemini, opencode. The built-in
ones work in the current folder, agents from files in a fresh one unless they say
otherwise. Over --server agents are the server's, and the built-in ones, too, work in
a fresh folder there: nothing of the current folder reaches them. NAMESPACE/AGENT is
an agent that a cluster has as a resource.

The same --key with the same request brings the first run, also when its agent's file
is gone by now.

Exit codes: 0 succeeded, 1 failed, 2 usage, 3 stopped by somebody else, 4 no server or
one that takes no runs now, 124 deadline or idle timeout, 130 stopped by Ctrl-C here;
of -d 0 once it is queued.`,
		Example: `  tallyman run demo "say hello"
  tallyman run claude "explain this repository" --max-turns 20 --budget-usd 1
  tallyman run exec -- make test
  tallyman run reviewer --file prompt.md --label team=web --output 'report/*.md'
  echo "fix the typo" | tallyman run claude -
  tallyman run --dry-run reviewer "a prompt" | kubectl diff -f -
  tallyman run -d nightly "the usual" --key nightly-2026-11-30 -o json`,
		ValidArgsFunction: c.completeRun,
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.run(cmd, o, given, cmd.ArgsLenAtDash())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.harness, "harness", "", "run this harness without an agent file (exec, demo's script, claude)")
	f.StringVar(&o.file, "file", "", "read the prompt from a file; - is standard input")
	f.StringArrayVar(&o.env, "env", nil, "K=V for the agent's environment; K alone takes yours; not for secrets, use envFrom in an agent file")
	f.StringArrayVar(&o.labels, "label", nil, "k=v, to find the run by")
	f.StringVar(&o.model, "model", "", "model for the harness")
	f.IntVar(&o.priority, "priority", 0, "higher is admitted first")
	f.DurationVar(&o.deadline, "deadline", 0, "longest time for one attempt, like 30m; 0 for none (default 2h)")
	f.DurationVar(&o.idle, "idle", 0, "longest silence on standard output, like 5m; 0 for none (default none)")
	f.IntVar(&o.maxTurns, "max-turns", 0, "most turns of one attempt; 0 for no limit")
	f.Float64Var(&o.budget, "budget-usd", 0, "most US dollars over all attempts; 0 for no limit")
	f.Int64Var(&o.maxTokens, "max-tokens", 0, "most tokens of all kinds over all attempts; 0 for no limit")
	f.StringVar(&o.key, "key", "", "idempotency key: the same key brings the same run")
	f.StringVar(&o.workspace, "workspace", "", "folder to work in, fresh, or git:URL#ref; over --server no folder")
	f.StringArrayVar(&o.outputs, "output", nil, "pattern of files that must be there at the end; kept as artifacts (how the run is printed: -o)")
	f.BoolVarP(&o.detach, "detach", "d", false, "print the run and leave it running")
	f.BoolVar(&o.dry, "dry-run", false, "only print what would be made in the cluster, as YAML")
	c.outputFlag(cmd, "json", "yaml", "name")
	return cmd
}

func (c *command) run(cmd *cobra.Command, o *runOptions, given []string, dash int) error {
	ctx := cmd.Context()
	req, err := c.request(cmd, o, given, dash)
	if err != nil {
		return err
	}
	s, err := c.connectFor(ctx, o.detach)
	if err != nil {
		return err
	}
	if s.local {
		err = c.inline(ctx, &req, s, o.workspace == "" && runsHere(s.cfg))
	} else {
		err = prepareRemote(ctx, &req, s)
	}
	if o.dry {
		return c.preview(ctx, s, req, err)
	}
	run, err := s.submit(ctx, req, err)
	if err != nil {
		return submitError(err)
	}
	if o.detach {
		return c.printRun(run)
	}
	return c.watch(ctx, s, run)
}

// preview prints what a request would make in the cluster.
func (c *command) preview(ctx context.Context, s *session, req tallyman.Request, unfit error) error {
	if unfit != nil {
		return submitError(unfit)
	}
	object, err := s.Preview(ctx, req)
	if err != nil {
		return submitError(err)
	}
	if c.output == "" {
		c.output = "yaml"
	}
	return c.printObject(object)
}

// request reads flags and arguments; a command comes after --.
func (c *command) request(cmd *cobra.Command, o *runOptions, given []string, dash int) (req tallyman.Request, err error) {
	req = tallyman.Request{Source: tallyman.SourceCLI, Key: o.key, Model: o.model, Agent: o.harness}
	words := given
	if o.harness == "" {
		if len(given) == 0 || dash == 0 {
			return req, usageError("run needs an agent, and mostly a prompt: tallyman run demo \"say hello\"")
		}
		req.Namespace, req.Agent = tallyman.ParseAgentName(given[0])
		words = given[1:]
		dash--
	}
	if dash >= 0 {
		req.Command = words[dash:]
		words = words[:dash]
		if len(req.Command) == 0 {
			return req, usageError("there is no command after --")
		}
	} else if req.Agent == "exec" && len(words) > 0 {
		req.Command, words = words, nil
	}
	if req.Prompt, err = c.prompt(o.file, words); err != nil {
		return req, err
	}
	if o.harness == "script" {
		req.Inline = &tallyman.Agent{Name: "script", Origin: tallyman.BuiltIn, Spec: tallyman.AgentSpec{Harness: "script"}}
		req.Agent = "script"
	}
	if err := readPairs(o, &req, c.env); err != nil {
		return req, err
	}
	if cmd.Flags().Changed("priority") {
		req.Priority = &o.priority
	}
	if req.Limits, err = limits(cmd, o); err != nil {
		return req, err
	}
	if o.workspace != "" {
		w := o.workspace
		if w != "fresh" && !strings.HasPrefix(w, "git:") {
			if w, err = filepath.Abs(w); err != nil {
				return req, usageError("--workspace %s: %w", o.workspace, errNowhere)
			}
		}
		req.Workspace = &tallyman.Workspace{Path: w}
	}
	for _, p := range o.outputs {
		req.Outputs = append(req.Outputs, tallyman.Output{Path: p})
	}
	return req, onlyText(slices.Concat(given, o.env, o.labels, o.outputs, []string{o.model, o.key, o.workspace}))
}

// onlyText refuses words whose bytes would be changed on their way: a request
// is JSON, and that is UTF-8.
func onlyText(words []string) error {
	for _, w := range words {
		if !utf8.ValidString(w) {
			return usageError("%q is not UTF-8, and would arrive as something else; put it into a script or a file in the workspace", w)
		}
	}
	return nil
}

// prompt is what the arguments, a file, or standard input say.
func (c *command) prompt(file string, words []string) (string, error) {
	if file != "" && len(words) > 0 {
		return "", usageError("the prompt comes from --file or from the arguments, not from both")
	}
	if len(words) == 1 && words[0] == "-" {
		file = "-"
	}
	switch file {
	case "":
		return strings.Join(words, " "), nil
	case "-":
		return promptFrom(c.in, "standard input")
	default:
		f, err := os.Open(file)
		if err != nil {
			return "", usageError("read the prompt: %w", err)
		}
		defer f.Close()
		return promptFrom(f, file)
	}
}

// promptFrom reads a prompt, and no more than one may have: what is piped in
// may never end. One whose bytes would be changed on their way is refused.
func promptFrom(r io.Reader, from string) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, service.MaxPrompt+1))
	if err != nil {
		return "", usageError("read the prompt from %s: %w", from, err)
	}
	if len(b) > service.MaxPrompt {
		return "", usageError("the prompt from %s has more than %d bytes; put the file into the workspace and name it in the prompt", from, service.MaxPrompt)
	}
	if !utf8.Valid(b) {
		return "", usageError("the prompt from %s is not UTF-8; put the file into the workspace and name it in the prompt", from)
	}
	return string(b), nil
}

func readPairs(o *runOptions, req *tallyman.Request, env environ) error {
	for _, kv := range o.env {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			if v, ok = env.lookup(k); !ok {
				return usageError("--env %s: it is not set here; write --env %s=VALUE", k, k)
			}
			if err := onlyText([]string{v}); err != nil {
				return err
			}
		}
		if k == "" {
			return usageError("--env %q has no name; %s", kv, writeItLike("env"))
		}
		req.Env = append(req.Env, tallyman.EnvVar{Name: k, Value: v})
	}
	var err error
	req.Labels, err = readLabels(o.labels)
	return err
}

// readLabels reads k=v of each --label; no labels are nil.
func readLabels(given []string) (labels map[string]string, err error) {
	for _, kv := range given {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, usageError("--label %q has no key and value; %s", kv, writeItLike("label"))
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[k] = v
	}
	return labels, nil
}

// limits reads the flags that were given; zero is a value too.
func limits(cmd *cobra.Command, o *runOptions) (tallyman.Limits, error) {
	deadline, idle := tallyman.Duration(o.deadline), tallyman.Duration(o.idle)
	var all tallyman.Limits
	for flag, one := range map[string]tallyman.Limits{
		"deadline": {Deadline: &deadline}, "idle": {Idle: &idle},
		"max-turns": {MaxTurns: &o.maxTurns}, "budget-usd": {BudgetUSD: &o.budget}, "max-tokens": {MaxTokens: &o.maxTokens},
	} {
		if !cmd.Flags().Changed(flag) {
			continue
		}
		if err := one.Validate(); err != nil {
			return all, usageError("--%s: %w; %s", flag, err, writeItLike(flag))
		}
		all = one.Over(all)
	}
	return all, nil
}

func (c *command) printRun(run tallyman.Run) error {
	switch c.output {
	case "json", "yaml":
		return c.printObject(run)
	case "name":
		_, err := fmt.Fprintln(c.out, run.Name)
		return err
	default:
		follow := ""
		if !run.State.Terminal() { // a key may bring a run that has ended, or is removed
			follow = fmt.Sprintf("follow it with: tallyman logs -f %s\n", run.Name)
		}
		_, err := fmt.Fprintf(c.out, "%s %s\n%s", run.Name, run.State, follow)
		return err
	}
}
