package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tallyman-dev/tallyman"
)

// eachVerb calls fn with each command of a fresh command line.
func eachVerb(t *testing.T, fn func(c *command, cmd *cobra.Command)) {
	t.Helper()
	var paths [][]string
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		paths = append(paths, path)
		for _, sub := range cmd.Commands() {
			walk(sub, append(slices.Clone(path), sub.Name()))
		}
	}
	line := func() *command {
		// With everything that a program may have compiled in.
		all := Program{Name: "tallyman-server", Version: "dev", Backends: map[string]func(BackendOptions) (Backend, error){"kube": nil}}
		return &command{program: all, env: environ{func(string) (string, bool) { return "", false }}, flags: map[string]string{}}
	}
	walk(line().root(), nil)
	for _, path := range paths {
		c := line()
		cmd, _, err := c.root().Find(path)
		if err != nil {
			t.Fatal(err)
		}
		fn(c, cmd)
	}
}

// valued lists the flags of a command that take a value.
func valued(cmd *cobra.Command) []*pflag.Flag {
	var all []*pflag.Flag
	add := func(f *pflag.Flag) {
		if f.Value.Type() != "bool" && f.NoOptDefVal == "" {
			all = append(all, f)
		}
	}
	cmd.NonInheritedFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	return all
}

// refusal is what a flag's value is refused with, nil when it is taken.
func refusal(c *command, cmd *cobra.Command, flag, value string) error {
	if err := cmd.ParseFlags([]string{"--" + flag, value}); err != nil {
		return flagError(cmd, err)
	}
	return c.checkFlags(cmd, nil)
}

func TestEveryFlagRefusesNothingAndLess(t *testing.T) {
	seen := map[string]bool{}
	eachVerb(t, func(_ *command, of *cobra.Command) {
		for _, f := range valued(of) {
			seen[f.Name] = true
			bad := []string{"", " "}
			switch f.Value.Type() {
			case "int", "int64":
				bad = append(bad, "-1", "x", "99999999999999999999")
			case "float64":
				bad = append(bad, "-0.5", "NaN", "Inf", "x")
			case "duration":
				bad = append(bad, "-1s", "soon", "5")
			}
			for _, value := range bad {
				if f.Name == "priority" && value == "-1" {
					continue // lower than the others
				}
				eachVerb(t, func(c *command, cmd *cobra.Command) {
					if cmd.CommandPath() != of.CommandPath() {
						return
					}
					err := refusal(c, cmd, f.Name, value)
					if err == nil || exitOf(err) != ExitUsage || !strings.Contains(err.Error(), "--"+f.Name) || !strings.Contains(err.Error(), writeItLike(f.Name)) {
						t.Errorf("%s --%s %q: %v", cmd.CommandPath(), f.Name, value, err)
					}
				})
			}
		}
	})
	for name := range examples {
		if !seen[name] {
			t.Errorf("an example of --%s, which no verb has", name)
		}
	}
}

func TestTheExampleOfEachFlagIsRight(t *testing.T) {
	eachVerb(t, func(c *command, cmd *cobra.Command) {
		for _, f := range valued(cmd) {
			if err := refusal(c, cmd, f.Name, strings.Trim(examples[f.Name], "'")); err != nil {
				t.Errorf("%s: %v", cmd.CommandPath(), err)
			}
		}
	})
}

func exitOf(err error) int {
	if e, ok := err.(*exitError); ok {
		return e.code
	}
	return exitCode(err)
}

// complete is what a shell is offered, without what it is told about it.
func complete(t *testing.T, args ...string) []string {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := Main(t.Context(), Program{Name: "tallyman", Version: "dev"}, append([]string{"__complete"}, args...), nil, &out, &errOut); code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[:len(lines)-1]
}

func TestEveryStateIsOfferedAndExplained(t *testing.T) {
	all := []string{}
	for _, s := range tallyman.States {
		all = append(all, string(s))
	}
	if got := complete(t, "ls", "--state", ""); !slices.Equal(got, all) {
		t.Errorf("a shell offers %v", got)
	}
	if got := complete(t, "ls", "--state", "failed,su"); !slices.Contains(got, "failed,suspended") {
		t.Errorf("after a comma a shell offers %v", got)
	}
	eachVerb(t, func(_ *command, cmd *cobra.Command) {
		if f := cmd.Flags().Lookup("state"); f != nil && !strings.HasSuffix(f.Usage, strings.Join(all, ", ")) {
			t.Errorf("%s --state is explained so: %s", cmd.CommandPath(), f.Usage)
		}
	})
}

func TestRunOffersAgentsAndThenFiles(t *testing.T) {
	if got := complete(t, "run", ""); !slices.Contains(got, "demo") {
		t.Errorf("a shell offers %v", got)
	}
	for _, args := range [][]string{{"run", "exec", ""}, {"run", "--harness", "exec", ""}} {
		if got := complete(t, args...); len(got) > 0 {
			t.Errorf("%v: a shell offers %v", args, got)
		}
	}
}

func TestWhatIsPrintedAsJSONIsPrintedAsYAMLToo(t *testing.T) {
	n := 0
	eachVerb(t, func(_ *command, cmd *cobra.Command) {
		f := cmd.Flags().Lookup("output-format")
		if f == nil {
			return
		}
		n++
		if f.Shorthand != "o" || !strings.Contains(f.Usage, "json") {
			t.Errorf("%s: -o is %q: %s", cmd.CommandPath(), f.Shorthand, f.Usage)
		}
		if lines := cmd.Name() == "events"; strings.Contains(f.Usage, "yaml") == lines {
			t.Errorf("%s: %s", cmd.CommandPath(), f.Usage)
		}
	})
	if n < 10 {
		t.Errorf("%d verbs have -o", n)
	}
}
