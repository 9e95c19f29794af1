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
	c := &command{program: Program{Name: "tallyman", Version: "dev"}, env: environ{func(string) (string, bool) { return "", false }}, flags: map[string]string{}}
	var b bytes.Buffer
	b.WriteString("# The command line\n\nWritten by `make generate` from the commands themselves; `tallyman VERB --help` prints the same.\n")
	describe(&b, c.root())
	golden(t, "cli.md", b.Bytes())
}

// describe writes a command, then those below it.
func describe(b *bytes.Buffer, cmd *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n%s.\n", cmd.CommandPath(), strings.TrimSuffix(cmd.Short, "."))
	if cmd.Long != "" {
		fmt.Fprintf(b, "\n%s\n", cmd.Long)
	}
	if cmd.Runnable() {
		fmt.Fprintf(b, "\n    %s\n", cmd.UseLine())
	}
	if cmd.Example != "" {
		fmt.Fprintf(b, "\n```\n%s\n```\n", cmd.Example)
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
			fmt.Fprintf(b, "| %s | %s |\n", name, strings.ReplaceAll(f.Usage, "|", "\\|"))
		})
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			describe(b, sub)
		}
	}
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
