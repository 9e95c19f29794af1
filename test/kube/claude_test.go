//go:build kube

package kube_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tallyman-dev/tallyman"
)

const claudeImage = "docker.io/local/claude:test"

// The real Claude Code works in a Pod, its key comes from a Secret, and a tool
// of its that is killed for memory is a notice where it goes on.
func TestClaudeInAPod(t *testing.T) {
	t.Parallel()
	install := exec.CommandContext(t.Context(), "../e2e/install-claude.sh")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p := newPlace(t)
	p.claudeImage()
	model := p.model()
	p.must(kube.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "model", Namespace: p.namespace}, StringData: map[string]string{"ANTHROPIC_API_KEY": "sk-of-a-secret"}}))
	p.agent("coder", `
harness: claude
image: `+claudeImage+`
retry: {max: 0}
limits: {deadline: 4m}
env:
  - {name: ANTHROPIC_BASE_URL, value: "`+model+`"}
  - {name: CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC, value: "1"}
  - {name: SHELL, value: /bin/bash}
envFrom: [{secretRef: {name: model, key: ANTHROPIC_API_KEY}}]
podTemplate: {spec: {containers: [{name: agent, resources: {requests: {cpu: 10m}, limits: {memory: 1200Mi}}}]}}`)

	run := p.ended(p.detach("coder", `%%tool Bash {"command":"echo from a Pod; env | grep -c sk-of-a-secret"}%% %%say done%%`).ID)
	p.holds(run, tallyman.Completed)
	if run.Result != "done" || run.Usage.Turns == 0 {
		t.Errorf("result %q after %d turns", run.Result, run.Usage.Turns)
	}
	if text := p.ok("logs", run.ID); !strings.Contains(text, "from a Pod") || strings.Contains(text, "sk-of-a-secret") {
		t.Errorf("the transcript is\n%s", text)
	}
	p.once(run)

	run = p.ended(p.detach("coder", `%%tool Bash {"command":"tail /dev/zero >/dev/null; echo the tool went on"}%% %%say recovered%%`).ID)
	p.holds(run, tallyman.Completed)
	if run.Result != "recovered" || run.OOMKills == 0 {
		t.Errorf("result %q, %d kills for memory:\n%s\n%s", run.Result, run.OOMKills, p.ok("events", run.ID), p.ok("show", run.ID))
	}
	if text := p.ok("logs", run.ID); !strings.Contains(text, "memory") {
		t.Errorf("no notice tells of the tool's end:\n%s", text)
	}
	p.once(run)
}

// model starts a model that is scripted by prompts, where Pods reach it.
func (p *place) model() (url string) {
	p.Helper()
	l, err := net.Listen("tcp", "0.0.0.0:0")
	p.must(err)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	p.must(l.Close())
	model := exec.Command(filepath.Join(bin, "tallyman"), "fakemodel", "--listen", "0.0.0.0:"+port)
	model.Stderr = p.log
	p.must(model.Start())
	p.Cleanup(func() {
		_ = model.Process.Kill()
		_ = model.Wait()
	})
	return "http://10.88.0.1:" + port
}

// claudeImage makes an image of Claude Code and what it needs: the libraries
// that it and bash are linked to, and some tools.
func (p *place) claudeImage() {
	p.Helper()
	claude, err := filepath.EvalSymlinks("../../.cache/claude/node_modules/.bin/claude")
	p.must(err)
	claude, err = filepath.Abs(claude)
	p.must(err)
	busybox, err := exec.LookPath("busybox")
	p.must(err)
	passwd := filepath.Join(p.dir, "passwd")
	p.must(os.WriteFile(passwd, []byte("root:x:0:0::/root:/bin/bash\nagent:x:10001:10001::/home/agent:/bin/bash\n"), 0o644))
	files := []string{claude + "=/usr/local/bin/claude", "/bin/bash=/bin/bash", busybox + "=/bin/busybox", passwd + "=/etc/passwd"}
	for _, tool := range []string{"sh", "cat", "echo", "env", "grep", "ls", "tail", "uname", "which"} {
		files = append(files, "link:busybox=/bin/"+tool)
	}
	linked, err := exec.Command("ldd", claude, "/bin/bash").Output()
	p.must(err)
	for word := range strings.FieldsSeq(string(linked)) {
		file := word + "=" + word
		if strings.HasPrefix(word, "/lib") && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	p.image(claudeImage, `["/usr/local/bin/claude"]`, files...)
}
