//go:build kube

package kube_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman"
)

// What goes wrong beside the agent is told and kept, and is not the agent's.
func TestBesideTheAgent(t *testing.T) {
	p := newPlace(t)
	// containerd loses what is still in the pipe when a container ends.
	const eats = "image: " + shellImage + ", command: [sh, -c, \"echo its words; sleep 1; exec tail /dev/zero\"], resources: {limits: {memory: 32Mi}}"
	for name, c := range map[string]struct {
		spec   string
		reason tallyman.Reason
		of     string // the container
		state  string // why it has ended
		notice bool
	}{
		"sidecar":        {shell("sleep 4") + "podTemplate: {spec: {containers: [{name: side, " + eats + "}]}}", tallyman.Completed, "side", "OOMKilled", true},
		"native-sidecar": {shell("sleep 4") + "podTemplate: {spec: {initContainers: [{name: side, restartPolicy: Always, " + strings.Replace(eats, "sleep 1;", "sleep 3;", 1) + "}]}}", tallyman.Completed, "side", "OOMKilled", true},
		"init":           {shell("true") + "podTemplate: {spec: {initContainers: [{name: first, image: " + shellImage + ", command: [sh, -c, \"echo its words; sleep 1; exit 3\"]}]}}", tallyman.SetupFailed, "first", "Error", false},
		"sidecar-fails":  {shell("sleep 2") + "podTemplate: {spec: {containers: [{name: side, image: " + shellImage + ", command: [sh, -c, \"echo its words; sleep 1; exit 3\"]}]}}", tallyman.Completed, "side", "Error", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := *p
			p.T = t
			p.agent(name, c.spec)
			run := p.ended(p.detach(name).ID)
			p.holds(run, c.reason)
			p.once(run)
			var k tallyman.ContainerState
			p.eventually("what it printed is kept", func() bool { k = p.container(run, c.of); return strings.Contains(k.Output, "its words") })
			if k.Reason != c.state {
				t.Errorf("what is kept of container %s is %+v", c.of, k)
			}
			if text := p.ok("show", run.ID); strings.Contains(text, "sidecar side was killed for memory") != c.notice {
				t.Errorf("it is shown as\n%s", text)
			}
		})
	}
}

// image makes an image and brings it to the node.
func (p *place) image(name, entrypoint string, files ...string) {
	p.Helper()
	tar := filepath.Join(p.dir, "image.tar")
	build := exec.Command("go", append([]string{"run", "./image", tar, name, entrypoint}, files...)...)
	build.Dir = "../cluster"
	if out, err := build.CombinedOutput(); err != nil {
		p.Fatalf("image %s: %v\n%s", name, err, out)
	}
	load := exec.Command("ctr", "-a", filepath.Join(*clusterDir, "ctr/containerd.sock"), "-n", "k8s.io", "images", "import", tar)
	if out, err := load.CombinedOutput(); err != nil {
		p.Fatalf("import %s: %v\n%s", name, err, out)
	}
}

// Programs of another architecture say so.
func TestAnotherArchitecture(t *testing.T) {
	p := newPlace(t)
	other := filepath.Join(p.dir, "other")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", other, "../../cmd/tallyman-runner")
	build.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	const name = "docker.io/local/other-architecture:test"
	p.image(name, `["/bin/other"]`, other+"=/bin/other", other+"="+tallyman.PodRunner)
	spec := "harness: exec\nimage: " + name + "\nretry: {max: 0}\n"
	for name, c := range map[string]struct {
		spec string
		says string
	}{
		"bare":       {spec + "runner: bare\n", "exec format error"},
		"bare-named": {spec + "runner: bare\ncommand: [/bin/other]\n", "exec format error"},
		"image":      {spec + "runner: image\ncommand: [/bin/other]\n", "exec format error"},
		"inject":     {spec + "command: [/bin/other]\n", "/bin/other cannot be executed here: it is built for another machine"},
		"init":       {shell("true") + "podTemplate: {spec: {initContainers: [{name: first, image: " + name + ", command: [/bin/other]}]}}", "init container first cannot be started: exec /bin/other: exec format error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := *p
			p.T = t
			p.agent(name, c.spec)
			run := p.ended(p.detach(name).ID)
			t.Logf("%s: %s", run.Reason, run.Message)
			p.holds(run, tallyman.InvalidSpec, c.says)
			p.once(run)
		})
	}
}
