//go:build kube

package kube_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
)

var (
	figures = flag.Bool("figures", false, "measure, and print a table for docs/performance.md")
	many    = flag.Int("many", 200, "one-second runs of the throughput figures")
)

// meter measures one namespace's server and its peer, a bare client.
type meter struct {
	*place
	core *kubernetes.Clientset
}

// kinds are the ways in which an attempt gets its runner and object.
var kinds = []struct{ name, spec string }{
	{"image", "runner: image\nimage: " + stampImage},
	{"inject", "image: " + stampImage},
	{"pod", "runner: image\nworkload: pod\nimage: " + stampImage},
}

const stampImage = "docker.io/local/stamp:test"

// TestFigures measures side by side, product and peer in turn.
func TestFigures(t *testing.T) {
	if !*figures {
		t.Skip("measures nothing without -figures")
	}
	makeStampImage(t)
	p := newPlace(t, "TALLYMAN_MAX_RUNNING=20")
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	p.must(err)
	cfg.QPS, cfg.Burst = 500, 1000
	core, err := kubernetes.NewForConfig(cfg)
	p.must(err)
	m := &meter{place: p, core: core}
	for _, k := range kinds {
		p.agent(k.name, "harness: exec\nretry: {max: 0}\ncommand: [/stamp, \"0\"]\n"+k.spec)
		p.agent(k.name+"-1s", "harness: exec\nretry: {max: 0}\ncommand: [/stamp, \"1\"]\n"+k.spec)
	}
	m.starts()
	m.throughput()
}

func makeStampImage(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	stamp, tar := filepath.Join(dir, "stamp"), filepath.Join(dir, "stamp.tar")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", stamp, "./stamp")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	pack := exec.Command("go", "run", "./image", tar, stampImage, `["/stamp"]`, stamp+"=/stamp", filepath.Join(bin, "tallyman-runner")+"="+tallyman.PodRunner)
	pack.Dir = "../cluster"
	load := exec.Command("ctr", "-a", filepath.Join(*clusterDir, "ctr/containerd.sock"), "-n", "k8s.io", "images", "import", tar)
	for _, c := range []*exec.Cmd{build, pack, load} {
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c.Args, err, out)
		}
	}
}

// starts measures from a submit to the agent's first instruction.
func (m *meter) starts() {
	const rounds = 12
	took := map[string][]float64{}
	for range rounds {
		took["bare Job"] = append(took["bare Job"], m.bareStart())
		for _, k := range kinds {
			took[k.name] = append(took[k.name], m.ourStart(k.name))
		}
	}
	base := median(took["bare Job"])
	m.row("submit to agent process", "bare Job", took["bare Job"], "s", 1)
	for _, k := range kinds {
		m.row("submit to agent process", k.name, took[k.name], "s", median(took[k.name])/base)
	}
}

func (m *meter) row(what, who string, values []float64, unit string, ratio float64) {
	slices.Sort(values)
	m.Logf("| %s | %s | %.3f %s | %.3f – %.3f | %d | %.2f × |", what, who, median(values), unit, values[0], values[len(values)-1], len(values), ratio)
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

func (m *meter) ourStart(agent string) float64 {
	m.Helper()
	began := time.Now()
	run := m.detach(agent, "x")
	m.holds(m.ended(run.ID), tallyman.Completed)
	return stampOf(m.place, m.ok("logs", run.ID)).Sub(began).Seconds()
}

func stampOf(p *place, text string) time.Time {
	p.Helper()
	_, after, _ := strings.Cut(text, "began ")
	line, _, _ := strings.Cut(after, "\n")
	n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	p.must(err)
	return time.Unix(0, n)
}

// job is the same work without tallyman.
func (m *meter) job(name, seconds string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: m.namespace, Labels: map[string]string{"bare": "yes"}},
		Spec: batchv1.JobSpec{BackoffLimit: new(int32(0)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "agent", Image: stampImage, Command: []string{"/stamp", seconds}}},
		}}},
	}
}

func (m *meter) bareStart() float64 {
	m.Helper()
	name := fmt.Sprintf("bare-%d", time.Now().UnixNano())
	began := time.Now()
	// As kubectl create job does it, a process of its own.
	text, err := json.Marshal(m.job(name, "0"))
	m.must(err)
	create := exec.Command("kubectl", "--kubeconfig", kubeconfig, "create", "-f", "-")
	create.Args[0] = filepath.Join(os.Getenv("HOME"), ".cache/tallyman-cluster/bin/kubectl")
	create.Path, create.Err = create.Args[0], nil
	create.Stdin = bytes.NewReader(append([]byte(`{"apiVersion":"batch/v1","kind":"Job",`), text[1:]...))
	if out, err := create.CombinedOutput(); err != nil {
		m.Fatalf("create a Job: %v\n%s", err, out)
	}
	var log string
	m.eventually("the bare Job has begun", func() bool {
		pods, err := m.core.CoreV1().Pods(m.namespace).List(m.Context(), metav1.ListOptions{LabelSelector: "job-name=" + name})
		if err != nil || len(pods.Items) == 0 {
			return false
		}
		body, err := m.core.CoreV1().Pods(m.namespace).GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{}).Stream(m.Context())
		if err != nil {
			return false
		}
		defer body.Close()
		b, _ := io.ReadAll(body)
		log = string(b)
		return strings.Contains(log, "\n")
	})
	return stampOf(m.place, log).Sub(began).Seconds()
}

// throughput measures many short runs under a cap, and what they ask of the
// API server.
func (m *meter) throughput() {
	what := fmt.Sprintf("%d one-second runs, 20 at once", *many)
	before := m.requests()
	bare := m.bareLoop()
	bareAsked := (m.requests() - before) / float64(*many)
	m.row(what, "bare loop", []float64{bare}, "s", 1)
	m.row("API requests", "bare loop", []float64{bareAsked}, "per Job", 1)
	for _, k := range kinds {
		before := m.requests()
		took, late := m.ourMany(k.name + "-1s")
		asked := (m.requests() - before) / float64(*many)
		m.row(what, k.name, []float64{took}, "s", took/bare)
		m.row("API requests", k.name, []float64{asked}, "per attempt", asked/bareAsked)
		slices.Sort(late)
		m.Logf("| end known after the final event | %s | p50 %.1f ms, p99 %.1f ms, most %.1f ms | | %d | |", k.name,
			median(late), late[len(late)*99/100], late[len(late)-1], len(late))
	}
}

// bareLoop keeps 20 Jobs going from a plain client, as harnesses do.
func (m *meter) bareLoop() float64 {
	m.Helper()
	began := time.Now()
	jobs := m.core.BatchV1().Jobs(m.namespace)
	watch, err := m.core.CoreV1().Pods(m.namespace).Watch(m.Context(), metav1.ListOptions{LabelSelector: "bare=yes"})
	m.must(err)
	defer watch.Stop()
	started, done := 0, map[string]bool{}
	for len(done) < *many {
		for started < *many && started-len(done) < 20 {
			j := m.job(fmt.Sprintf("many-%d-%d", began.Unix(), started), "1")
			j.Spec.Template.Labels = j.Labels
			_, err := jobs.Create(m.Context(), j, metav1.CreateOptions{})
			m.must(err)
			started++
		}
		e, ok := <-watch.ResultChan()
		if !ok {
			m.Fatal("the watch has ended")
		}
		if pod, ok := e.Object.(*corev1.Pod); ok && pod.Status.Phase == corev1.PodSucceeded {
			done[pod.Name] = true
		}
	}
	took := time.Since(began).Seconds()
	m.must(kube.DeleteAllOf(m.Context(), &batchv1.Job{}, client.InNamespace(m.namespace), client.MatchingLabels{"bare": "yes"}, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	return took
}

// ourMany submits as many runs at once; late is how long after its final event
// each end was known, in milliseconds.
func (m *meter) ourMany(agent string) (took float64, late []float64) {
	m.Helper()
	began := time.Now()
	label := fmt.Sprintf("figure=%d", began.UnixNano())
	for range *many {
		m.detach(agent, "x", "--label", label)
	}
	var ended struct{ Items []tallyman.Run }
	m.patiently(10*time.Minute, "all have ended", func() bool {
		ended.Items = nil
		m.must(json.Unmarshal([]byte(m.ok("ls", "-o", "json", "--label", label, "--state", "succeeded,failed,stopped")), &ended))
		return len(ended.Items) == *many
	})
	took = time.Since(began).Seconds()
	for _, run := range ended.Items {
		m.holds(run, tallyman.Completed)
		late = append(late, m.knownAfter(run))
	}
	last := slices.MaxFunc(ended.Items, func(a, b tallyman.Run) int { return cmp.Compare(a.EndedAt.UnixNano(), b.EndedAt.UnixNano()) })
	return min(took, last.EndedAt.Sub(began).Seconds()), late
}

// knownAfter is the time from a run's final event to the end in its timeline.
func (m *meter) knownAfter(run tallyman.Run) float64 {
	m.Helper()
	var timeline struct{ Items []tallyman.TimelineEntry }
	m.get("/api/v1/runs/"+run.ID+"/timeline", &timeline)
	lines := strings.Split(strings.TrimSpace(m.ok("events", "-o", "json", run.ID)), "\n")
	var last tallyman.Event
	m.must(json.Unmarshal([]byte(lines[len(lines)-1]), &last))
	for _, e := range timeline.Items {
		if e.Kind == "ended" {
			return e.At.Sub(last.Time).Seconds() * 1000
		}
	}
	m.Fatalf("run %s has no end in its timeline", run.Name)
	return 0
}

// requests counts what the API server was asked for about Jobs, Pods, events
// and tokens, watches left out.
func (m *meter) requests() float64 {
	m.Helper()
	b, err := m.core.RESTClient().Get().AbsPath("/metrics").DoRaw(context.Background())
	m.must(err)
	sum := 0.0
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "apiserver_request_total{") || strings.Contains(line, `verb="WATCH"`) {
			continue
		}
		for _, r := range []string{"jobs", "pods", "events", "tokenreviews", "serviceaccounts"} {
			if strings.Contains(line, `resource="`+r+`"`) {
				n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
				m.must(err)
				sum += n
			}
		}
	}
	return sum
}
