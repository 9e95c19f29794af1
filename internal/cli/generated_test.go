package cli

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/auth"
	"github.com/tallyman-dev/tallyman/internal/rest"
)

var update = flag.Bool("update", false, "write the generated files")

// golden compares a generated file with what is generated now.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("..", "..", "docs", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("docs/%s is not what is generated now: run make generate", name)
	}
}

func TestGeneratedOpenAPI(t *testing.T) {
	a, err := auth.Open(filepath.Join(t.TempDir(), "token"))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	rest.Routes(mux, nil, func() tallyman.Info { return tallyman.Info{Version: "v1"} }, a, slog.New(slog.DiscardHandler))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, w.Body.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	pretty.WriteByte('\n')
	golden(t, "openapi.json", pretty.Bytes())
}

func TestGeneratedCLI(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("# The command line\n\nWritten by `make generate` from the commands themselves; `tallyman VERB --help` prints the same.\n" +
		"tallyman-server has more: [its command line](cli-server.md).\n")
	for _, part := range described(Program{Name: "tallyman", Version: "dev"}) {
		b.WriteString(part)
	}
	golden(t, "cli.md", b.Bytes())
}

// What tallyman-server has beside: the parts of its command line that are
// others than tallyman's.
func TestGeneratedServerCLI(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("# The command line of tallyman-server\n\nWritten by `make generate`. It is that of [tallyman](cli.md) with Kubernetes compiled in; here stands what differs.\n" +
		"What configures is also a key of the configuration file and a variable, like `runner-image` and `TALLYMAN_RUNNER_IMAGE`; `config` prints all of it,\nthat without a flag too, like `start-timeout`.\n")
	plain := described(Program{Name: "tallyman", Version: "dev"})
	server := Program{Name: "tallyman-server", Version: "dev", Backends: map[string]func(BackendOptions) (Backend, error){"kube": nil}}
	for _, part := range described(server)[1:] { // the first is the root
		if !slices.Contains(plain, strings.ReplaceAll(part, "tallyman-server", "tallyman")) {
			b.WriteString(part)
		}
	}
	for _, must := range []string{"## tallyman-server server", "## tallyman-server up", "`--runner-image`"} {
		if !strings.Contains(b.String(), must) {
			t.Errorf("it does not have %s", must)
		}
	}
	golden(t, "cli-server.md", b.Bytes())
}

// described are a program's commands, each before those below it.
func described(p Program) (parts []string) {
	c := &command{program: p, env: environ{func(string) (string, bool) { return "", false }}, flags: map[string]string{}}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		parts = append(parts, describe(cmd))
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				walk(sub)
			}
		}
	}
	walk(c.root())
	return parts
}

// describe writes a command.
func describe(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n%s.\n", cmd.CommandPath(), strings.TrimSuffix(cmd.Short, "."))
	if cmd.Long != "" {
		fmt.Fprintf(&b, "\n%s\n", cmd.Long)
	}
	if cmd.Runnable() {
		fmt.Fprintf(&b, "\n    %s\n", cmd.UseLine())
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\n```\n%s\n```\n", cmd.Example)
	}
	flags := cmd.NonInheritedFlags()
	if flags.HasAvailableFlags() {
		b.WriteString("\n| flag | meaning |\n| --- | --- |\n")
		flags.VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" {
				return
			}
			name := "`--" + f.Name + "`"
			if f.Shorthand != "" {
				name = "`-" + f.Shorthand + "`, " + name
			}
			fmt.Fprintf(&b, "| %s | %s |\n", name, strings.ReplaceAll(f.Usage, "|", "\\|"))
		})
	}
	return b.String()
}

// TestEveryVerbExplainsItself holds that each verb has help and examples.
func TestEveryVerbExplainsItself(t *testing.T) {
	c := &command{program: Program{Name: "tallyman", Version: "dev"}, env: environ{func(string) (string, bool) { return "", false }}, flags: map[string]string{}}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" || cmd.HasParent() && cmd.Example == "" {
			t.Errorf("%s has no help or no example", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "help" && sub.Name() != "completion" {
				walk(sub)
			}
		}
	}
	walk(c.root())
}
