// Package cli is the command line: one file per verb. It puts the rooms
// together into a server where one is needed, and otherwise talks to the one
// that serves the data folder.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/config"
	"github.com/tallyman-dev/tallyman/internal/harness"
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
func Main(ctx context.Context, version string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// These two are programs of their own: they start with every attempt and
	// need nothing of the rest.
	if len(args) > 0 {
		switch args[0] {
		case "runner":
			return runner.Main(version, stderr)
		case "script":
			return harness.Script(ctx, args[1:], stdin, stdout, stderr)
		}
	}
	c := &command{version: version, in: stdin, out: stdout, errOut: stderr, env: environ{os.LookupEnv}, flags: map[string]string{}}
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
			fmt.Fprintln(stderr, "tallyman:", exit.err)
		}
		return exit.code
	}
	fmt.Fprintln(stderr, "tallyman:", err)
	return exitCode(err)
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
	case tallyman.Invalid, tallyman.Conflict, tallyman.TooLarge, tallyman.Unsupported:
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
	version     string
	in          io.Reader
	out, errOut io.Writer
	env         environ

	flags   map[string]string // common flags that were given
	output  string            // -o
	session *session
}

// commonFlags are flags that configure; their names are config's.
var commonFlags = []struct{ name, help string }{
	{"data", "the data folder (default $XDG_STATE_HOME/tallyman)"},
	{"server", "URL of a server to talk to, instead of the data folder's own"},
	{"token-file", "file with the token for --server (on loopback: DATA/token)"},
	{"agents", "where agents are looked for first: files or folders, separated by colons"},
	{"config", "configuration file (default ./tallyman.yaml)"},
	{"log-level", "debug, info, warn or error"},
}

func (c *command) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "tallyman",
		Short: "Run AI agents' work and tell the truth about it",
		Long: `tallyman runs agents (Claude Code, any command, a built-in script) as supervised
processes, under limits, keeps everything they did, and tells how each run ended.

Start with:   tallyman run demo "say hello"
Then:         tallyman ls; tallyman up`,
		SilenceErrors: true, SilenceUsage: true, Version: c.version,
	}
	root.SetVersionTemplate("tallyman {{.Version}}\n")
	needsVerb(root)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError("%w\nsee: %s --help", err, cmd.CommandPath())
	})
	for _, f := range commonFlags {
		root.PersistentFlags().Func(f.name, f.help, func(v string) error { c.flags[f.name] = v; return nil })
	}
	root.AddCommand(
		c.runCommand(), c.upCommand(), c.lsCommand(), c.showCommand(), c.logsCommand(), c.eventsCommand(),
		c.stopCommand(), c.rerunCommand(), c.rmCommand(), c.artifactsCommand(), c.agentsCommand(),
		c.initCommand(), c.configCommand(), c.doctorCommand(), c.pruneCommand(), c.fakemodelCommand(), c.versionCommand(),
	)
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

// args checks the number of arguments and says what is missing.
func args(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) < least || most >= 0 && len(given) > most {
			return usageError("%s takes %s; it was given %d\nsee: %s --help", cmd.Name(), what, len(given), cmd.CommandPath())
		}
		return nil
	}
}

// config loads the configuration.
func (c *command) config() (config.Config, config.Origins, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return config.Config{}, nil, fmt.Errorf("find the working folder: %w", err)
	}
	cfg, origins, err := config.Load(c.flags, c.env.get, cwd)
	if err != nil {
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

// outputFlag adds -o to a verb.
func (c *command) outputFlag(cmd *cobra.Command, formats ...string) {
	cmd.Flags().StringVarP(&c.output, "output-format", "o", "", "print as "+strings.Join(formats, ", "))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if c.output == "" {
			return nil
		}
		for _, f := range formats {
			if c.output == f {
				return nil
			}
		}
		return usageError("-o %s: known are %s", c.output, strings.Join(formats, ", "))
	}
}

// printJSON prints one object and nothing else.
func (c *command) printJSON(v any) error {
	e := json.NewEncoder(c.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
