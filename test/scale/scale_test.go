//go:build kube

// Package scale_test runs the real server against a real API server that has
// no nodes: what many objects cost it.
package scale_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/client"
)

const namespace = "scale"

// How many attempts there are, each a Job with its Pod.
var (
	finishedFlag = flag.Int("finished", 5000, "attempts that have ended")
	runningFlag  = flag.Int("running", 500, "attempts that have not")

	finished, running int
)

// hall is a server and the cluster's objects around it.
type hall struct {
	*testing.T
	dir, bin string
	core     *kubernetes.Clientset
	server   *exec.Cmd
	log      string
}

func (h *hall) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *hall) script(name string) {
	h.Helper()
	cmd := exec.Command("../cluster/" + name)
	cmd.Env = append(os.Environ(), "DIR="+h.dir+"/c", "API=37443", "ETCD=37379", "API_ONLY=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		h.Fatalf("%s: %v\n%s", name, err, out)
	}
}

func TestManyObjects(t *testing.T) {
	finished, running = *finishedFlag, *runningFlag
	dir, err := os.MkdirTemp("", "ts-")
	if err != nil {
		t.Fatal(err)
	}
	h := &hall{T: t, dir: dir, bin: filepath.Join(dir, "bin")}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", h.bin+"/", "../../cmd/tallyman-server")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	h.script("up.sh")
	t.Cleanup(func() { h.script("down.sh") })
	cfg, err := clientcmd.BuildConfigFromFlags("", dir+"/c/admin.kubeconfig")
	h.must(err)
	cfg.QPS, cfg.Burst = 2000, 4000
	h.core, err = kubernetes.NewForConfig(cfg)
	h.must(err)
	_, err = h.core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	h.must(err)
	h.account()
	h.node()

	h.must(os.WriteFile(dir+"/works.yaml", []byte("apiVersion: tallyman.dev/v1alpha1\nkind: Agent\nmetadata: {name: works}\nspec: {harness: exec, command: [work], image: registry.example/a:1}\n"), 0o644))
	h.up()
	t.Cleanup(func() { h.down() })
	h.submit(finished + running)
	h.act()
	h.settled()
	h.down()
	h.up()
	if took := h.synced(); took > 2*time.Second {
		t.Errorf("it took %v to know its objects again, want 2 s at most", took)
	}
	time.Sleep(5 * time.Second)
	before := h.writes()
	time.Sleep(25 * time.Second)
	if n := h.writes() - before; n != 0 {
		t.Errorf("%.0f writes while nothing changes", n)
	}
	if rss := h.resident(); rss > 150 {
		t.Errorf("the server has %d MB resident, want 150 at most", rss)
	}
}

// account makes what the admission of Pods asks for.
func (h *hall) account() {
	h.Helper()
	for range 50 {
		_, err := h.core.CoreV1().ServiceAccounts(namespace).Create(h.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
		if err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	h.Fatal("the namespace gets no account")
}

func (h *hall) up() {
	h.Helper()
	h.log = filepath.Join(h.dir, fmt.Sprintf("server-%d.log", time.Now().UnixNano()))
	log, err := os.Create(h.log)
	h.must(err)
	h.server = exec.Command(h.bin+"/tallyman-server", "up", "--data", h.dir+"/data", "--agents", h.dir+"/works.yaml", "--backend", "kube", "--kubeconfig", h.dir+"/c/admin.kubeconfig",
		"--namespace", namespace, "--runner-image", "registry.example/tallyman-runner:1", "--listen", "127.0.0.1:37333", "--advertise", "https://127.0.0.1:37333",
		"--max-running", strconv.Itoa(finished+running))
	h.server.Env = append(os.Environ(), "TALLYMAN_START_TIMEOUT=10h", "TALLYMAN_RETENTION_AGE=0s", "TALLYMAN_KEEP_OBJECTS=10h")
	h.server.Stdout, h.server.Stderr = log, log
	h.must(h.server.Start())
	for range 200 {
		if _, err := h.client().Info(h.Context()); err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	text, _ := os.ReadFile(h.log)
	h.Fatalf("the server does not answer:\n%s", text)
}

func (h *hall) down() {
	h.must(h.server.Process.Signal(syscall.SIGTERM))
	_ = h.server.Wait()
}

func (h *hall) client() *client.Client {
	pem, _ := os.ReadFile(h.dir + "/data/ca.pem")
	token, _ := os.ReadFile(h.dir + "/data/token")
	c, err := client.New("https://127.0.0.1:37333", strings.TrimSpace(string(token)))
	h.must(err)
	_ = c.TrustOnly(pem) // there is none before the server has made it
	return c
}

// each does n things, a few at a time.
func (h *hall) each(n int, do func(i int) error) {
	h.Helper()
	next := make(chan int)
	errs := make(chan error, n)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range next {
				errs <- do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
	close(errs)
	var err error
	for e := range errs {
		err = errors.Join(err, e)
	}
	h.must(err)
}

func (h *hall) submit(n int) {
	h.Helper()
	c := h.client()
	h.each(n, func(int) error {
		_, err := c.Submit(h.Context(), tallyman.Request{Agent: "works", Prompt: "x"})
		return err
	})
}

// node makes the node that the Pods are on: without it they would be lost.
func (h *hall) node() {
	h.Helper()
	n, err := h.core.CoreV1().Nodes().Create(h.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, metav1.CreateOptions{})
	h.must(err)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	_, err = h.core.CoreV1().Nodes().UpdateStatus(h.Context(), n, metav1.UpdateOptions{})
	h.must(err)
}

// act does what the Job controller and a kubelet would do.
func (h *hall) act() {
	h.Helper()
	var jobs *batchv1.JobList
	for until := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Second) {
		var err error
		jobs, err = h.core.BatchV1().Jobs(namespace).List(h.Context(), metav1.ListOptions{})
		h.must(err)
		if len(jobs.Items) == finished+running {
			break
		}
		if time.Now().After(until) {
			h.Fatalf("there are %d Jobs", len(jobs.Items))
		}
	}
	h.each(len(jobs.Items), func(i int) error { return h.actOn(h.Context(), &jobs.Items[i], i < finished) })
}

func (h *hall) actOn(ctx context.Context, job *batchv1.Job, ends bool) error {
	pod := &corev1.Pod{ObjectMeta: job.Spec.Template.ObjectMeta, Spec: job.Spec.Template.Spec}
	pod.Name, pod.Namespace = job.Name+"-x", namespace
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
	pod.Spec.NodeName = "node"
	pod, err := h.core.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	now := metav1.Now()
	state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
	pod.Status.Phase = corev1.PodRunning
	if ends {
		word := tallyman.LastWord{Attempt: job.Labels["tallyman.dev/run"] + "-1", Cursor: 1, At: now.Time, Outcome: tallyman.Outcome{Reason: tallyman.Completed, ExitCode: new(0), Started: true}}
		state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: now, FinishedAt: now, Reason: "Completed", Message: string(word.Encode())}}
		pod.Status.Phase = corev1.PodSucceeded
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent", State: state, Image: "a:1", ImageID: "sha256:abc"}}
	_, err = h.core.CoreV1().Pods(namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// settled waits until every run is what its Pod says.
func (h *hall) settled() {
	h.Helper()
	for until := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Second) {
		left, ended := 0, 0
		for cursor := ""; ; {
			items, next, err := h.client().Runs(h.Context(), tallyman.Filter{Limit: 1000, After: cursor})
			h.must(err)
			for _, r := range items {
				if r.State.Terminal() {
					ended++
				} else {
					left++
				}
			}
			if cursor = next; next == "" {
				break
			}
		}
		if left == running && ended == finished {
			return
		}
		if time.Now().After(until) {
			h.Fatalf("%d have ended, %d have not", ended, left)
		}
	}
}

var tookIn = regexp.MustCompile(`the cluster is watched" .*took=(\S+)`)

func (h *hall) synced() time.Duration {
	h.Helper()
	for range 300 {
		text, err := os.ReadFile(h.log)
		h.must(err)
		if m := tookIn.FindSubmatch(text); m != nil {
			took, err := time.ParseDuration(string(m[1]))
			h.must(err)
			h.Logf("%d Jobs and Pods are known again after %v", finished+running, took)
			return took
		}
		time.Sleep(50 * time.Millisecond)
	}
	h.Fatal("the server does not say that it watches the cluster")
	return 0
}

// writes counts what was written to the API server, but for leases and for
// what the API server writes itself.
func (h *hall) writes() (sum float64) {
	h.Helper()
	b, err := h.core.RESTClient().Get().AbsPath("/metrics").DoRaw(h.Context())
	h.must(err)
	for line := range bytes.Lines(b) {
		s := string(line)
		if !strings.HasPrefix(s, "apiserver_request_total{") || !strings.Contains(s, `resource="jobs"`) && !strings.Contains(s, `resource="pods"`) && !strings.Contains(s, `resource="agents"`) {
			continue
		}
		for _, verb := range []string{"POST", "PUT", "PATCH", "DELETE", "APPLY"} {
			if strings.Contains(s, `verb="`+verb+`"`) {
				n, err := strconv.ParseFloat(strings.TrimSpace(s[strings.LastIndex(s, " "):]), 64)
				h.must(err)
				sum += n
			}
		}
	}
	return sum
}

// resident is the server's memory in MB.
func (h *hall) resident() int {
	h.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.server.Process.Pid))
	h.must(err)
	_, after, _ := strings.Cut(string(b), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(after)[0])
	h.must(err)
	h.Logf("the server has %d MB resident", kb/1024)
	return kb / 1024
}
