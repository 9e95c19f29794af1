package runner

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

func TestASmallPromptComesWithTheSpec(t *testing.T) {
	text := "do it\nwell ü"
	for name, file := range map[string]bool{"on standard input": false, "in a file": true} {
		t.Run(name, func(t *testing.T) {
			a := work(t, agentSpec(t, `cat; echo; cat PROMPT.md 2>/dev/null; echo`, func(s *tallyman.RunnerSpec) {
				s.Prompt, s.PromptSize, s.Agent.PromptFile = text, int64(len(text)), file
			}))
			a.ended(tallyman.Completed)
			said := strings.Join(a.texts(tallyman.EventText), "\n")
			want := text + "\n"
			if file {
				want = fmt.Sprintf(promptPointer, filepath.Join(a.spec.WorkDir, promptFileName)) + "\n" + text
			}
			if said != want {
				t.Errorf("it read %q, want %q", said, want)
			}
		})
	}
}

func TestWhatCannotBeSetUpNeverStarts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*tallyman.RunnerSpec)
		reason tallyman.Reason
		says   string
	}{
		"a program that is not there": {func(s *tallyman.RunnerSpec) { s.Agent.Command = []string{"no-such-program"} }, tallyman.SetupFailed, "no-such-program"},
		"a program without a PATH":    {func(s *tallyman.RunnerSpec) { s.Env = nil }, tallyman.SetupFailed, "sh was not found"},
		"a folder":                    {func(s *tallyman.RunnerSpec) { s.Agent.Command = []string{"/etc"} }, tallyman.InvalidSpec, "/etc is a folder"},
		"a file that is no program":   {func(s *tallyman.RunnerSpec) { s.Agent.Command = []string{file} }, tallyman.InvalidSpec, "chmod +x"},
		"a workspace that is away":    {func(s *tallyman.RunnerSpec) { s.WorkDir, s.Agent.Workspace.Path = "/nowhere/x", "/nowhere/x" }, tallyman.ConfigMissing, "/nowhere/x"},
		"a workspace that is a file":  {func(s *tallyman.RunnerSpec) { s.WorkDir, s.Agent.Workspace.Path = file, file }, tallyman.InvalidSpec, "name a folder"},
		"a ref that is an option":     {func(s *tallyman.RunnerSpec) { s.Agent.Workspace.Path = "git:/nowhere/repo#--help" }, tallyman.InvalidSpec, "dash"},
		"a clone of nothing":          {func(s *tallyman.RunnerSpec) { s.Agent.Workspace.Path = "git:/nowhere/repo" }, tallyman.SetupFailed, "git"},
		"a harness that is unknown":   {func(s *tallyman.RunnerSpec) { s.Agent.Harness = "exce" }, tallyman.InvalidSpec, "exec"},
		"a prompt that is shorter":    {func(s *tallyman.RunnerSpec) { s.PromptSize = 5 }, tallyman.SetupFailed, "5 bytes, 0 arrived"},
	} {
		t.Run(name, func(t *testing.T) {
			a := work(t, agentSpec(t, "echo started", c.change))
			out := a.ended(c.reason)
			if out.Started || !strings.Contains(out.Message, c.says) || len(a.texts(tallyman.EventText)) > 0 {
				t.Errorf("the outcome is %+v", out)
			}
		})
	}
}

func TestAPromptIsFetchedAgainFromAServerThatComesAndGoes(t *testing.T) {
	prompt := strings.Repeat("do it well\n", 10_000)
	a := &attempt{channel: newChannel(t), dir: t.TempDir()}
	a.spec, a.prompt = agentSpec(t, `cmp - "$WANT" && echo same`, func(s *tallyman.RunnerSpec) { s.PromptSize = int64(len(prompt)) }), prompt
	want := filepath.Join(t.TempDir(), "want")
	if err := os.WriteFile(want, []byte(prompt), 0o600); err != nil {
		t.Fatal(err)
	}
	a.spec.Env = append(a.spec.Env, tallyman.EnvVar{Name: "WANT", Value: want})
	var asked atomic.Int32
	a.before = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/files/prompt") {
			return false
		}
		switch asked.Add(1) {
		case 1:
			panic(http.ErrAbortHandler) // it is killed before it answers
		case 2:
			answer(w, http.StatusServiceUnavailable, map[string]string{"detail": "not now"})
		case 3:
			fmt.Fprint(w, prompt[:50_000])
			panic(http.ErrAbortHandler) // and in the middle of its answer
		default:
			return false
		}
		return true
	}
	a.work(t.Context()).ended(tallyman.Completed)
	if said := strings.Join(a.texts(tallyman.EventText), "\n"); said != "same" || asked.Load() != 4 {
		t.Errorf("asked %d times, the agent says %q", asked.Load(), said)
	}
}

func TestThePromptsFileTakesNoOthersPlace(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	prompt := "do it"
	for name, c := range map[string]struct {
		there func(dir string) error
		want  string
	}{
		"nothing is there":   {func(string) error { return nil }, "PROMPT.md"},
		"somebody's file":    {func(dir string) error { return os.WriteFile(dir+"/PROMPT.md", []byte("mine"), 0o600) }, "PROMPT-2.md"},
		"a link to a file":   {func(dir string) error { return os.Symlink(outside, dir+"/PROMPT.md") }, "PROMPT-2.md"},
		"both names are old": {func(dir string) error { return os.WriteFile(dir+"/PROMPT.md", []byte("mine"), 0o600) }, "PROMPT-2-2.md"},
	} {
		for _, fetched := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, fetched %v", name, fetched), func(t *testing.T) {
				if err := os.WriteFile(outside, []byte("mine"), 0o600); err != nil {
					t.Fatal(err)
				}
				a := &attempt{channel: newChannel(t), dir: t.TempDir()}
				a.spec = agentSpec(t, `cat >/dev/null`, func(s *tallyman.RunnerSpec) {
					s.Attempt, s.PromptSize, s.Agent.PromptFile = 2, int64(len(prompt)), true
				})
				if a.prompt = prompt; !fetched {
					a.spec.Prompt = prompt
				}
				dir := a.spec.WorkDir
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := c.there(dir); err != nil {
					t.Fatal(err)
				}
				if c.want == "PROMPT-2-2.md" {
					if err := os.WriteFile(dir+"/PROMPT-2.md", []byte("mine"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				a.work(t.Context()).ended(tallyman.Completed)
				if b, err := os.ReadFile(filepath.Join(dir, c.want)); err != nil || string(b) != prompt {
					t.Errorf("%s holds %q, %v", c.want, b, err)
				}
				for _, path := range []string{outside, filepath.Join(dir, "PROMPT.md")} {
					if b, err := os.ReadFile(path); c.want != "PROMPT.md" && (err != nil || string(b) != "mine") {
						t.Errorf("%s holds %q, %v", path, b, err)
					}
				}
			})
		}
	}
}

func TestACredentialInAURLIsRefusedAndNotTold(t *testing.T) {
	for url, bad := range map[string]bool{
		"https://user:s3cr3t@example.invalid/r.git": true, "https://s3cr3t@example.invalid/r": true, "ssh://git:s3cr3t@example.invalid/r": true,
		"https://us@er:s3cr%zz@example.invalid": true, "https::https://s3cr3t@example.invalid/r": true,
		"https://example.invalid/a@b": false, "ssh://git@example.invalid/r": false, "git@example.invalid:r": false, "/some/where": false,
	} {
		err := checkSource(url, "main")
		if (err != nil) != bad || bad && (strings.Contains(err.Error(), "s3cr") || !strings.Contains(err.Error(), "example.invalid")) {
			t.Errorf("%s: %v", url, err)
		}
	}
	a := work(t, agentSpec(t, "true", func(s *tallyman.RunnerSpec) { s.Agent.Workspace.Path = "git:https://user:s3cr3t@example.invalid/r" }))
	out := a.ended(tallyman.InvalidSpec)
	if all := strings.Join(a.lines, "") + out.Message; strings.Contains(all, "s3cr3t") {
		t.Errorf("it is told: %s", all)
	}
}

// repository is one with a commit; tag is a ref of it.
func repository(t *testing.T) (dir, tag string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not here")
	}
	dir = t.TempDir()
	for _, args := range [][]string{{"init", "-q"}, {"-c", "user.name=x", "-c", "user.email=x@example.invalid", "commit", "-q", "--allow-empty", "-m", "x"}, {"tag", "v1"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	return dir, "v1"
}

func TestAHalfCloneIsNeverKept(t *testing.T) {
	repo, tag := repository(t)
	spec := agentSpec(t, "git describe --tags")
	try := func(ref string, reason tallyman.Reason) *attempt {
		t.Helper()
		spec.Agent.Workspace.Path = "git:" + repo + "#" + ref
		a := work(t, spec)
		a.ended(reason)
		if _, err := os.Stat(spec.WorkDir + ".clone"); err == nil {
			t.Error("the half clone is still there")
		}
		return a
	}
	try("no-such-ref", tallyman.SetupFailed)
	if _, err := os.Stat(spec.WorkDir); err == nil {
		t.Fatal("a clone without its ref is in the workspace's place")
	}
	// A runner that was killed in the midst of it leaves this.
	if err := os.MkdirAll(spec.WorkDir+".clone/.git", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(spec.WorkDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := try(tag, tallyman.Completed).texts(tallyman.EventText); len(got) != 1 || got[0] != tag {
		t.Errorf("the workspace is at %q", got)
	}
	if err := os.WriteFile(spec.WorkDir+"/work", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	try(tag, tallyman.Completed)
	if _, err := os.Stat(spec.WorkDir + "/work"); err != nil {
		t.Errorf("a whole clone is kept: %v", err)
	}
}

// A clone that hangs ends with all its processes when it is told to.
func TestACloneThatHangsCanBeEnded(t *testing.T) {
	repository(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	calls := make(chan net.Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			calls <- c
		}
	}()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	a := &attempt{channel: newChannel(t), dir: t.TempDir()}
	a.spec = agentSpec(t, "true", func(s *tallyman.RunnerSpec) {
		s.Agent.Workspace.Path = "git:git://" + l.Addr().String() + "/r"
	})
	var asked time.Time
	go func() {
		c := <-calls
		defer c.Close()
		asked = time.Now()
		stop()
		<-t.Context().Done()
	}()
	out := a.work(ctx).ended("")
	if took := time.Since(asked); !out.Interrupted || took > 5*time.Second {
		t.Errorf("after %s: %+v", took, out)
	}
	if _, err := os.Stat(a.spec.WorkDir); err == nil {
		t.Error("half a clone is in the workspace's place")
	}
}
