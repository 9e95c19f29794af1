//go:build e2e

package e2e_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/fakemodel"
)

func TestStopInMidStream(t *testing.T) {
	s := newStage(t)
	run := s.detach("tester", "%%say begun%% %%stall%%")
	s.stalled(1)
	s.ok("stop", run.ID)
	run = s.ended(run)
	if run.State != tallyman.Stopped || run.Reason != tallyman.ReasonStopped {
		t.Errorf("the run ended %s, %s (%s)", run.State, run.Reason, run.Message)
	}
	s.eventually("the model's client has gone", func() bool { st := s.model.Stats(); return st.Open == 0 && st.ClientAborted == 1 })
	if got := texts(s.events(run)); len(got) != 1 || got[0] != "begun" {
		t.Errorf("texts %q, want what was said before the stop", got)
	}
}

// The CLI starts each command in a session of its own; stopping the run must
// end it all the same.
func TestStopInMidToolLeavesNoProcess(t *testing.T) {
	s := newStage(t)
	run := s.detach("tester", `%%tool Bash {"command":"(setsid nohup sleep 300 >/dev/null 2>&1 &) ; sleep 300"}%% %%say never%%`)
	sleepers := func() (n int) {
		for _, args := range s.processes() {
			if strings.HasPrefix(args, "sleep 300") {
				n++
			}
		}
		return n
	}
	s.eventually("the tool and its daemon run", func() bool { return sleepers() == 2 })
	s.ok("stop", run.ID)
	if run = s.ended(run); run.Reason != tallyman.ReasonStopped {
		t.Errorf("the run ended %s, %s (%s)", run.State, run.Reason, run.Message)
	}
	if n := sleepers(); n != 0 {
		t.Errorf("%d processes have outlived their run", n)
	}
}

func TestCtrlCStopsTheRun(t *testing.T) {
	s := newStage(t)
	cmd := s.command("run", "tester", "%%say begun%% %%stall%%")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.stalled(1)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(out.String(), "begun") || !strings.Contains(out.String(), "Stopped") {
		t.Errorf("exit code %d after:\n%s", code, &out)
	}
	s.eventually("the model's client has gone", func() bool { return s.model.Stats().Open == 0 })
}

// up starts a server on any port.
func (s *stage) up() *exec.Cmd {
	s.t.Helper()
	cmd, _ := s.serve("127.0.0.1:0")
	return cmd
}

// serve starts a server and waits until it says that it serves, and returns
// what it said. Asking it would not do: a command that finds no server holds
// the data folder itself.
func (s *stage) serve(listen string, flags ...string) (cmd *exec.Cmd, said string) {
	s.t.Helper()
	cmd = s.command(append([]string{"up", "--listen", listen}, flags...)...)
	log, err := os.CreateTemp(s.dir, "up-*.log")
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	s.eventually("the server serves", func() bool {
		b, err := os.ReadFile(log.Name())
		said = string(b)
		return err == nil && strings.Contains(said, " serves ") && strings.Contains(said, "/token)")
	})
	return cmd, said
}

// A server that is killed and started again adopts what went on meanwhile.
func TestARunOutlivesItsServer(t *testing.T) {
	s := newStage(t)
	server := s.up()
	run := s.detach("tester", `%%say one%% %%stall%% %%tool Bash {"command":"echo two"}%% %%result%%`)
	s.stalled(1)
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait()
	s.control("release")
	s.eventually("the agent is done", func() bool { st := s.model.Stats(); return st.Calls == 2 && st.Open == 0 })
	s.up()
	run = s.ended(run)
	check(t, run, 0, tallyman.Succeeded, tallyman.Completed, "two", calls(2, 2))
	if run.Attempt != 1 {
		t.Errorf("attempt %d, want 1: nothing may run twice", run.Attempt)
	}
	events := s.events(run)
	if got := strings.Join(texts(events), "|"); got != "one|two" {
		t.Errorf("texts %q, want each once", got)
	}
	if n := len(all(events, tallyman.EventToolFinished)); n != 1 {
		t.Errorf("%d calls finished, want 1", n)
	}
}

func TestSecretsAreNotWrittenAnywhere(t *testing.T) {
	s := newStage(t)
	run, code := s.run("tester", `%%tool Bash {"command":"echo $E2E_SECRET $ANTHROPIC_API_KEY; printf %s \"$E2E_SECRET\" | base64 -w0"}%% %%result%%`)
	if code != 0 || strings.Count(run.Result, "masked]") < 3 {
		t.Errorf("exit code %d, %s (%s), result %q", code, run.Reason, run.Message, run.Result)
	}
	quoted, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	forms := []string{apiKey, secret, strings.Trim(string(quoted), `"`), url.QueryEscape(secret), base64.StdEncoding.EncodeToString([]byte(secret))}
	see := func(where, text string) {
		for _, f := range forms {
			if strings.Contains(text, f) {
				t.Errorf("%s holds %q", where, f)
			}
		}
	}
	see("the result", run.Result)
	see("events", s.ok("events", run.ID, "-o", "json"))
	see("logs", s.ok("logs", run.ID))
	err = filepath.WalkDir(filepath.Join(s.dir, "data"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.Contains(path, "/home/") {
			return err // the CLI's own home is its own
		}
		b, err := os.ReadFile(path)
		see(path, string(b))
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestBigPrompts(t *testing.T) {
	s := newStage(t)
	run, code := s.run("tester", strings.Repeat("All work and no play. ", 5<<20/22)+"%%say read%%")
	check(t, run, code, tallyman.Succeeded, tallyman.Completed, "read", calls(1, 1))
	if r := s.requests(); len(r) != 1 || r[0].Bytes < 5<<20 {
		t.Errorf("the model got %+v", r)
	}
	o := s.call(strings.Repeat("x", 11<<20), "run", "-o", "json", "tester", "-")
	if o.code != 2 || !strings.Contains(o.err, "promptFile") {
		t.Errorf("11 MB: exit code %d, %.500s; want 2 and the way out", o.code, o.err)
	}
	if list := s.ok("ls", "-o", "json"); strings.Count(list, `"id"`) != 1 {
		t.Errorf("the refused one is there: %s", list)
	}
}

func (s *stage) requests() []fakemodel.Request {
	s.t.Helper()
	resp, err := http.Get(s.url + "/control/requests")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var list struct{ Requests []fakemodel.Request }
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		s.t.Fatal(err)
	}
	return list.Requests
}

func TestTheShippedModel(t *testing.T) {
	s := newStage(t)
	script := s.write("script.yaml", "rules:\n  - match: {contains: who are you}\n    reply: {blocks: [{text: A script.}]}\n")
	cmd := s.command("fakemodel", "--listen", "127.0.0.1:0", "--script", script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	s.url = strings.TrimSpace(line[strings.Index(line, "http://"):])
	s.agent("scripted", nil)
	run, code := s.run("scripted", "who are you?")
	check(t, run, code, tallyman.Succeeded, tallyman.Completed, "A script.", calls(1, 1))
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after TERM: %v", err)
	}
	bad := s.write("bad.yaml", "rules:\n  - reply: {blok: []}\n")
	if o := s.call("", "fakemodel", "--script", bad); o.code != 2 || !strings.Contains(o.err, "bad.yaml: line 2, column 13: unknown field \"blok\"") {
		t.Errorf("a bad script: exit code %d, %s", o.code, o.err)
	}
}
