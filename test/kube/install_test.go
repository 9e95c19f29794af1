//go:build kube

package kube_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	serverImage = "docker.io/local/tallyman:test"
	helm        = "helm.sh/helm/v3/cmd/helm@v3.22.0"
	chart       = "../../deploy/chart/tallyman"
	release     = "tm"
	serverPod   = release + "-tallyman-0"
)

// values install the chart where there is neither DNS nor kube-proxy: this
// test passes on to the server what Pods send to the node.
const values = `
image: %s
tallyman: {advertise: "https://10.88.0.1:%d"}
persistence: {enabled: false}
crds: {install: false}
agents:
  work.yaml: |
    apiVersion: tallyman.dev/v1alpha1
    kind: Agent
    metadata: {name: work}
    spec: {harness: exec, image: %s, command: [sh, -c, 'echo hello from a Pod']}
extraEnv:
- {name: KUBERNETES_SERVICE_HOST, value: "10.88.0.1"}
- {name: KUBERNETES_SERVICE_PORT, value: "36443"}
`

// The chart installs, its server works by its own account, and uninstalling
// leaves nothing.
func TestInstall(t *testing.T) {
	p := emptyPlace(t)
	program := func(name string) string { return filepath.Join(bin, name) + "=/" + name }
	p.must(makeImage(p.dir, serverImage, `["/tallyman-server"]`, program("tallyman-server"), program("tallyman-runner"), program("tallyman")))
	l, err := net.Listen("tcp", "10.88.0.1:0")
	p.must(err)
	t.Cleanup(func() { _ = l.Close() })
	file := filepath.Join(p.dir, "values.yaml")
	p.must(os.WriteFile(file, fmt.Appendf(nil, values, serverImage, l.Addr().(*net.TCPAddr).Port, shellImage), 0o644))
	before := p.things()
	p.helm("install", release, chart, "-f", file)
	var pod corev1.Pod
	p.eventually("the server is ready", func() bool {
		return kube.Get(t.Context(), client.ObjectKey{Namespace: p.namespace, Name: serverPod}, &pod) == nil &&
			len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].Ready
	})
	go forward(l, pod.Status.PodIP+":7333")

	if out := p.inServer("run", "work"); !strings.Contains(out, "hello from a Pod") {
		t.Errorf("a run prints %q", out)
	}
	if out := p.inServer("config", "--token"); len(strings.TrimSpace(out)) < 20 {
		t.Errorf("the token is %q", out)
	}
	if out := p.inServer("config", "--login-link"); !strings.HasPrefix(out, "https://10.88.0.1:") {
		t.Errorf("the link is %q", out)
	}
	if out := p.inServer("doctor"); strings.Contains(out, "BROKEN") {
		t.Errorf("doctor says\n%s", out)
	}
	p.helm("uninstall", release, "--wait")
	p.eventually("nothing is left", func() bool { return len(without(p.things(), before)) == 0 })
}

func (p *place) helm(args ...string) {
	p.Helper()
	cmd := exec.Command("go", append([]string{"run", helm, "--kubeconfig", kubeconfig, "-n", p.namespace}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		p.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// inServer runs the program in the server's Pod.
func (p *place) inServer(args ...string) string {
	p.Helper()
	cmd := exec.Command(filepath.Join(os.Getenv("HOME"), ".cache/tallyman-cluster/bin/kubectl"),
		append([]string{"--kubeconfig", kubeconfig, "-n", p.namespace, "exec", serverPod, "--", "/tallyman-server"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.Errorf("%s in the server's Pod: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// things are the objects that an installation makes, and what its runs make.
func (p *place) things() (names []string) {
	p.Helper()
	for _, kind := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "Service"}, {Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Secret"},
		{Version: "v1", Kind: "ServiceAccount"}, {Version: "v1", Kind: "PersistentVolumeClaim"},
		{Group: "apps", Version: "v1", Kind: "StatefulSet"}, {Group: "batch", Version: "v1", Kind: "Job"},
		{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}, {Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
	} {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(kind)
		options := []client.ListOption{client.InNamespace(p.namespace)}
		if strings.HasPrefix(kind.Kind, "Cluster") {
			options = nil
		}
		p.must(kube.List(p.Context(), &list, options...))
		p.must(meta.EachListItem(&list, func(o runtime.Object) error {
			names = append(names, kind.Kind+"/"+o.(metav1.Object).GetName())
			return nil
		}))
	}
	return names
}

func without(all, some []string) (rest []string) {
	for _, name := range all {
		if !strings.Contains("\n"+strings.Join(some, "\n")+"\n", "\n"+name+"\n") {
			rest = append(rest, name)
		}
	}
	return rest
}

// forward passes every connection on to an address.
func forward(l net.Listener, to string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			u, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer u.Close()
			go func() { _, _ = io.Copy(u, c); _ = u.(*net.TCPConn).CloseWrite() }()
			_, _ = io.Copy(c, u)
		}()
	}
}
