package runner

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

const (
	claudeInit   = `{"type":"system","subtype":"init","model":"m","mcp_servers":[]}`
	claudeResult = `{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"fine","usage":{"input_tokens":10,"output_tokens":5}}`
)

// inMemory works an attempt of harness claude, whose program is a shell
// script, while the kernel's counter of kills moves by n.
func inMemory(t *testing.T, n int, script string) *attempt {
	t.Helper()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "claude"), []byte("#!/bin/sh\ncat >/dev/null\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	a := &attempt{channel: newChannel(t), dir: t.TempDir()}
	a.spec = agentSpec(t, "", func(s *tallyman.RunnerSpec) {
		s.Agent = tallyman.AgentSpec{Harness: "claude"}
		s.Prompt, s.PromptSize = "hello", 5
		s.Env = []tallyman.EnvVar{{Name: "PATH", Value: bin + ":" + os.Getenv("PATH")}, {Name: "IS_SANDBOX", Value: "1"}}
	})
	kills := 3 // of others, before
	r := &run{boot: a.boot(a.dir), log: slog.New(slog.DiscardHandler), began: time.Now(), oomKills: func() (int, bool) {
		defer func() { kills += n }()
		return kills, true
	}}
	a.err = r.attempt(t.Context(), "test")
	return a
}

func TestMemoryThatRanOutIsTold(t *testing.T) {
	const good = "echo '" + claudeInit + "'; echo '" + claudeResult + "'; "
	for name, c := range map[string]struct {
		moved  int
		script string
		reason tallyman.Reason
		kills  int
		notice bool
	}{
		"after the result: a notice": {2, good + "kill -KILL $$", tallyman.Completed, 2, true},
		"before it: the reason":      {2, "echo '" + claudeInit + "'; kill -KILL $$", tallyman.OOMKilled, 2, false},
		"of somebody else":           {2, good, tallyman.Completed, 0, false},
		"a kill that was no such":    {0, good + "kill -KILL $$", tallyman.Completed, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := inMemory(t, c.moved, c.script)
			if out := a.ended(c.reason); out.OOMKills != c.kills {
				t.Errorf("the outcome has %d kills: %+v", out.OOMKills, out)
			}
			said := strings.Join(a.texts(tallyman.EventNotice), "\n")
			if strings.Contains(said, "killed the agent for memory after its result (kills in its control group: 2") != c.notice {
				t.Errorf("the notices are %q", said)
			}
		})
	}
}
