package catalog_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/catalog"
)

// agentText is an agent file; the model tells one from another.
func agentText(name, model string) string {
	return "apiVersion: tallyman.dev/v1alpha1\nkind: Agent\nmetadata: {name: " + name + "}\nspec: {harness: claude, model: " + model + "}\n"
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, paths ...string) *catalog.Catalog {
	t.Helper()
	return catalog.New(paths, catalog.Builtin([]byte("[]")), slog.New(slog.DiscardHandler))
}

// model returns the model of an agent, or the error.
func model(t *testing.T, c *catalog.Catalog, name string) string {
	t.Helper()
	a, err := c.Get(t.Context(), "", name)
	if err != nil {
		return "error: " + err.Error()
	}
	return a.Spec.Model
}

func listed(t *testing.T, c *catalog.Catalog) (string, []string) {
	t.Helper()
	agents, errs := c.List(t.Context())
	var names, faults []string
	for _, a := range agents {
		names = append(names, strings.TrimSuffix(a.Name+":"+a.Spec.Model, ":"))
	}
	for _, err := range errs {
		faults = append(faults, err.Error())
	}
	return strings.Join(names, " "), faults
}

func TestTheEarlierPlaceWins(t *testing.T) {
	dir := t.TempDir()
	file, one, two := filepath.Join(dir, "any.txt"), filepath.Join(dir, "one"), filepath.Join(dir, "two")
	write(t, file, agentText("a", "from-file"))
	write(t, filepath.Join(one, "a.yaml"), agentText("a", "from-one"))
	write(t, filepath.Join(one, "b.YML"), agentText("b", "from-one"))
	write(t, filepath.Join(one, "notes.txt"), "no agent")
	write(t, filepath.Join(one, ".hidden.yaml"), "no agent")
	write(t, filepath.Join(one, "below", "x.yaml"), "no agent")
	write(t, filepath.Join(two, "b.yaml"), agentText("b", "from-two"))
	write(t, filepath.Join(two, "c.json"), `{"apiVersion": "tallyman.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "c"}, "spec": {"harness": "claude", "model": "from-two"}}`)
	write(t, filepath.Join(two, "demo.yaml"), agentText("demo", "from-two"))
	c := open(t, file, one, two)
	for name, want := range map[string]string{"a": "from-file", "b": "from-one", "c": "from-two", "demo": "from-two", "exec": ""} {
		if got := model(t, c, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	names, faults := listed(t, c)
	if want := "a:from-file b:from-one c:from-two claude codex demo:from-two exec gemini opencode"; names != want || faults != nil {
		t.Errorf("listed %s with %q, want %s", names, faults, want)
	}
}

func TestUnknownAgentsAreExplained(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "coder.yaml"), agentText("coder", "m"))
	write(t, filepath.Join(dir, "other.yaml"), "kind: [")
	c := open(t, dir, filepath.Join(dir, "none")+"/")
	broken := "\nlooked in " + dir + ", " + dir + "/none (not there)\nnot readable there:\n" + dir + "/other.yaml:1:7: bad YAML: sequence end token ']' not found"
	for name, want := range map[string]string{
		"codr": `unknown agent "codr"; did you mean "coder"?` + broken,
		"xyz":  `unknown agent "xyz"; there are claude, coder, codex, demo, exec, gemini, opencode` + broken,
	} {
		_, err := c.Get(t.Context(), "", name)
		if tallyman.CodeOf(err) != tallyman.Invalid || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", name, err, want)
		}
	}
	if _, err := c.Get(t.Context(), "team", "coder"); err == nil || !strings.HasPrefix(err.Error(), `unknown agent "team/coder"; did you mean "team/codex"?`) {
		t.Errorf("an agent of another namespace: %v", err)
	}
	if a, err := c.Get(t.Context(), "team", "exec"); err != nil || a.Namespace != "team" {
		t.Errorf("a built-in agent in another namespace: %+v, %v", a, err)
	}
}

func TestAFileWithFaultsHidesWhatComesAfter(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	write(t, filepath.Join(one, "x.yaml"), strings.Replace(agentText("a", "m"), "model", "modle", 1))
	write(t, filepath.Join(one, "demo.yaml"), "kind: [")
	write(t, filepath.Join(one, "y.yaml"), "kind: [\nmetadata:\n  name: b # ours\n")
	write(t, filepath.Join(one, "empty.yaml"), "")
	for _, name := range []string{"a", "b", "empty", "c"} {
		write(t, filepath.Join(two, name+".yaml"), agentText(name, "from-two"))
	}
	c := open(t, one, two)
	for name, want := range map[string]string{
		"a":     "error: " + one + `/x.yaml:4:25: unknown key "modle" in spec; did you mean "model"?`,
		"b":     "error: " + one + `/y.yaml:1:7: bad YAML: sequence end token ']' not found`,
		"demo":  "error: " + one + `/demo.yaml:1:7: bad YAML: sequence end token ']' not found`,
		"empty": "error: " + one + "/empty.yaml:1:1: there is no agent in this file; `tallyman init NAME` writes one",
		"c":     "from-two",
	} {
		if got := model(t, c, name); got != want {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
	}
	names, faults := listed(t, c)
	if want := "c:from-two claude codex exec gemini opencode"; names != want || len(faults) != 4 {
		t.Errorf("listed %s with %q, want %s", names, faults, want)
	}
}

func TestOneNameInTwoFilesOfAFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), agentText("a", "m"))
	write(t, filepath.Join(dir, "b.yaml"), agentText("a", "n"))
	write(t, filepath.Join(dir, "c.yaml"), agentText("c", "o"))
	c := open(t, dir)
	want := fmt.Sprintf("agent a is in two files: %s/a.yaml and %[1]s/b.yaml; rename it in one of them", dir)
	if got := model(t, c, "a"); got != "error: "+want {
		t.Errorf("a: %s\nwant %s", got, want)
	}
	if got := model(t, c, "c"); got != "o" {
		t.Errorf("c: %s", got)
	}
	names, faults := listed(t, c)
	if diff := cmp.Diff([]string{want}, faults); diff != "" || names != "c:o claude codex demo exec gemini opencode" {
		t.Errorf("listed %s with (-want +got):\n%s", names, diff)
	}
}

func TestPlacesThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o644); err != nil {
		t.Skip("no named pipes here")
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling.yaml")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "large.yaml"), strings.Repeat("#", 1<<20)+"\n"+agentText("large", "m"))
	_, faults := listed(t, open(t, dir, filepath.Join(dir, "gone")))
	want := []string{
		dir + "/large.yaml:1:1: more than 1048576 bytes; split the file",
		dir + "/pipe.yaml: this is no regular file",
		"look for agents: stat " + dir + "/gone: no such file or directory",
	}
	if diff := cmp.Diff(want, faults); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	if got := model(t, open(t, filepath.Join(dir, "gone")), "demo"); !strings.HasSuffix(got, "no such file or directory") {
		t.Errorf("with a place gone that was asked for, demo is %q", got)
	}
}

func TestChangesAreSeen(t *testing.T) {
	dir := t.TempDir()
	agents := filepath.Join(dir, "agents")
	path := filepath.Join(agents, "a.yaml")
	c := open(t, agents+"/")
	old := time.Now().Add(-time.Hour)
	see := func(step, want string) {
		t.Helper()
		if got := model(t, c, "a"); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", step, got, want)
		}
	}
	see("no folder", `error: unknown agent "a"`)
	now := time.Now()
	write(t, path, agentText("a", "one"))
	age(t, path, now)
	see("a new file", "one")
	write(t, path, agentText("a", "two"))
	age(t, path, now)
	see("the same size within a tick of the clock", "two")
	age(t, path, old)
	see("another time", "two")
	write(t, path, agentText("a", "six"))
	age(t, path, old.Add(time.Nanosecond))
	see("the same size, a little later", "six")
	write(t, path, agentText("a", "seven"))
	age(t, path, old.Add(time.Nanosecond))
	see("another size at the same time", "seven")
	write(t, filepath.Join(agents, "new"), agentText("a", "eight"))
	age(t, filepath.Join(agents, "new"), old.Add(time.Nanosecond))
	if err := os.Rename(filepath.Join(agents, "new"), path); err != nil {
		t.Fatal(err)
	}
	see("another file at the same time, of the same size", "eight")
	write(t, path, "kind: [")
	see("a file with faults", "error: "+path+":1:7: bad YAML")
	write(t, path, agentText("a", "ten"))
	see("a file mended", "ten")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	see("no file", `error: unknown agent "a"`)
}

func age(t *testing.T, path string, to time.Time) {
	t.Helper()
	if err := os.Chtimes(path, to, to); err != nil {
		t.Fatal(err)
	}
}

func TestWhatHasNotChangedIsNotReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	write(t, path, agentText("a", "one"))
	old := time.Now().Add(-time.Hour)
	age(t, path, old)
	c := open(t, path)
	if got := model(t, c, "a"); got != "one" {
		t.Fatal(got)
	}
	write(t, path, agentText("a", "two"))
	age(t, path, old) // in place and with the old time: nothing tells
	if got := model(t, c, "a"); got != "one" {
		t.Errorf("read again: %s", got)
	}
}

func TestAFaultIsLoggedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	write(t, path, "kind: [")
	var out bytes.Buffer
	c := catalog.New([]string{path}, nil, slog.New(slog.NewTextHandler(&out, nil)))
	for range 3 {
		c.List(t.Context())
	}
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, out.String())
	}
}

func TestManyMayAskAtOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, agentText("a", "m"))
	c := open(t, dir)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if a, err := c.Get(context.Background(), "", "a"); err != nil || a.Name != "a" {
					t.Errorf("%+v, %v", a, err)
				}
				c.List(context.Background())
			}
		})
	}
	wg.Wait()
}

func TestAnEndedContextEndsTheSearch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := open(t).Get(ctx, "", "demo"); err == nil {
		t.Error("Get answers")
	}
	if _, errs := open(t).List(ctx); len(errs) != 1 {
		t.Error("List answers")
	}
}

func TestResolve(t *testing.T) {
	tests := map[string]struct {
		flags []string
		env   map[string]string
		want  []string
	}{
		"nothing said":                    {nil, map[string]string{"HOME": "/h"}, []string{"/w/agents/", "/h/.config/tallyman/agents/"}},
		"flags before the environment":    {[]string{"x", "/y/../z:v/"}, map[string]string{"HOME": "/h", "TALLYMAN_AGENTS": "/e"}, []string{"/w/x", "/z", "/w/v", "/w/agents/", "/h/.config/tallyman/agents/"}},
		"the environment":                 {nil, map[string]string{"TALLYMAN_AGENTS": "e::/f", "XDG_CONFIG_HOME": "/c", "HOME": "/h"}, []string{"/w/e", "/f", "/w/agents/", "/c/tallyman/agents/"}},
		"a relative folder of the user's": {nil, map[string]string{"XDG_CONFIG_HOME": "c", "HOME": "/h"}, []string{"/w/agents/", "/h/.config/tallyman/agents/"}},
		"no home":                         {nil, nil, []string{"/w/agents/"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := catalog.Resolve("/w", tt.flags, func(k string) string { return tt.env[k] })
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	dir := b.TempDir()
	old := time.Now().Add(-time.Hour)
	for i := range 20 {
		path := filepath.Join(dir, fmt.Sprintf("a%d.yaml", i))
		if err := os.WriteFile(path, []byte(agentText(fmt.Sprintf("a%d", i), "m")), 0o644); err != nil {
			b.Fatal(err)
		}
		if err := os.Chtimes(path, old, old); err != nil {
			b.Fatal(err)
		}
	}
	c := catalog.New([]string{dir}, nil, slog.New(slog.DiscardHandler))
	for b.Loop() {
		if _, err := c.Get(context.Background(), "", "a19"); err != nil {
			b.Fatal(err)
		}
	}
}
