package local_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/local"
)

// machine is a backend in an environment.
func machine(host map[string]string, change ...func(*local.Options)) *local.Backend {
	o := local.Options{
		Dir: "/data/attempts", Home: "/home/me", UID: 1000,
		Lookup: func(name string) (string, bool) { v, ok := host[name]; return v, ok },
	}
	for _, c := range change {
		c(&o)
	}
	return local.New(o)
}

func spec(t *testing.T, b *local.Backend, origin string, agent tallyman.AgentSpec) tallyman.RunnerSpec {
	t.Helper()
	s, err := b.Spec(t.Context(), origin, tallyman.RunnerSpec{RunID: runID, Attempt: 1, Agent: agent})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// variable returns a variable of an environment that must be there once.
func variable(t *testing.T, env []tallyman.EnvVar, name string) (value string, masked bool) {
	t.Helper()
	n := 0
	for _, v := range env {
		if v.Name == name {
			n++
			value, masked = v.Value, v.Mask != nil && *v.Mask
		}
	}
	if n != 1 {
		t.Fatalf("%s is there %d times in %v", name, n, env)
	}
	return value, masked
}

func ptr[T any](v T) *T { return &v }

func envFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), ".env")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOnlyWhatIsDeclaredOrInheritedReachesTheHarness(t *testing.T) {
	b := machine(map[string]string{"PATH": "/bin", "LANG": "C", "SECRET_OF_SERVER": "hunter2hunter2", "https_proxy": "http://p", "HOME": "/home/me"})
	s := spec(t, b, "/agents/a.yaml", tallyman.AgentSpec{Harness: "exec", Env: []tallyman.EnvVar{{Name: "A", Value: "1"}, {Name: "LANG", Value: "de"}, {Name: "A", Value: "2"}}})
	var got []string
	for _, v := range s.Env {
		got = append(got, v.Name+"="+v.Value)
	}
	slices.Sort(got)
	dir := "/data/attempts/" + runID + "-1"
	want := []string{"A=2", "HOME=" + dir + "/home", "LANG=de", "PATH=/bin", "TMPDIR=" + dir + "/tmp", "https_proxy=http://p"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	bare := spec(t, machine(nil), "/agents/a.yaml", tallyman.AgentSpec{Harness: "exec"})
	if path, _ := variable(t, bare.Env, "PATH"); !strings.Contains(path, "/usr/bin") {
		t.Errorf("without a PATH of the server it is %q", path)
	}
}

func TestWhatComesFromElsewhereIsMasked(t *testing.T) {
	long, short := "s3cret-value", "hunter2"
	host := map[string]string{"LONG": long, "SHORT": short}
	file := envFile(t, "LONG="+long+"\nSHORT="+short+"\n")
	for name, c := range map[string]struct {
		src  tallyman.EnvSource
		want map[string]bool
	}{
		"a short value would black out too much": {tallyman.EnvSource{Host: []string{"LONG", "SHORT"}}, map[string]bool{"LONG": true, "SHORT": false}},
		"unless it is asked for":                 {tallyman.EnvSource{Host: []string{"LONG", "SHORT"}, Mask: ptr(true)}, map[string]bool{"LONG": true, "SHORT": true}},
		"or refused":                             {tallyman.EnvSource{Host: []string{"LONG", "SHORT"}, Mask: ptr(false)}, map[string]bool{"LONG": false, "SHORT": false}},
		"in a file likewise":                     {tallyman.EnvSource{File: file}, map[string]bool{"LONG": true, "SHORT": false}},
		"in a file, asked for":                   {tallyman.EnvSource{File: file, Mask: ptr(true)}, map[string]bool{"LONG": true, "SHORT": true}},
		"in a file, refused":                     {tallyman.EnvSource{File: file, Mask: ptr(false)}, map[string]bool{"LONG": false, "SHORT": false}},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(t, machine(host), "/agents/a.yaml", tallyman.AgentSpec{Harness: "exec", EnvFrom: []tallyman.EnvSource{c.src}})
			for v, want := range c.want {
				value, masked := variable(t, s.Env, v)
				if masked != want || value != host[v] {
					t.Errorf("%s is %q, masked %v", v, value, masked)
				}
			}
		})
	}
	s := spec(t, machine(nil), "", tallyman.AgentSpec{Harness: "exec", Env: []tallyman.EnvVar{{Name: "PLAIN", Value: long}, {Name: "HIDDEN", Value: short, Mask: ptr(true)}}})
	if _, masked := variable(t, s.Env, "PLAIN"); masked {
		t.Error("a plain variable is masked")
	}
	if _, masked := variable(t, s.Env, "HIDDEN"); !masked {
		t.Error("a variable that is to be masked is not")
	}
}

func TestTheLinesOfAnEnvironmentFile(t *testing.T) {
	file := envFile(t, "# comment\n\n  PLAIN=a b = c  \r\nexport EXPORTED=x\nQUOTED=\"a # b\"\nSINGLE='q'\nHALF=\"x\nEMPTY=\n")
	s := spec(t, machine(nil), "", tallyman.AgentSpec{Harness: "exec", EnvFrom: []tallyman.EnvSource{{File: file}}})
	for name, want := range map[string]string{"PLAIN": "a b = c", "EXPORTED": "x", "QUOTED": "a # b", "SINGLE": "q", "HALF": `"x`, "EMPTY": ""} {
		if got, _ := variable(t, s.Env, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, bad := range []string{"OK=1\nhunter2hunter2\n", "OK=1\nhunter2 hunter2=x\n", "OK=1\n=hunter2\n"} {
		file := envFile(t, bad)
		_, err := machine(nil).Spec(t.Context(), "", tallyman.RunnerSpec{RunID: runID, Attempt: 1, Agent: tallyman.AgentSpec{EnvFrom: []tallyman.EnvSource{{File: file}}}})
		if err == nil || !strings.Contains(err.Error(), file+":2: ") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error must name the place and not the line: %v", bad, err)
		}
	}
}

func TestWhereABuiltInAgentLogsIn(t *testing.T) {
	private := "/data/attempts/" + runID + "-1/home"
	key := []tallyman.EnvSource{{Host: []string{"ANTHROPIC_API_KEY"}, Optional: true}}
	for name, c := range map[string]struct {
		origin, harness, key string
		home, note           string
	}{
		"with a key":              {tallyman.BuiltIn, "claude", "sk-ant-12345", private, "claude is logged in by ANTHROPIC_API_KEY"},
		"without one":             {tallyman.BuiltIn, "claude", "", "/home/me", "no key variable is set: claude uses the login in /home/me"},
		"one that needs no login": {tallyman.BuiltIn, "exec", "", "/home/me", ""},
		"an agent from a file":    {"/agents/a.yaml", "claude", "", private, ""},
	} {
		t.Run(name, func(t *testing.T) {
			host := map[string]string{}
			if c.key != "" {
				host["ANTHROPIC_API_KEY"] = c.key
			}
			s := spec(t, machine(host), c.origin, tallyman.AgentSpec{Harness: c.harness, EnvFrom: key})
			if home, _ := variable(t, s.Env, "HOME"); s.Home != c.home || home != c.home {
				t.Errorf("HOME is %s and %s, want %s", s.Home, home, c.home)
			}
			if got := strings.Join(s.Notes, "\n"); got != c.note {
				t.Errorf("the notes are %q, want %q", got, c.note)
			}
			if strings.Contains(strings.Join(s.Notes, "\n"), "sk-ant") {
				t.Error("a note tells the key")
			}
		})
	}
}

func TestWhereAnAttemptWorks(t *testing.T) {
	base := "/data/attempts/" + runID
	for name, c := range map[string]struct {
		work tallyman.Workspace
		want string
	}{
		"a fresh folder":                 {tallyman.Workspace{}, base + "-1/work"},
		"said in words":                  {tallyman.Workspace{Path: "fresh"}, base + "-1/work"},
		"a folder of the machine":        {tallyman.Workspace{Path: "/src"}, "/src"},
		"a clone":                        {tallyman.Workspace{Path: "git:https://x/y#z"}, base + "-1/work"},
		"one that all attempts share":    {tallyman.Workspace{Keep: true}, base + "-work"},
		"keep makes no difference to it": {tallyman.Workspace{Path: "/src", Keep: true}, "/src"},
	} {
		if s := spec(t, machine(nil), "", tallyman.AgentSpec{Harness: "exec", Workspace: c.work}); s.WorkDir != c.want {
			t.Errorf("%s: %s, want %s", name, s.WorkDir, c.want)
		}
	}
}

func TestPreflightSaysWhatToMend(t *testing.T) {
	bin := t.TempDir()
	for name, mode := range map[string]os.FileMode{"claude": 0o755, "tool": 0o755, "data": 0o644} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	host := map[string]string{"PATH": bin, "HERE": "x"}
	root := func(o *local.Options) { o.UID = 0 }
	for name, c := range map[string]struct {
		spec   tallyman.AgentSpec
		change []func(*local.Options)
		says   []string // none: it may run
	}{
		"all is there":                          {spec: tallyman.AgentSpec{Harness: "claude", EnvFrom: []tallyman.EnvSource{{Host: []string{"HERE"}}}}},
		"a variable is missing":                 {spec: tallyman.AgentSpec{Harness: "script", EnvFrom: []tallyman.EnvSource{{Host: []string{"HERE", "AWAY", "GONE"}}}}, says: []string{"AWAY is not set", "GONE is not set", "server's process"}},
		"it may be missing":                     {spec: tallyman.AgentSpec{Harness: "script", EnvFrom: []tallyman.EnvSource{{Host: []string{"AWAY"}, Optional: true}}}},
		"a file is missing":                     {spec: tallyman.AgentSpec{Harness: "script", EnvFrom: []tallyman.EnvSource{{File: "/nowhere/.env"}}}, says: []string{"envFrom.file", "/nowhere/.env"}},
		"the file may be missing":               {spec: tallyman.AgentSpec{Harness: "script", EnvFrom: []tallyman.EnvSource{{File: "/nowhere/.env", Optional: true}}}},
		"a Secret of Kubernetes":                {spec: tallyman.AgentSpec{Harness: "script", EnvFrom: []tallyman.EnvSource{{SecretRef: &tallyman.SecretRef{Name: "s"}}}}, says: []string{"Kubernetes Secret", "use host or file"}},
		"a program on the PATH":                 {spec: tallyman.AgentSpec{Harness: "exec", Command: []string{"tool"}}},
		"a program that is not":                 {spec: tallyman.AgentSpec{Harness: "exec", Command: []string{"toool"}}, says: []string{`"toool"`, "PATH (" + bin + ")"}},
		"a file that is no program":             {spec: tallyman.AgentSpec{Harness: "exec", Command: []string{"data"}}, says: []string{`"data"`}},
		"the PATH that the spec sets":           {spec: tallyman.AgentSpec{Harness: "exec", Command: []string{"tool"}, Env: []tallyman.EnvVar{{Name: "PATH", Value: "/nowhere"}}}, says: []string{"PATH (/nowhere)"}},
		"a program by its path":                 {spec: tallyman.AgentSpec{Harness: "exec", Command: []string{bin + "/tool"}}},
		"a folder for a program":                {spec: tallyman.AgentSpec{Harness: "exec", Command: []string{bin}}, says: []string{bin + " is a folder"}},
		"a file that may not be executed":       {spec: tallyman.AgentSpec{Harness: "exec", Command: []string{bin + "/data"}}, says: []string{bin + "/data", "permission denied"}},
		"a folder of the PATH in the workspace": {spec: tallyman.AgentSpec{Harness: "exec", Command: []string{"tool"}, Workspace: tallyman.Workspace{Path: bin}, Env: []tallyman.EnvVar{{Name: "PATH", Value: ":."}}}, says: []string{`"tool"`, "PATH (:.)"}},
		"a path that leads nowhere":             {spec: tallyman.AgentSpec{Harness: "exec", Command: []string{"/nowhere/tool"}}, says: []string{"/nowhere/tool"}},
		"a path in the workspace":               {spec: tallyman.AgentSpec{Harness: "exec", Command: []string{"./tool"}, Workspace: tallyman.Workspace{Path: bin}}},
		"a path that it does not have":          {spec: tallyman.AgentSpec{Harness: "exec", Command: []string{"./other"}, Workspace: tallyman.Workspace{Path: bin}}, says: []string{bin + "/other"}},
		"a path that a clone may bring":         {spec: tallyman.AgentSpec{Harness: "exec", Command: []string{"./other"}, Workspace: tallyman.Workspace{Path: "git:https://x"}}},
		"a workspace that is not there":         {spec: tallyman.AgentSpec{Harness: "script", Workspace: tallyman.Workspace{Path: "/nowhere"}}, says: []string{"workspace: ", "/nowhere", "no such file"}},
		"a file for a workspace":                {spec: tallyman.AgentSpec{Harness: "script", Workspace: tallyman.Workspace{Path: bin + "/tool"}}, says: []string{"workspace: " + bin + "/tool is a file"}},
		"a fresh workspace":                     {spec: tallyman.AgentSpec{Harness: "script", Workspace: tallyman.Workspace{Path: "fresh"}}},
		"claude as root":                        {spec: tallyman.AgentSpec{Harness: "claude"}, change: []func(*local.Options){root}, says: []string{"root", "IS_SANDBOX=1", "permissionMode"}},
		"claude as root in a sandbox":           {spec: tallyman.AgentSpec{Harness: "claude", Env: []tallyman.EnvVar{{Name: "IS_SANDBOX", Value: "1"}}}, change: []func(*local.Options){root}},
		"claude as root with another mode":      {spec: tallyman.AgentSpec{Harness: "claude", Settings: map[string]json.RawMessage{"permissionMode": json.RawMessage(`"plan"`)}}, change: []func(*local.Options){root}},
		"everything that is wrong, at once":     {spec: tallyman.AgentSpec{Harness: "exec", Command: []string{"toool"}, EnvFrom: []tallyman.EnvSource{{Host: []string{"AWAY"}}}}, says: []string{"AWAY", "toool"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := machine(host, c.change...).Preflight(t.Context(), c.spec)
			if len(c.says) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var e *tallyman.Error
			if !errors.As(err, &e) || e.Code != tallyman.Invalid || e.Reason != tallyman.ConfigMissing {
				t.Fatalf("got %v", err)
			}
			for _, words := range c.says {
				if !strings.Contains(e.Message, words) {
					t.Errorf("%q is not in %q", words, e.Message)
				}
			}
		})
	}
}
