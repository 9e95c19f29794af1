//go:build kube

package kube_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// doctor runs doctor as the server was started, with other flags after that.
func (p *place) doctor(flags ...string) (string, error) {
	p.Helper()
	_, port, err := net.SplitHostPort(p.address)
	p.must(err)
	cmd := exec.Command(filepath.Join(bin, "tallyman-server"), append([]string{
		"doctor", "--data", filepath.Join(p.dir, "data"), "--agents", filepath.Join(p.dir, "agents"),
		"--backend", "kube", "--kubeconfig", kubeconfig, "--namespace", p.namespace, "--runner-image", runnerImage,
		"--listen", p.address, "--advertise", "https://10.88.0.1:" + port,
	}, flags...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// poor writes a kubeconfig of an account without rights; bad makes its
// token one that is not good.
func (p *place) poor(bad bool) string {
	p.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "poor", Namespace: p.namespace}}
	_ = kube.Create(p.Context(), sa) // it may be there
	request := &authenticationv1.TokenRequest{}
	p.must(kube.SubResource("token").Create(p.Context(), sa, request))
	token := request.Status.Token
	if bad {
		token = token[:len(token)-8] + "AAAAAAAA"
	}
	path := filepath.Join(p.dir, fmt.Sprintf("account-%t.kubeconfig", bad))
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:36443", certificate-authority: %s/pki/ca.crt}}]
users: [{name: u, user: {token: %q}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`, *clusterDir, token)
	p.must(os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestDoctor(t *testing.T) {
	p := newPlace(t)
	p.agent("needs", shell("true")+"envFrom: [{secretRef: {name: absent}}, {secretRef: {name: half, key: A}}, {secretRef: {name: half, key: B}}]")
	p.must(kube.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "half", Namespace: p.namespace}, StringData: map[string]string{"A": "x"}}))
	away := filepath.Join(p.dir, "away.kubeconfig")
	text, err := os.ReadFile(kubeconfig)
	p.must(err)
	p.must(os.WriteFile(away, []byte(strings.ReplaceAll(string(text), "127.0.0.1:36443", "127.0.0.1:1")), 0o600))
	for name, c := range map[string]struct {
		flags  []string
		says   []string
		broken bool
	}{
		"all is well but a Secret":        {nil, []string{"ok      cluster", "ok      rights in " + p.namespace, "ok      Pods in " + p.namespace, "ok      reach", "ok      agents in " + p.namespace, "BROKEN  Secret absent", "kubectl -n " + p.namespace + " create secret generic absent", "BROKEN  Secret half", "has no key B"}, true},
		"a namespace that is not there":   {[]string{"--namespaces", "no-such-place"}, []string{"ok      reach", "BROKEN  Pods in no-such-place", "there is no namespace no-such-place", "kubectl create namespace no-such-place"}, true},
		"a cluster that is not there":     {[]string{"--kubeconfig", away}, []string{"BROKEN  cluster", "connection refused", "no cluster answers there"}, true},
		"a token that is not good":        {[]string{"--kubeconfig", p.poor(true)}, []string{"BROKEN  cluster", "the credentials are not good"}, true},
		"an account without rights":       {[]string{"--kubeconfig", p.poor(false)}, []string{"BROKEN  rights in", "create jobs", "pods/log", "BROKEN  tokenreviews", "may not be listed (optional)", "BROKEN  Pods in"}, true},
		"a server that Pods cannot reach": {[]string{"--advertise", "https://10.88.0.1:1"}, []string{"BROKEN  reach", "connection refused", "--advertise"}, true},
		"an image that is not there":      {[]string{"--runner-image", "127.0.0.1:1/nothing:1"}, []string{"BROKEN  reach", "127.0.0.1:1/nothing:1"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := p.doctor(c.flags...)
			if (err != nil) != c.broken {
				t.Errorf("it ended with %v", err)
			}
			for _, words := range c.says {
				if !strings.Contains(out, words) {
					t.Errorf("it does not say %q:\n%s", words, out)
				}
			}
		})
	}
}
