//go:build kube

package kube_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
)

func shell(script string) string {
	return "harness: exec\nimage: " + shellImage + "\nretry: {max: 0}\ncommand: [sh, -c, '" + script + "']\n"
}

// running waits until a run's agent is at work.
func (p *place) running(run tallyman.Run) {
	p.Helper()
	p.eventually("the agent is at work", func() bool { return p.show(run.ID).State == tallyman.Running })
}

// holds checks how a run ended, and that it was worked once: one that was
// stopped in the queue, never.
func (p *place) holds(run tallyman.Run, reason tallyman.Reason, says ...string) {
	p.Helper()
	if run.Reason != reason {
		p.Errorf("run %s ended with %s (%s), want %s", run.Name, run.Reason, run.Message, reason)
	}
	for _, words := range says {
		if !strings.Contains(run.Message, words) {
			p.Errorf("%q is not in %q", words, run.Message)
		}
	}
	if queued := run.Attempt == 0 && reason == tallyman.ReasonStopped; run.Attempt != 1 && !queued {
		p.Errorf("run %s had %d attempts, want 1", run.Name, run.Attempt)
	}
}

// A server that is killed with -9 at work, and started again, goes on where it
// was: the agent is the same, and its transcript has no gap.
func TestAServerThatIsKilled(t *testing.T) {
	p := newPlace(t)
	p.agent("counts", shell("for n in 1 2 3 4 5 6 7 8; do echo line $n; sleep 1; done"))
	run := p.detach("counts")
	data := filepath.Join(p.dir, "data")
	file := filepath.Join(t.TempDir(), "followed")
	out, err := os.Create(file)
	p.must(err)
	defer out.Close()
	followed := func() string { b, err := os.ReadFile(file); p.must(err); return string(b) }
	follower := exec.Command(filepath.Join(bin, "tallyman"), "--data", data, "logs", "-f", run.ID)
	follower.Stdout, follower.Stderr = out, out
	p.must(follower.Start())
	p.eventually("somebody follows it", func() bool { return strings.HasPrefix(followed(), "line 1\n") })
	for range 3 {
		p.stop(syscall.SIGKILL)
		time.Sleep(500 * time.Millisecond)
		// Whoever asks meanwhile on the data folder, with another backend by
		// default, sees what was recorded and touches nothing.
		for _, program := range []string{"tallyman", "tallyman-server"} {
			out, err := exec.Command(filepath.Join(bin, program), "--data", data, "ls").CombinedOutput()
			if err != nil || !strings.Contains(string(out), "--backend kube") || !strings.Contains(string(out), string(tallyman.Running)) {
				t.Errorf("%s ls: %v\n%s", program, err, out)
			}
		}
		p.up()
		time.Sleep(1500 * time.Millisecond)
	}
	p.holds(p.ended(run.ID), tallyman.Completed)
	const want = "line 1\nline 2\nline 3\nline 4\nline 5\nline 6\nline 7\nline 8\n"
	if got := p.ok("logs", run.ID); got != want {
		t.Errorf("the transcript is %q", got)
	}
	if err := follower.Wait(); err != nil || followed() != want {
		t.Errorf("who followed it all the time saw %q, %v", followed(), err)
	}
	if pods := p.pods(run); len(pods) != 1 {
		t.Errorf("%d Pods were made", len(pods))
	}
}

// What a run did while no server was up is there afterwards: from its runner,
// if that still has something to deliver, else from its last word.
func TestARunThatEndsWhileNoServerIsUp(t *testing.T) {
	for name, c := range map[string]struct {
		drain string
		logs  string
	}{
		"the runner waits for a server":   {"10m", "begin\nend\n"},
		"the runner has left a last word": {"1s", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, "TALLYMAN_DRAIN_BUDGET="+c.drain)
			p.agent("ends", shell("echo begin; sleep 3; echo end; exit 3"))
			run := p.detach("ends")
			p.running(run)
			p.stop(syscall.SIGKILL)
			if c.drain == "1s" {
				p.eventually("the Pod has ended", func() bool {
					pods := p.pods(run)
					return len(pods) == 1 && pods[0].Status.Phase == corev1.PodFailed
				})
			} else {
				time.Sleep(5 * time.Second)
			}
			p.up()
			run = p.ended(run.ID)
			p.holds(run, tallyman.AgentError, "exit code 3")
			if run.ExitCode == nil || *run.ExitCode != 3 {
				t.Errorf("exit code %v", run.ExitCode)
			}
			if got, _ := p.try("logs", run.ID); c.logs != "" && got != c.logs {
				t.Errorf("the transcript is %q", got)
			}
		})
	}
}

// Ends that somebody brings about from outside.
func TestEndsFromOutside(t *testing.T) {
	p := newPlace(t, "TALLYMAN_GRACE=2s")
	work := shell("echo at work; sleep 300")
	never := work + "podTemplate: {spec: {nodeSelector: {no: such}}}"
	stop := func(p *place, run tallyman.Run) { p.ok("stop", "--wait=false", run.ID) }
	for name, c := range map[string]struct {
		spec   string
		when   func(*place, tallyman.Run) bool
		do     func(*place, tallyman.Run)
		reason tallyman.Reason
		says   string
	}{
		"pod-deleted": {work, atWork, func(p *place, run tallyman.Run) {
			pod := p.pods(run)[0]
			p.must(kube.Delete(p.Context(), &pod))
		}, tallyman.PodDeleted, "deleted"},
		"job-deleted": {work, atWork, func(p *place, run tallyman.Run) {
			p.must(kube.Delete(p.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: run.Name, Namespace: p.namespace}}, client.PropagationPolicy(metav1.DeletePropagationBackground)))
		}, tallyman.PodDeleted, "deleted"},
		"pending-job-deleted": {never, pending, func(p *place, run tallyman.Run) {
			p.must(kube.Delete(p.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: run.Name, Namespace: p.namespace}}, client.PropagationPolicy(metav1.DeletePropagationBackground)))
		}, tallyman.PodDeleted, "deleted"},
		"runner-killed":   {work, atWork, func(p *place, run tallyman.Run) { p.killRunner(run) }, tallyman.RunnerLost, "exit code 137"},
		"stopped-at-work": {work, atWork, stop, tallyman.ReasonStopped, "stopped by"},
		"stopped-pending": {never, pending, stop, tallyman.ReasonStopped, "stopped by"},
		"stopped-pulling": {strings.Replace(work, shellImage, "127.0.0.1:1/nothing:1", 1), pending, stop, tallyman.ReasonStopped, "stopped by"},
		"stopped-at-once": {work, func(*place, tallyman.Run) bool { return true }, stop, tallyman.ReasonStopped, "stopped by"},
		"evicted": {work, atWork, func(p *place, run tallyman.Run) {
			pod := p.pods(run)[0]
			p.must(kube.SubResource("eviction").Create(p.Context(), &pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}}))
		}, tallyman.Evicted, "viction"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := *p
			p.T = t
			p.agent(name, c.spec)
			run := p.detach(name)
			p.eventually("it is time", func() bool { return c.when(&p, run) })
			c.do(&p, run)
			p.holds(p.ended(run.ID), c.reason, c.says)
			p.eventually("nothing of it runs", func() bool { return len(p.busy(run)) == 0 })
		})
	}
}

func atWork(p *place, run tallyman.Run) bool { return p.show(run.ID).State == tallyman.Running }

// pending waits until the cluster has the run's Pod, and says why it waits.
func pending(p *place, run tallyman.Run) bool {
	w := p.show(run.ID).Waiting
	return w != nil && w.Reason == tallyman.PodPending
}

func (p *place) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// killRunner kills the first process of the agent's container on the node, and
// says when.
func (p *place) killRunner(run tallyman.Run) (at time.Time) {
	p.Helper()
	var id string
	p.eventually("the cluster says which container is the agent's", func() bool {
		for _, pod := range p.pods(run) {
			for _, c := range pod.Status.ContainerStatuses {
				if c.Name == "agent" {
					id = strings.TrimPrefix(c.ContainerID, "containerd://")
				}
			}
		}
		return id != ""
	})
	ctr := exec.Command("ctr", "-a", filepath.Join(*clusterDir, "ctr/containerd.sock"), "-n", "k8s.io", "tasks", "kill", "-s", "SIGKILL", id)
	at = time.Now()
	if out, err := ctr.CombinedOutput(); err != nil {
		p.Fatalf("kill container %s: %v\n%s", id, err, out)
	}
	return at
}

// The agent that comes with tallyman runs in a cluster without an image of its
// own, and not in the folder of who has asked: the first thing that anybody
// tries, over the network and beside the server.
func TestTheDemo(t *testing.T) {
	p := newPlace(t)
	var beside tallyman.Run
	p.must(json.Unmarshal([]byte(p.inFolder("run", "-d", "-o", "json", "demo", "is anybody there?")), &beside))
	for _, run := range []tallyman.Run{beside, p.detach("demo", "is anybody there?")} {
		p.holds(p.ended(run.ID), tallyman.Completed)
		if text := p.ok("logs", run.ID); !strings.Contains(text, "is anybody there?") {
			t.Errorf("the transcript: %s", text)
		}
	}
}
