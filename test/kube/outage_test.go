//go:build kube

package kube_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
)

// kill kills one of the cluster's own processes. It returns what starts the
// same again, which happens at the test's end at the latest.
func (p *place) kill(name string) (back func()) {
	p.Helper()
	file := filepath.Join(*clusterDir, name+".pid")
	text, err := os.ReadFile(file)
	p.must(err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	p.must(err)
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	line, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	p.must(err)
	argv := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	dir, err := os.Readlink(filepath.Join(proc, "cwd"))
	p.must(err)
	p.must(syscall.Kill(pid, syscall.SIGKILL))
	p.eventually(name+" is gone", func() bool {
		state, err := os.ReadFile(filepath.Join(proc, "stat"))
		return errors.Is(err, os.ErrNotExist) || strings.Contains(string(state), ") Z ")
	})
	is := false
	back = func() {
		p.Helper()
		if is {
			return
		}
		is = true
		log, err := os.OpenFile(filepath.Join(*clusterDir, "log", name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		p.must(err)
		defer log.Close()
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it outlives this test
		p.must(cmd.Start())
		p.must(os.WriteFile(file, []byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0o644))
		go func() { _ = cmd.Wait() }()
	}
	p.Cleanup(back)
	return back
}

// TestOutages stops parts of the cluster. Nothing else may run meanwhile.
func TestOutages(t *testing.T) {
	t.Run("the API server", outageOfTheAPIServer)
	t.Run("the kubelet", outageOfTheKubelet)
}

const outage = 30 * time.Second

func outageOfTheAPIServer(t *testing.T) {
	p := newPlace(t)
	p.agent("at-work", shell("for n in $(seq 1 50); do echo $n; sleep 1; done"))
	p.agent("ends", shell("echo begin; sleep 12; echo end; exit 3"))
	p.agent("sets-up", shell("echo hello")+"podTemplate: {spec: {initContainers: [{name: first, image: "+shellImage+", command: [sh, -c, sleep 10]}]}}\n")
	p.agent("later", shell("echo hello"))
	p.agent("later-pod", shell("echo hello")+podWorkload)
	work, ends := p.detach("at-work"), p.detach("ends")
	p.running(work)
	p.running(ends)
	impatient := newPlace(t, "TALLYMAN_START_TIMEOUT=20s")
	impatient.agent("nowhere", shell("true")+noSuchNode)
	nowhere := impatient.detach("nowhere")
	impatient.waits(nowhere, tallyman.PodPending, "node")
	sets := p.detach("sets-up")
	p.eventually("it sets up", func() bool { return settingUp(p, sets) })

	back := p.kill("apiserver")
	began := time.Now()
	later, laterPod := p.detach("later"), p.detach("later-pod")
	p.waits(later, tallyman.NoBackend, "the cluster cannot be used")
	p.waits(laterPod, tallyman.NoBackend, "the cluster cannot be used")
	ends = p.ended(ends.ID)
	t.Logf("what ends meanwhile has its end after %v of the outage", time.Since(began).Round(time.Second))
	time.Sleep(time.Until(began.Add(outage)))
	impatient.waits(nowhere, tallyman.NoBackend, "the cluster cannot be used")
	if now := p.show(work.ID); now.State != tallyman.Running || now.Attempt != 1 {
		t.Errorf("what is at work is %s (%s)", now.State, now.Message)
	}
	back()
	ready := time.Now()
	p.eventually("the API server is back", func() bool {
		return kube.Get(t.Context(), client.ObjectKey{Name: p.namespace}, &corev1.Namespace{}) == nil
	})
	t.Logf("the API server was back after %v", time.Since(ready).Round(time.Second))
	p.holds(ends, tallyman.AgentError, "exit code 3")
	for _, run := range []tallyman.Run{later, laterPod} {
		p.eventually("it is on a node", func() bool { pods := p.pods(run); return len(pods) == 1 && pods[0].Spec.NodeName != "" })
	}
	for _, run := range []tallyman.Run{sets, later, laterPod, work} {
		run = p.ended(run.ID)
		p.holds(run, tallyman.Completed)
		t.Logf("%s had ended after %v", run.Name, time.Since(ready).Round(time.Second))
		p.once(run)
	}
	p.once(ends)
	for _, run := range []tallyman.Run{later, laterPod} {
		p.when(run, ready)
	}
	impatient.holds(impatient.ended(nowhere.ID), tallyman.Unschedulable, "node")
	if got := p.ok("logs", work.ID); got != numbers(50) {
		t.Errorf("the transcript is %q", got)
	}
}

// when tells how long each step of a run's start took. Ours is the first; the
// cluster's own programs come back in their own time.
func (p *place) when(run tallyman.Run, since time.Time) {
	p.Helper()
	var a tallyman.Attempt
	p.eventually("the whole of "+run.Name+"'s evidence is kept", func() bool { // its end may be known first
		a = p.attempts(run)[0]
		return a.Evidence != nil && a.Evidence.ScheduledAt != nil
	})
	pod := p.pods(run)[0]
	after := func(t time.Time) time.Duration { return t.Sub(since).Round(time.Second) }
	made := pod.CreationTimestamp
	var job batchv1.Job
	if kube.Get(p.Context(), client.ObjectKey{Namespace: p.namespace, Name: run.Name}, &job) == nil {
		made = job.CreationTimestamp
	}
	p.Logf("%s: made after %v, its Pod after %v, on a node after %v, at work after %v, ended after %v", run.Name,
		after(made.Time), after(pod.CreationTimestamp.Time), after(*a.Evidence.ScheduledAt), after(*a.StartedAt), after(*a.EndedAt))
	if after(made.Time) > 10*time.Second {
		p.Errorf("it was made %v after the API server had come back", after(made.Time))
	}
}

func outageOfTheKubelet(t *testing.T) {
	p := newPlace(t)
	p.agent("at-work", shell("for n in $(seq 1 30); do echo $n; sleep 1; done"))
	p.agent("ends", shell("sleep 8; echo end"))
	p.agent("later", shell("echo hello"))
	work, ends := p.detach("at-work"), p.detach("ends")
	p.running(work)
	p.running(ends)
	back := p.kill("kubelet")
	began := time.Now()
	later := p.detach("later")
	p.holds(p.ended(ends.ID), tallyman.Completed)
	t.Logf("what ends meanwhile has its end after %v of the outage", time.Since(began).Round(time.Second))
	time.Sleep(time.Until(began.Add(20 * time.Second)))
	if now := p.show(work.ID); now.State != tallyman.Running {
		t.Errorf("what is at work is %s (%s)", now.State, now.Message)
	}
	if now := p.show(later.ID); now.State.Terminal() {
		t.Errorf("what was to start is %s (%s)", now.State, now.Message)
	}
	back()
	for _, run := range []tallyman.Run{work, later, ends} {
		run = p.ended(run.ID)
		p.holds(run, tallyman.Completed)
		p.once(run)
	}
	if got := p.ok("logs", work.ID); got != numbers(30) {
		t.Errorf("the transcript is %q", got)
	}
}

// A server that is killed finds a run in whichever phase it is, and starts
// nothing twice.
func TestAServerIsKilledInEachPhase(t *testing.T) {
	queued := func(p *place, run tallyman.Run) bool { return p.show(run.ID).State == tallyman.Queued }
	const later = "docker.io/local/later:test"
	for name, c := range map[string]struct {
		spec   string
		when   func(*place, tallyman.Run) bool
		down   func(*place, tallyman.Run) // while no server is up
		reason tallyman.Reason
		logs   string
	}{
		"queued":   {shell("echo hello"), queued, nil, tallyman.Completed, "hello\n"},
		"at-once":  {shell("echo hello"), atOnce, nil, tallyman.Completed, "hello\n"},
		"made":     {shell("echo hello"), isMade, nil, tallyman.Completed, "hello\n"},
		"image":    {strings.Replace(shell("echo hello"), shellImage, later, 1), pending, (*place).laterImage, tallyman.Completed, "hello\n"},
		"set-up":   {shell("echo hello") + strings.Replace(longSetUp, "300", "6", 1), settingUp, nil, tallyman.Completed, "hello\n"},
		"stopping": {shell("trap : TERM; while :; do sleep 1; done"), func(p *place, run tallyman.Run) bool { stopped(p, run); return atWork(p, run) }, nil, tallyman.ReasonStopped, ""},
		"teardown": {shell("echo hello") + longDown, tearingDown, nil, tallyman.Completed, "hello\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "TALLYMAN_GRACE=6s", "TALLYMAN_MAX_RUNNING=1")
			p.agent("before", shell("sleep 3"))
			if name == "queued" {
				p.running(p.detach("before"))
			}
			p.agent(name, c.spec)
			run := p.detach(name)
			if name == "stopping" {
				p.running(run)
			}
			p.eventually("it is time", func() bool { return c.when(p, run) })
			p.stop(syscall.SIGKILL)
			if c.down != nil {
				c.down(p, run)
			}
			p.up()
			run = p.ended(run.ID)
			p.holds(run, c.reason)
			if got := p.ok("logs", run.ID); got != c.logs {
				t.Errorf("the transcript is %q", got)
			}
			p.once(run)
		})
	}
}

// isMade returns as soon as a run's Job is there: its server may not have
// recorded it.
func isMade(p *place, run tallyman.Run) bool {
	for until := time.Now().Add(patience); time.Now().Before(until); {
		if kube.Get(p.Context(), client.ObjectKey{Namespace: p.namespace, Name: run.Name}, &batchv1.Job{}) == nil {
			return true
		}
	}
	return false
}

// laterImage brings the image that a run waits for.
func (p *place) laterImage(tallyman.Run) {
	p.Helper()
	busybox, err := exec.LookPath("busybox")
	p.must(err)
	p.image("docker.io/local/later:test", `["/bin/sh"]`, busybox+"=/bin/busybox", "link:busybox=/bin/sh", "link:busybox=/bin/echo")
	p.Cleanup(func() {
		_ = exec.Command("ctr", "-a", filepath.Join(*clusterDir, "ctr/containerd.sock"), "-n", "k8s.io", "images", "rm", "docker.io/local/later:test").Run()
	})
}

// What ended while no server was up, and of which nothing is left, has an
// unknown outcome.
func TestNothingIsLeft(t *testing.T) {
	for name, workload := range workloads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "TALLYMAN_DRAIN_BUDGET=1s")
			p.agent("ends", shell("sleep 3; echo end")+workload)
			run := p.detach("ends")
			p.running(run)
			p.stop(syscall.SIGKILL)
			p.eventually("the Pod has ended", func() bool {
				phase := p.pods(run)[0].Status.Phase
				return phase == corev1.PodSucceeded || phase == corev1.PodFailed
			})
			deleteJob(p, run)
			deletePods(p, run)
			p.eventually("nothing is left", func() bool { return len(p.pods(run)) == 0 })
			p.up()
			p.holds(p.ended(run.ID), tallyman.PodDeleted, "not known")
		})
	}
}
