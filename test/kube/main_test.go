//go:build kube

// Package kube_test runs the real server, runner and command line against a
// real one-node cluster (test/cluster): every way in which an attempt ends.
package kube_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tallyman-dev/tallyman"
)

// Images of the suite. The first holds the runner, the second a shell, the
// third both.
const (
	runnerImage = "docker.io/local/tallyman-runner:test"
	shellImage  = "docker.io/local/busybox:1"
	bothImage   = "docker.io/local/with-runner:test"
)

var (
	clusterDir = flag.String("cluster", os.Getenv("TALLYMAN_TEST_CLUSTER"), "folder of a cluster that is up; empty: one is started")
	bin        string        // where the programs are
	kube       client.Client // of the cluster
	kubeconfig string
)

func TestMain(m *testing.M) {
	flag.Parse()
	log.SetLogger(logr.Discard())
	code, err := suite(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/kube:", err)
		code = 1
	}
	os.Exit(code)
}

func suite(m *testing.M) (code int, err error) {
	tmp, err := os.MkdirTemp("", "tk-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(tmp)
	bin = filepath.Join(tmp, "bin")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin+"/", "../../cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build: %w\n%s", err, out)
	}
	if *clusterDir == "" {
		*clusterDir = filepath.Join(tmp, "cluster")
		if err := script("up.sh"); err != nil {
			return 1, err
		}
		defer func() { err = script("down.sh") }()
	}
	if err := images(tmp); err != nil {
		return 1, err
	}
	kubeconfig = filepath.Join(*clusterDir, "admin.kubeconfig")
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return 1, err
	}
	cfg.QPS, cfg.Burst = 100, 200
	if kube, err = client.New(cfg, client.Options{Scheme: clientgoscheme.Scheme}); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// script runs one of the cluster's scripts.
func script(name string) error {
	cmd := exec.Command("../cluster/" + name)
	cmd.Env = append(os.Environ(), "DIR="+*clusterDir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

// images makes the suite's images and brings them to the node.
func images(tmp string) error {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	shell := []string{busybox + "=/bin/busybox"}
	for _, c := range []string{"sh", "sleep", "cat", "true", "false", "echo", "tail", "kill", "id", "env", "touch", "ls", "seq"} {
		shell = append(shell, "link:busybox=/bin/"+c)
	}
	runner := filepath.Join(bin, "tallyman-runner") + "=" + tallyman.PodRunner
	for _, image := range [][]string{
		{runnerImage, `["/tallyman-runner"]`, runner},
		append([]string{bothImage, `["/bin/sh"]`, runner}, shell...),
	} {
		if err := makeImage(tmp, image...); err != nil {
			return err
		}
	}
	return nil
}

// makeImage makes an image, NAME ENTRYPOINT FILE=PATH…, and brings it to the
// node.
func makeImage(tmp string, image ...string) error {
	tar := filepath.Join(tmp, "image.tar")
	make := exec.Command("go", append([]string{"run", "./image", tar}, image...)...)
	make.Dir = "../cluster"
	if out, err := make.CombinedOutput(); err != nil {
		return fmt.Errorf("image %s: %w\n%s", image[0], err, out)
	}
	ctr := exec.Command("ctr", "-a", filepath.Join(*clusterDir, "ctr/containerd.sock"), "-n", "k8s.io", "images", "import", tar)
	if out, err := ctr.CombinedOutput(); err != nil {
		return fmt.Errorf("import %s: %w\n%s", image[0], err, out)
	}
	return nil
}

// place is a server with a namespace of its own.
type place struct {
	*testing.T
	dir, namespace string
	address        string
	program        string // another build of the server; "": the suite's
	server         *exec.Cmd
	env            []string // of the server: TALLYMAN_…
	args           []string // of the server, beside ours
	log            *os.File
}

// emptyPlace makes a namespace alone.
func emptyPlace(t *testing.T) *place {
	t.Helper()
	p := &place{T: t, dir: t.TempDir(), namespace: strings.ToLower(fmt.Sprintf("t-%x", time.Now().UnixNano()))}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
	if err := kube.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	p.eventually("the namespace has its account", func() bool {
		return kube.Get(t.Context(), client.ObjectKey{Namespace: p.namespace, Name: "default"}, &corev1.ServiceAccount{}) == nil
	})
	t.Cleanup(func() { _ = kube.Delete(context.Background(), ns) })
	return p
}

// newPlace makes a namespace and starts a server for it.
func newPlace(t *testing.T, env ...string) *place {
	t.Helper()
	p := emptyPlace(t)
	p.env = env
	if err := os.Mkdir(filepath.Join(p.dir, "agents"), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	p.address = fmt.Sprintf("0.0.0.0:%d", l.Addr().(*net.TCPAddr).Port)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if p.log, err = os.Create(filepath.Join(p.dir, "server.log")); err != nil {
		t.Fatal(err)
	}
	p.up()
	t.Cleanup(func() {
		if p.server != nil {
			p.stop(syscall.SIGTERM)
		}
		if t.Failed() {
			text, _ := os.ReadFile(p.log.Name())
			t.Logf("the server's log:\n%s", text)
		}
	})
	return p
}

// up starts the server and waits until it answers.
func (p *place) up() {
	p.Helper()
	_, port, _ := net.SplitHostPort(p.address)
	p.server = exec.Command(cmp.Or(p.program, filepath.Join(bin, "tallyman-server")),
		"up", "--data", filepath.Join(p.dir, "data"), "--agents", filepath.Join(p.dir, "agents"),
		"--backend", "kube", "--kubeconfig", kubeconfig, "--namespace", p.namespace, "--runner-image", runnerImage,
		"--listen", p.address, "--advertise", "https://10.88.0.1:"+port)
	p.server.Args = append(p.server.Args, p.args...)
	p.server.Stdout, p.server.Stderr = p.log, p.log
	p.server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.server.Env = append(os.Environ(), p.env...)
	if err := p.server.Start(); err != nil {
		p.Fatal(err)
	}
	p.eventually("the server answers", func() bool { _, err := p.try("ls"); return err == nil })
}

func (p *place) stop(sig syscall.Signal) {
	p.Helper()
	if err := p.server.Process.Signal(sig); err != nil {
		p.Fatal(err)
	}
	_ = p.server.Wait()
	p.server = nil
}

// agent writes an agent file; spec is YAML of one line or several.
func (p *place) agent(name, spec string) {
	p.Helper()
	text := "apiVersion: tallyman.dev/v1alpha1\nkind: Agent\nmetadata: {name: " + name + "}\nspec:\n  " + strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  ") + "\n"
	if err := os.WriteFile(filepath.Join(p.dir, "agents", name+".yaml"), []byte(text), 0o644); err != nil {
		p.Fatal(err)
	}
}

// try runs the command line over the network.
func (p *place) try(args ...string) (string, error) {
	_, port, _ := net.SplitHostPort(p.address)
	data := filepath.Join(p.dir, "data")
	return p.tallyman(append([]string{
		"--server", "https://127.0.0.1:" + port, "--server-ca", filepath.Join(data, "ca.pem"), "--token-file", filepath.Join(data, "token"),
	}, args...))
}

// inFolder runs the command line over the socket of the data folder.
func (p *place) inFolder(args ...string) string {
	p.Helper()
	out, err := p.tallyman(append([]string{"--data", filepath.Join(p.dir, "data")}, args...))
	if err != nil {
		p.Fatal(err)
	}
	return out
}

func (p *place) tallyman(args []string) (string, error) {
	cmd := exec.Command(filepath.Join(bin, "tallyman"), args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("tallyman %s: %w\n%s", strings.Join(args, " "), err, errOut.String())
	}
	return out.String(), nil
}

func (p *place) ok(args ...string) string {
	p.Helper()
	out, err := p.try(args...)
	if err != nil {
		p.Fatal(err)
	}
	return out
}

// detach submits a run and returns it as it was admitted.
func (p *place) detach(args ...string) tallyman.Run {
	p.Helper()
	var run tallyman.Run
	if err := json.Unmarshal([]byte(p.ok(append([]string{"run", "-d", "-o", "json"}, args...)...)), &run); err != nil {
		p.Fatal(err)
	}
	return run
}

func (p *place) show(id string) tallyman.Run {
	p.Helper()
	var all struct{ Run tallyman.Run }
	out := p.ok("show", "-o", "json", id)
	if err := json.Unmarshal([]byte(out), &all); err != nil || all.Run.ID == "" {
		var run tallyman.Run
		if err := json.Unmarshal([]byte(out), &run); err != nil {
			p.Fatal(err)
		}
		return run
	}
	return all.Run
}

// ended waits for a run to end.
func (p *place) ended(id string) tallyman.Run {
	p.Helper()
	var run tallyman.Run
	p.eventually("run "+id+" ends", func() bool { run = p.show(id); return run.State.Terminal() })
	return run
}

const patience = 90 * time.Second

func (p *place) eventually(what string, ok func() bool) {
	p.Helper()
	p.patiently(patience, what, ok)
}

func (p *place) patiently(patience time.Duration, what string, ok func() bool) {
	p.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if ok() {
			return
		}
		if time.Now().After(until) {
			p.Fatalf("it does not come true that %s", what)
		}
	}
}

// pods are the run's Pods.
func (p *place) pods(run tallyman.Run) []corev1.Pod {
	p.Helper()
	var pods corev1.PodList
	if err := kube.List(p.Context(), &pods, client.InNamespace(p.namespace), client.MatchingLabels{"tallyman.dev/run": run.ID}); err != nil {
		p.Fatal(err)
	}
	return pods.Items
}
