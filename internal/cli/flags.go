package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tallyman-dev/tallyman/internal/config"
)

// commonFlags are flags that configure; their names are config's.
var commonFlags = []struct{ name, help string }{
	{"data", "the data folder (default $XDG_STATE_HOME/tallyman)"},
	{"server", "URL of a server to talk to, instead of the data folder's own"},
	{"token-file", "file with the token for --server (on loopback: DATA/token)"},
	{"server-ca", "file with who vouches for --server, PEM (default: whom this system trusts)"},
	{"agents", "where agents are looked for first: files or folders, separated by colons"},
	{"config", "configuration file (default ./tallyman.yaml)"},
	{"log-level", "debug, info, warn or error"},
}

// examples has a right value of each flag that takes one, for whoever gave a
// wrong one.
var examples = map[string]string{
	"data": "/var/lib/tallyman", "server": "http://127.0.0.1:7333", "token-file": "/run/secrets/tallyman-token",
	"agents": "./agents:/etc/tallyman/agents", "config": "tallyman.yaml", "log-level": "debug", "server-ca": "/etc/tallyman/ca.pem",

	"advertise": "https://10.0.0.5:7333", "tls-cert": "/etc/tallyman/tls.crt", "tls-key": "/etc/tallyman/tls.key",
	"backend": "kube", "kubeconfig": "~/.kube/config", "cluster": "west", "namespace": "agents", "namespaces": "team-a,team-b",
	"runner-image": "registry.example/tallyman-runner:1", "default-tag": "1.4.0", "ca-config-map": "internal-ca", "service-account": "agents", "owner": "tallyman",
	"pull-patience": "3m", "keep-objects": "1h",

	"after": "1.42", "age": "168h", "agent": "reviewer", "budget-usd": "1.50", "cursor": "the \"next\" of the page before",
	"deadline": "30m", "env": "STAGE=test", "file": "prompt.md", "harness": "exec", "idle": "5m", "key": "nightly-2026-11-30",
	"label": "team=web", "limit": "20", "listen": "127.0.0.1:7333", "log-format": "json", "max-running": "4", "max-tokens": "200000",
	"max-turns": "20", "model": "claude-opus-4-6", "output": "'report/*.md'", "output-format": "json", "priority": "10",
	"script": "answers.yaml", "search": "typo", "set": "model=claude-opus-4-6", "since": "10m", "state": "failed,stopped",
	"tail": "20", "to": "/tmp/report.md", "workspace": "fresh",
}

// writeItLike is the way out of a wrong value of a flag.
func writeItLike(flag string) string {
	return fmt.Sprintf("write it like --%s %s", flag, examples[flag])
}

// configFlag adds a flag that configures.
func (c *command) configFlag(flags *pflag.FlagSet, name, help string) {
	flags.Func(name, help, func(v string) error { c.flags[name] = v; return nil })
}

// keyFlag adds the flag of a key.
func (c *command) keyFlag(flags *pflag.FlagSet, k config.Key) {
	if !k.Switch {
		c.configFlag(flags, k.Flag(), k.Help)
		return
	}
	flags.BoolFunc(k.Flag(), k.Help, func(v string) error { c.flags[k.Flag()] = v; return nil })
}

// checkFlags refuses, all at once, values that no flag can mean: nothing at
// all, and less than nothing.
func (c *command) checkFlags(cmd *cobra.Command, _ []string) error {
	var faults []error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if fault := c.faultOf(f); fault != "" {
			faults = append(faults, fmt.Errorf("--%s %s; %s", f.Name, fault, writeItLike(f.Name)))
		}
	})
	if len(faults) == 0 {
		return nil
	}
	return usageError("%w\nsee: %s --help", errors.Join(faults...), cmd.CommandPath())
}

func (c *command) faultOf(f *pflag.Flag) string {
	values := []string{f.Value.String()}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		values = list.GetSlice()
	} else if v, ok := c.flags[f.Name]; ok {
		values[0] = v
	}
	if len(values) == 0 {
		return "is empty"
	}
	for _, v := range values {
		if strings.TrimSpace(v) == "" {
			return "is empty"
		}
	}
	switch f.Value.Type() {
	case "int", "int64", "float64", "duration":
		if n, err := strconv.ParseFloat(values[0], 64); err == nil && (math.IsNaN(n) || math.IsInf(n, 0)) {
			return values[0] + " is no amount"
		}
		if strings.HasPrefix(values[0], "-") && f.Name != "priority" {
			return values[0] + " is negative"
		}
	}
	return ""
}

// flagError says in a sentence what is wrong with the flags of a command.
func flagError(cmd *cobra.Command, err error) error {
	see := "see: " + cmd.CommandPath() + " --help"
	var bad *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &bad):
		f := bad.GetFlag()
		what := map[string]string{"int": "no whole number", "int64": "no whole number", "float64": "no number", "duration": "no duration"}[f.Value.Type()]
		switch {
		case f.Value.Type() == "bool":
			return usageError("--%s=%s is neither true nor false; write --%[1]s, or --%[1]s=false\n%s", f.Name, bad.GetValue(), see)
		case what == "":
			return usageError("%w\n%s", err, see)
		}
		if errors.Is(err, strconv.ErrRange) {
			what = "too large"
		}
		return usageError("--%s %q is %s; %s\n%s", f.Name, bad.GetValue(), what, writeItLike(f.Name), see)
	case errors.As(err, &missing):
		return usageError("--%s needs a value; %s\n%s", missing.GetFlag().Name, writeItLike(missing.GetFlag().Name), see)
	}
	return usageError("%w\n%s", err, see)
}
