//go:build kube

package kube_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// bare is an agent of an image that is run as it is.
func bare(script string) string {
	return strings.Replace(shell(script), "command:", "runner: bare\ncommand:", 1)
}

// An image without a runner has a transcript and an end too: from its Pod.
func TestBareImages(t *testing.T) {
	p := newPlace(t, "TALLYMAN_GRACE=2s")
	stop := func(p *place, run tallyman.Run) { p.ok("stop", "--wait=false", run.ID) }
	deletePod := func(p *place, run tallyman.Run) {
		pod := p.pods(run)[0]
		p.must(kube.Delete(p.Context(), &pod))
	}
	for name, c := range map[string]struct {
		spec   string
		do     func(*place, tallyman.Run) // while it is at work, nil: nothing
		reason tallyman.Reason
		exit   int // -1: any
		says   string
		logs   string
	}{
		"its prompt and its words": {bare("echo $TALLYMAN_PROMPT; echo done > /dev/termination-log; echo -n unended"), nil, tallyman.Completed, 0, "", "a prompt\nunended\n"},
		"exit-3":                   {bare("echo oh; exit 3"), nil, tallyman.AgentError, 3, "exit code 3", "oh\n"},
		// containerd loses what is still in the pipe when a container ends.
		"a lot":              {bare("seq 1 20000; sleep 1"), nil, tallyman.Completed, 0, "", numbers(20000)},
		"its memory":         {bare("echo x; exec tail /dev/zero") + "podTemplate: {spec: {containers: [{name: agent, resources: {limits: {memory: 32Mi}}}]}}", nil, tallyman.OOMKilled, 137, "memory", "x\n"},
		"its deadline":       {bare("echo x; sleep 300") + "limits: {deadline: 2s}", nil, tallyman.DeadlineExceeded, -1, "deadline of 2s", "x\n"},
		"stopped":            {bare("echo x; sleep 300"), stop, tallyman.ReasonStopped, -1, "stopped by", "x\n"},
		"deleted and polite": {bare("trap \"exit 0\" TERM; echo x; while :; do sleep 1; done"), deletePod, tallyman.PodDeleted, -1, "deleted", "x\n"},
		"no program":         {"harness: exec\nrunner: bare\nimage: " + shellImage + "\ncommand: [/nope]\n", nil, tallyman.InvalidSpec, -1, "/nope", ""},
		"no image":           {strings.Replace(bare("true"), shellImage, "127.0.0.1:1/nothing:1", 1), stop, tallyman.ReasonStopped, -1, "stopped by", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := *p
			p.T = t
			agent := strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), "-and-", "-")
			p.agent(agent, c.spec)
			run := p.detach(agent, "a prompt")
			if c.do != nil {
				p.eventually("it is time", func() bool { return atWork(&p, run) || name == "no image" && pending(&p, run) })
				c.do(&p, run)
			}
			run = p.ended(run.ID)
			p.holds(run, c.reason, c.says)
			if c.exit >= 0 && (run.ExitCode == nil || *run.ExitCode != c.exit) {
				t.Errorf("exit code %v, want %d", run.ExitCode, c.exit)
			}
			if got := p.ok("logs", run.ID); got != c.logs {
				t.Errorf("the transcript has %d bytes, want %d, and ends in %q", len(got), len(c.logs), got[max(0, len(got)-100):])
			}
			if name == "no program" && run.StartedAt != nil {
				t.Errorf("it is said to have started at %v", run.StartedAt)
			}
			if name == "its prompt and its words" && run.Result != "done\n" {
				t.Errorf("the result is %q", run.Result)
			}
			p.eventually("its slot is free", func() bool { return len(p.busy(run)) == 0 })
		})
	}
}

func numbers(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		b.WriteString(strconv.Itoa(i))
		b.WriteByte('\n')
	}
	return b.String()
}

// Whoever writes the journal of a bare image, each of its lines is there once.
func TestABareImageAndAServerThatIsKilled(t *testing.T) {
	p := newPlace(t)
	p.agent("counts", bare("for n in $(seq 1 60); do echo $n; sleep 0.1; done"))
	run := p.detach("counts")
	for range 4 {
		time.Sleep(1200 * time.Millisecond)
		p.stop(syscall.SIGKILL)
		time.Sleep(300 * time.Millisecond)
		p.up()
	}
	p.holds(p.ended(run.ID), tallyman.Completed)
	if got, want := p.ok("logs", run.ID), numbers(60); got != want {
		t.Errorf("the transcript is %q", got)
	}
}

// One that ends while no server is up is read afterwards.
func TestABareImageThatEndsAlone(t *testing.T) {
	p := newPlace(t)
	p.agent("ends", bare("echo begin; sleep 3; echo end; exit 3"))
	run := p.detach("ends")
	p.running(run)
	p.stop(syscall.SIGKILL)
	p.eventually("the Pod has ended", func() bool { return p.pods(run)[0].Status.Phase == "Failed" })
	p.up()
	p.holds(p.ended(run.ID), tallyman.AgentError, "exit code 3")
	if got := p.ok("logs", run.ID); got != "begin\nend\n" {
		t.Errorf("the transcript is %q", got)
	}
}
