// Package cli is the command line: one file per verb. It puts the rooms
// together into a server where one is needed, and otherwise talks to the one
// that serves the data folder.
package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/config"
	"github.com/tallyman-dev/tallyman/internal/harness"
	"github.com/tallyman-dev/tallyman/internal/render"
	"github.com/tallyman-dev/tallyman/internal/runner"
)

// Exit codes.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitStopped     = 3
	ExitNoServer    = 4
	ExitUnknown     = 5
	ExitTimeout     = 124
	ExitInterrupted = 130
)

// Main runs the command line of one process and returns its exit code.
func Main(ctx context.Context, p Program, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// These two are programs of their own: they start with every attempt and
	// need nothing of the rest.
	if len(args) > 0 {
		switch args[0] {
		case "runner":
			return runner.Main(p.Version, stderr)
		case "script":
			return harness.Script(ctx, args[1:], stdin, stdout, stderr)
		}
	}
	c := &command{program: p, in: stdin, out: stdout, errOut: stderr, env: environ{os.LookupEnv}, flags: map[string]string{}}
	root := c.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if c.session != nil {
		err = errors.Join(err, c.session.close())
	}
	if err == nil {
		return ExitOK
	}
	var exit *exitError
	if errors.As(err, &exit) {
		if exit.err != nil {
			fmt.Fprintln(stderr, "tallyman:", render.Clean(exit.err.Error()))
		}
		return exit.code
	}
	fmt.Fprintln(stderr, "tallyman:", render.Clean(err.Error())+hint(err))
	return exitCode(err)
}

// hint says what to do about an error that comes from below.
func hint(err error) string {
	if errors.As(err, new(x509.UnknownAuthorityError)) {
		return "; name who vouches for the server with --server-ca: DATA/ca.pem of a server that has made its own certificate"
	}
	return ""
}

// exitError ends the process with a code; err may be nil when all is said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exitCode is the exit code for an error of a verb.
func exitCode(err error) int {
	switch tallyman.CodeOf(err) {
	case tallyman.Invalid, tallyman.Conflict, tallyman.TooLarge, tallyman.Unsupported, tallyman.Unauthorized:
		return ExitUsage
	case tallyman.NotFound:
		return ExitUnknown
	case tallyman.Unavailable:
		return ExitNoServer
	default:
		return ExitFailed
	}
}

func usageError(format string, args ...any) error {
	return &exitError{ExitUsage, fmt.Errorf(format, args...)}
}

// environ is the environment of this process.
type environ struct {
	lookup func(string) (string, bool)
}

func (e environ) get(name string) string {
	v, _ := e.lookup(name)
	return v
}

func (e environ) home() string { return e.get("HOME") }

// command is what all verbs share.
type command struct {
	program     Program
	in          io.Reader
	out, errOut io.Writer
	env         environ

	flags    map[string]string // common flags that were given
	defaults map[string]string // the verb's own, by key
	output   string            // -o
	session  *session
}

func (c *command) root() *cobra.Command {
	root := &cobra.Command{
		Use:   c.program.Name,
		Short: "Run AI agents' work and tell the truth about it",
		Long: `tallyman runs agents (Claude Code, any command, a built-in script) as supervised
processes, under limits, keeps everything they did, and tells how each run ended.

Start with:   tallyman run demo "say hello"
Then:         tallyman ls; tallyman up

-o json and -o yaml print one object and nothing else. The long name of -o is
--output-format in every verb, because run's --output names files to keep.`,
		SilenceErrors: true, SilenceUsage: true, Version: c.program.Version,
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	needsVerb(root)
	root.SetFlagErrorFunc(flagError)
	root.PersistentPreRunE = c.checkFlags
	for _, f := range commonFlags {
		c.configFlag(root.PersistentFlags(), f.name, f.help)
	}
	root.AddCommand(
		c.runCommand(), c.upCommand(), c.lsCommand(), c.showCommand(), c.logsCommand(), c.eventsCommand(),
		c.stopCommand(), c.rerunCommand(), c.rmCommand(), c.artifactsCommand(), c.agentsCommand(),
		c.initCommand(), c.configCommand(), c.doctorCommand(), c.pruneCommand(), c.fakemodelCommand(), c.versionCommand(),
	)
	if len(c.program.Backends) > 0 {
		root.AddCommand(c.serverCommand())
	}
	return root
}

// needsVerb makes a command that only holds others print its help when it
// stands alone, and refuse a word that is none of them.
func needsVerb(cmd *cobra.Command) {
	cmd.Args, cmd.SuggestionsMinimumDistance = cobra.ArbitraryArgs, 2
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if len(given) == 0 {
			return cmd.Help()
		}
		hint := ""
		if near := cmd.SuggestionsFor(given[0]); len(near) > 0 {
			hint = fmt.Sprintf("; did you mean %q?", near[0])
		}
		return usageError("unknown command %q%s\nsee: %s --help", given[0], hint, cmd.CommandPath())
	}
}

// args checks the number of arguments and says what is missing. None may be
// empty: a variable that is not set names nothing.
func args(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) < least || most >= 0 && len(given) > most {
			return usageError("%s takes %s; it was given %d\nsee: %s --help", cmd.Name(), what, len(given), cmd.CommandPath())
		}
		if slices.Contains(given, "") {
			return usageError("%s takes %s; an empty word is none\nsee: %s --help", cmd.Name(), what, cmd.CommandPath())
		}
		return nil
	}
}

// here is the current folder, "" when it was removed: then relative paths lead
// nowhere, and whoever does not need them goes on.
func here() string {
	cwd, err := os.Getwd()
	if err != nil {
		return ""
	}
	return cwd
}

// errNowhere is for who needs the current folder.
var errNowhere = usageError("the current folder is gone: change to one that is there, or name absolute paths")

// config loads the configuration.
func (c *command) config() (config.Config, config.Origins, error) {
	cwd := here()
	cfg, origins, err := config.Load(c.flags, c.env.get, cwd, c.defaults)
	if err != nil {
		if cwd == "" {
			err = fmt.Errorf("%w\n%w", err, errNowhere)
		}
		return cfg, origins, &exitError{ExitUsage, err}
	}
	return cfg, origins, nil
}

// logger writes to standard error, at the level that is configured.
func (c *command) logger(cfg config.Config, fallback slog.Level) *slog.Logger {
	level := fallback
	if _, given := c.flags["log-level"]; given || c.env.get("TALLYMAN_LOG_LEVEL") != "" {
		if err := level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
			level = fallback
		}
	}
	options := &slog.HandlerOptions{Level: level}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(c.errOut, options))
	}
	return slog.New(slog.NewTextHandler(c.errOut, options))
}
