//go:build kube

package kube_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
)

// rights are all that a server needs in its namespace.
var rights = []rbacv1.PolicyRule{
	{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"create", "get", "list", "watch", "patch", "delete"}},
	{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create", "get", "list", "watch", "delete"}},
	{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
	{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"resourcequotas"}, Verbs: []string{"list"}},
}

// limited makes an account for the server, with a kubeconfig that it is
// started with from now on. It returns what binds it to its rights.
func (p *place) limited() *rbacv1.RoleBinding {
	p.Helper()
	meta := metav1.ObjectMeta{Name: "server", Namespace: p.namespace}
	everywhere := metav1.ObjectMeta{Name: p.namespace}
	who := []rbacv1.Subject{{Kind: "ServiceAccount", Name: meta.Name, Namespace: p.namespace}}
	account := &corev1.ServiceAccount{ObjectMeta: meta}
	binding := &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: who, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}}
	for _, o := range []client.Object{
		account, &rbacv1.Role{ObjectMeta: meta, Rules: rights}, binding,
		&rbacv1.ClusterRoleBinding{ObjectMeta: everywhere, Subjects: who, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"}},
	} {
		p.must(kube.Create(p.Context(), o))
		p.Cleanup(func() { _ = kube.Delete(context.Background(), o) })
	}
	request := &authenticationv1.TokenRequest{}
	p.must(kube.SubResource("token").Create(p.Context(), account, request))
	admin, err := os.ReadFile(kubeconfig)
	p.must(err)
	clusters, _, _ := strings.Cut(string(admin), "users:")
	text := clusters + fmt.Sprintf("users: [{name: server, user: {token: %s}}]\ncontexts: [{name: c, context: {cluster: tallyman, user: server}}]\ncurrent-context: c\n", request.Status.Token)
	file := filepath.Join(p.dir, "server.kubeconfig")
	p.must(os.WriteFile(file, []byte(text), 0o600))
	p.args = []string{"--kubeconfig", file}
	return binding
}

// rebind gives back rights that were taken away.
func (p *place) rebind(b *rbacv1.RoleBinding) {
	p.Helper()
	again := b.DeepCopy()
	again.ResourceVersion, again.UID = "", ""
	p.must(kube.Create(p.Context(), again))
}

// A server whose rights are taken away loses nothing of what is at work, and
// starts nothing until it has them again.
func TestRightsThatAreTakenAway(t *testing.T) {
	for name, killed := range map[string]bool{"while it serves": false, "and it starts without": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.stop(syscall.SIGTERM)
			binding := p.limited()
			p.up()
			p.agent("at-work", shell("for n in $(seq 1 20); do echo $n; sleep 0.5; done"))
			p.agent("later", shell("echo hello"))
			p.agent("later-pod", shell("echo hello")+podWorkload)
			work := p.detach("at-work")
			p.running(work)
			p.must(kube.Delete(t.Context(), binding))
			if killed {
				p.stop(syscall.SIGKILL)
			}
			time.Sleep(time.Second) // the API server hears of it
			if killed {
				p.up()
			}
			later, laterPod := p.detach("later"), p.detach("later-pod")
			p.waits(later, tallyman.NoBackend, "forbidden")
			p.waits(laterPod, tallyman.NoBackend, "forbidden")
			if !killed {
				p.holds(p.ended(work.ID), tallyman.Completed)
			} else {
				time.Sleep(12 * time.Second)
				now := p.show(work.ID)
				t.Logf("what was at work is %s %s", now.State, now.Reason)
			}
			p.rebind(binding)
			given := time.Now()
			for _, run := range []tallyman.Run{work, later, laterPod} {
				run = p.ended(run.ID)
				p.holds(run, tallyman.Completed)
				p.once(run)
			}
			t.Logf("all had ended %v after the rights were back", time.Since(given).Round(time.Second))
			if got := p.ok("logs", work.ID); got != numbers(20) {
				t.Errorf("the transcript is %q", got)
			}
		})
	}
}

// A namespace that the server has no rights in keeps nobody of the others
// waiting, also where the server is started anew while a run is at work.
func TestANamespaceWithoutRights(t *testing.T) {
	p := newPlace(t, "TALLYMAN_NAMESPACES=default")
	p.stop(syscall.SIGTERM)
	p.limited() // in its own namespace
	p.up()
	p.agent("at-work", shell("for n in $(seq 1 12); do echo $n; sleep 0.5; done"))
	p.agent("bare", bare("for n in $(seq 1 12); do echo $n; sleep 0.5; done"))
	runs := []tallyman.Run{p.detach("at-work"), p.detach("bare")}
	for _, run := range runs {
		p.running(run)
	}
	p.stop(syscall.SIGKILL)
	p.up()
	for _, run := range append(runs, p.detach("at-work")) {
		run = p.ended(run.ID)
		p.holds(run, tallyman.Completed)
		p.once(run)
		if got := p.ok("logs", run.ID); got != numbers(12) {
			t.Errorf("the transcript is %q", got)
		}
	}
	text, err := os.ReadFile(p.log.Name())
	p.must(err)
	if !strings.Contains(string(text), `namespace=default`) || !strings.Contains(string(text), "forbidden") {
		t.Error("the server does not say which namespace it may not look at")
	}
}
