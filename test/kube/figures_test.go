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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
	api "github.com/tallyman-dev/tallyman/client"
)

var (
	figures = flag.Bool("figures", false, "measure, and print a table for docs/performance.md")
	many    = flag.Int("many", 40, "one-second runs of each kind in a round of the throughput figures")
	rounds  = flag.Int("rounds", 5, "rounds of the throughput figures: machines change their speed meanwhile")
)

// meter measures one namespace's server and its peer, a bare client.
type meter struct {
	*place
	core *kubernetes.Clientset
	api  *api.Client
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
	m := &meter{place: p, core: core, api: p.client()}
	// What the Pods ask for is the same on both sides, and so little that 20 of
	// them are on the node at once.
	const little = "podTemplate: {spec: {containers: [{name: agent, resources: {requests: {cpu: 10m, memory: 16Mi}}}]}}\n"
	for _, k := range kinds {
		p.agent(k.name, "harness: exec\nretry: {max: 0}\ncommand: [/stamp, \"0\"]\n"+little+k.spec)
		p.agent(k.name+"-1s", "harness: exec\nretry: {max: 0}\ncommand: [/stamp, \"1\"]\n"+little+k.spec)
	}
	p.agent("sleeps", "harness: exec\nretry: {max: 0}\ncommand: [/stamp, \"600\"]\n"+little+kinds[0].spec)
	m.part("starts", (*meter).starts)
	m.part("crashes", (*meter).crashes)
	m.part("throughput", (*meter).throughput)
}

// part is a measurement that -run can name alone.
func (m *meter) part(name string, measure func(*meter)) {
	m.Run(name, func(t *testing.T) {
		at := *m.place
		at.T = t
		measure(&meter{place: &at, core: m.core, api: m.api})
	})
}

// client talks to the server as a Go program does.
func (p *place) client() *api.Client {
	p.Helper()
	url, pem, token := p.access()
	c, err := api.New(url, token)
	p.must(err)
	p.must(c.TrustOnly(pem))
	return c
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

// starts measures from a submit to the agent's first instruction, one at a
// time, and how long after its final event each end is known.
func (m *meter) starts() {
	const rounds = 40
	took := map[string][]float64{}
	var late []float64
	for range rounds {
		took["bare Job"] = append(took["bare Job"], m.bareStart())
		for _, k := range kinds {
			began := time.Now()
			run, err := m.api.Submit(m.Context(), tallyman.Request{Agent: k.name, Prompt: "x"})
			m.must(err)
			run = m.over(run.ID)
			m.holds(run, tallyman.Completed)
			took[k.name] = append(took[k.name], stampOf(m.place, m.ok("logs", run.ID)).Sub(began).Seconds())
			late = append(late, m.knownAfter(run))
		}
	}
	base := median(took["bare Job"])
	m.row("submit to agent process", "bare Job", took["bare Job"], "s", 1)
	for _, k := range kinds {
		m.row("submit to agent process", k.name, took[k.name], "s", median(took[k.name])/base)
	}
	m.lateRow("one at a time", late)
}

// over waits for a run to end, without a process that would be in its way.
func (m *meter) over(id string) (run tallyman.Run) {
	m.Helper()
	m.eventually("run "+id+" ends", func() bool {
		var err error
		run, err = m.api.Run(m.Context(), id)
		m.must(err)
		return run.State.Terminal()
	})
	return run
}

// crashes measures from a runner's death by a signal to the known end, at each
// moment of the second in which a kubelet looks.
func (m *meter) crashes() {
	var late []float64
	for i := range 40 {
		run := m.detach("sleeps", "x")
		m.running(run)
		time.Sleep(time.Duration(i) * 25 * time.Millisecond)
		killed := m.killRunner(run)
		run = m.over(run.ID)
		m.holds(run, tallyman.RunnerLost)
		late = append(late, m.endOf(run).Sub(killed).Seconds()*1000)
	}
	m.lateRow("runner killed", late)
}

func (m *meter) lateRow(who string, late []float64) {
	slices.Sort(late)
	m.Logf("| end known | %s | p50 %.1f ms, p99 %.1f ms, most %.1f ms | | %d | |", who, median(late), late[len(late)*99/100], late[len(late)-1], len(late))
}

func (m *meter) row(what, who string, values []float64, unit string, ratio float64) {
	slices.Sort(values)
	m.Logf("| %s | %s | %.3f %s | %.3f – %.3f | %d | %.2f × |", what, who, median(values), unit, values[0], values[len(values)-1], len(values), ratio)
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
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
			Containers: []corev1.Container{{Name: "agent", Image: stampImage, Command: []string{"/stamp", seconds}, Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
			}}},
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
// API server. The peer makes the same Jobs, and then plain ones, which have no
// security and no volumes: what lies between the two is no work of tallyman.
func (m *meter) throughput() {
	took, asked, used, late := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	measure := func(who string, run func() float64) {
		m.clear()
		before, worked := m.requests(), m.processorTime()
		took[who] = append(took[who], run())
		used[who] = append(used[who], (m.processorTime()-worked)/float64(*many))
		asked[who] = append(asked[who], (m.requests()-before)/float64(*many))
		m.Logf("%s: %.1f s", who, took[who][len(took[who])-1])
	}
	const same, plain = "bare loop", "bare loop, plain Jobs"
	for range *rounds {
		measure(same, func() float64 { return m.bareLoop(m.sameJob()) })
		measure(plain, func() float64 { return m.bareLoop(m.job("", "1")) })
		for _, k := range kinds {
			measure(k.name, func() float64 {
				seconds, after := m.ourMany(k.name + "-1s")
				late[k.name] = append(late[k.name], after...)
				return seconds
			})
		}
	}
	what := fmt.Sprintf("%d one-second runs, 20 at once", *many)
	for _, peer := range []string{same, plain} {
		m.row(what, peer, took[peer], "s", 1)
		m.row("API requests", peer, asked[peer], "per Job", 1)
	}
	for _, k := range kinds {
		for _, peer := range []string{same, plain} {
			m.row(what, k.name+" to "+peer, took[k.name], "s", median(took[k.name])/median(took[peer]))
		}
		m.row("API requests", k.name, asked[k.name], "per attempt", median(asked[k.name])/median(asked[plain]))
		slices.Sort(used[k.name])
		m.Logf("| processor time of the server | %s | %.3f s per attempt | %.3f – %.3f | %d | |", k.name, median(used[k.name]), used[k.name][0], used[k.name][len(used[k.name])-1], *rounds)
		m.lateRow(k.name+", 20 at once", late[k.name])
	}
}

// sameJob is the Job that the server makes of an attempt with the runner in its
// image, with the agent in the runner's place, and nobody's.
func (m *meter) sameJob() *batchv1.Job {
	m.Helper()
	var j batchv1.Job
	m.must(json.Unmarshal([]byte(m.ok("run", "--dry-run", "-o", "json", "image-1s", "x")), &j))
	agent := m.job("", "1")
	j.ObjectMeta = agent.ObjectMeta
	j.Spec.Template.Spec.Containers[0].Command = agent.Spec.Template.Spec.Containers[0].Command
	return &j
}

// bareLoop keeps 20 Jobs of a kind going from a plain client, as harnesses do.
func (m *meter) bareLoop(kind *batchv1.Job) float64 {
	m.Helper()
	began := time.Now()
	jobs := m.core.BatchV1().Jobs(m.namespace)
	watch, err := m.core.CoreV1().Pods(m.namespace).Watch(m.Context(), metav1.ListOptions{LabelSelector: "bare=yes"})
	m.must(err)
	defer watch.Stop()
	started, done := 0, map[string]bool{}
	for len(done) < *many {
		for started < *many && started-len(done) < 20 {
			j := kind.DeepCopy()
			j.Name = fmt.Sprintf("many-%d-%d", began.Unix(), started)
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
	return time.Since(began).Seconds()
}

// ourMany submits as many runs at once; late is how long after its final event
// each end was known, in milliseconds.
func (m *meter) ourMany(agent string) (took float64, late []float64) {
	m.Helper()
	began := time.Now()
	ids := map[string]bool{}
	for range *many {
		run, err := m.api.Submit(m.Context(), tallyman.Request{Agent: agent, Prompt: "x"})
		m.must(err)
		ids[run.ID] = true
	}
	// Asking is not to be in the way: one row tells that there is more to wait for.
	m.patiently(10*time.Minute, "all have ended", func() bool {
		time.Sleep(200 * time.Millisecond)
		left, _, err := m.api.Runs(m.Context(), tallyman.Filter{Agent: agent, States: []tallyman.State{tallyman.Queued, tallyman.Starting, tallyman.Running}, Limit: 1})
		m.must(err)
		return len(left) == 0
	})
	all, _, err := m.api.Runs(m.Context(), tallyman.Filter{Agent: agent, Limit: 1000})
	m.must(err)
	ended := slices.DeleteFunc(all, func(run tallyman.Run) bool { return !ids[run.ID] }) // those of an earlier round
	if len(ended) != *many {
		m.Fatalf("%d runs have ended, want %d", len(ended), *many)
	}
	for _, run := range ended {
		m.holds(run, tallyman.Completed)
		late = append(late, m.knownAfter(run))
	}
	last := slices.MaxFunc(ended, func(a, b tallyman.Run) int { return cmp.Compare(a.EndedAt.UnixNano(), b.EndedAt.UnixNano()) })
	return last.EndedAt.Sub(began).Seconds(), late
}

// clear takes away what was made, and waits until the node has nothing left of
// it: taking it away is work, long after the API server has forgotten it, that
// is not to fall into another's time.
func (m *meter) clear() {
	m.Helper()
	in, background := client.InNamespace(m.namespace), client.PropagationPolicy(metav1.DeletePropagationBackground)
	m.must(kube.DeleteAllOf(m.Context(), &batchv1.Job{}, in, background))
	m.must(kube.DeleteAllOf(m.Context(), &corev1.Pod{}, in, background))
	m.patiently(5*time.Minute, "the node is empty", func() bool {
		out, err := exec.Command("ctr", "-a", filepath.Join(*clusterDir, "ctr/containerd.sock"), "-n", "k8s.io", "containers", "ls", "-q").Output()
		m.must(err)
		folders, err := os.ReadDir(filepath.Join(*clusterDir, "kubelet/pods"))
		m.must(err)
		return len(bytes.TrimSpace(out)) == 0 && len(folders) == 0
	})
}

// knownAfter is the time from a run's final event to the end in its timeline,
// in milliseconds.
func (m *meter) knownAfter(run tallyman.Run) float64 {
	m.Helper()
	lines := strings.Split(strings.TrimSpace(m.ok("events", "-o", "json", run.ID)), "\n")
	var last tallyman.Event
	m.must(json.Unmarshal([]byte(lines[len(lines)-1]), &last))
	return m.endOf(run).Sub(last.Time).Seconds() * 1000
}

// endOf is when the server has known a run's end.
func (m *meter) endOf(run tallyman.Run) time.Time {
	m.Helper()
	timeline, err := m.api.Timeline(m.Context(), run.ID)
	m.must(err)
	for _, e := range timeline {
		if e.Kind == "ended" {
			return e.At
		}
	}
	m.Fatalf("run %s has no end in its timeline", run.Name)
	return time.Time{}
}

// processorTime is what the server has used, in seconds.
func (m *meter) processorTime() float64 {
	m.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.server.Process.Pid))
	m.must(err)
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // after its name
	if len(fields) < 13 {
		m.Fatalf("the server's stat: %q", b)
	}
	sum := 0.0
	for _, ticks := range fields[11:13] { // utime and stime
		n, err := strconv.ParseFloat(ticks, 64)
		m.must(err)
		sum += n / 100
	}
	return sum
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
