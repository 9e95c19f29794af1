package job

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tallyman-dev/tallyman"
)

var update = flag.Bool("update", false, "write the golden files")

var testCluster = Cluster{
	RunnerImage: "registry.example/tallyman/runner", Advertise: "https://tallyman.agents.svc:7333",
	CA: "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", DefaultTag: "1.4.0",
	Pull: 3 * time.Minute, Setup: 10 * time.Minute, Drain: 10 * time.Minute, Keep: 7 * 24 * time.Hour,
}

func work(change func(*Work)) Work {
	deadline := tallyman.Duration(30 * time.Minute)
	w := Work{
		Run: tallyman.Run{
			ID: "01KBCB7TMKFCGE0000000000AB", Name: "reviewer-0000000000ab", Agent: "reviewer", Namespace: "default",
			Labels: map[string]string{"team": "search", "issue": "PROJ/1 🚀", "skill": "bug-fix"},
		},
		Attempt: 1, Namespace: "agents",
		Spec: tallyman.AgentSpec{
			Harness: "claude", Image: "registry.example/agents/reviewer",
			Limits: tallyman.Limits{Deadline: &deadline},
		},
	}
	if change != nil {
		change(&w)
	}
	return w
}

// jobs are attempts whose objects are held by golden files.
var jobs = map[string]func(*Work, *Cluster){
	"inject": func(*Work, *Cluster) {},
	"image": func(w *Work, _ *Cluster) {
		w.Spec.Runner = tallyman.RunnerImage
		w.Spec.Harness, w.Spec.Command = "exec", []string{"make", "test"}
		w.Attempt = 2
	},
	"bare": func(w *Work, _ *Cluster) {
		w.Spec.Runner, w.Spec.Harness = tallyman.RunnerBare, "exec"
		w.Spec.Env = []tallyman.EnvVar{{Name: "TASK_ID", Value: "42"}, {Name: "PRICE", Value: "$(HOME) $5"}}
		w.Spec.EnvFrom = []tallyman.EnvSource{{SecretRef: &tallyman.SecretRef{Name: "task-secrets"}}}
	},
	"secrets": func(w *Work, _ *Cluster) {
		w.Spec.EnvFrom = []tallyman.EnvSource{
			{SecretRef: &tallyman.SecretRef{Name: "anthropic", Key: "ANTHROPIC_API_KEY"}},
			{SecretRef: &tallyman.SecretRef{Name: "jira"}, Optional: true},
			{SecretRef: &tallyman.SecretRef{Name: "public"}, Mask: new(false)},
		}
	},
	"template": func(w *Work, c *Cluster) {
		c.CA, c.CAConfigMap, c.Account, c.Name = "", "internal-ca", "agents", "west"
		w.Spec.PodTemplate = json.RawMessage(`{
			"metadata": {"labels": {"cost-center": "42"}, "annotations": {"example.com/note": "x"}},
			"spec": {
				"serviceAccountName": "reviewer", "priorityClassName": "low", "nodeSelector": {"pool": "agents"},
				"tolerations": [{"key": "agents", "operator": "Exists"}],
				"securityContext": {"runAsUser": 1000, "fsGroup": 1000},
				"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "agent-data"}}],
				"initContainers": [{"name": "proxy", "image": "proxy:3", "restartPolicy": "Always"}],
				"containers": [
					{"name": "agent", "imagePullPolicy": "Always", "env": [{"name": "A", "value": "b"}],
						"resources": {"limits": {"memory": "128Mi"}, "requests": {"cpu": "4"}},
						"volumeMounts": [{"name": "data", "mountPath": "/data"}],
						"securityContext": {"readOnlyRootFilesystem": true}},
					{"name": "db", "image": "registry.example/postgres:17"}
				]
			}}`)
	},
	"openshift": func(w *Work, c *Cluster) {
		c.OpenShift = true
		w.Spec.Limits.Deadline = new(tallyman.Duration)
		w.Run.Labels = nil
	},
}

func TestJobsAreGolden(t *testing.T) {
	for name, change := range jobs {
		for _, workload := range tallyman.Workloads {
			t.Run(name+"/"+string(workload), func(t *testing.T) {
				c, w := testCluster, work(nil)
				change(&w, &c)
				object := any(nil)
				var err error
				if workload == tallyman.WorkloadJob {
					object, err = c.Job(w)
				} else {
					object, err = c.Pod(w)
				}
				if err != nil {
					t.Fatal(err)
				}
				golden(t, name+"-"+string(workload)+".yaml", object)
			})
		}
	}
}

func golden(t *testing.T, name string, object any) {
	t.Helper()
	got, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; -update writes it):\n%s", path, diff)
	}
}

// A Job's Pod and the Pod without a Job are the same.
func TestAPodIsAJobsPod(t *testing.T) {
	for name, change := range jobs {
		c, w := testCluster, work(nil)
		change(&w, &c)
		job, err := c.Job(w)
		if err != nil {
			t.Fatal(err)
		}
		pod, err := c.Pod(w)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(job.Spec.Template.Spec, pod.Spec); diff != "" {
			t.Errorf("%s (-job +pod):\n%s", name, diff)
		}
		if diff := cmp.Diff(job.Spec.Template.Labels, pod.Labels); diff != "" {
			t.Errorf("%s (-job +pod):\n%s", name, diff)
		}
	}
}

func TestNoPromptIsInAnObject(t *testing.T) {
	job, err := testCluster.Job(work(func(w *Work) {
		w.Spec.Env = []tallyman.EnvVar{{Name: "TOKEN", Value: "a-word-that-is-secret"}}
	}))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := json.Marshal(job); err != nil || strings.Contains(string(b), "a-word-that-is-secret") {
		t.Errorf("what the runner is told over its channel is in the Pod too: %s %v", b, err)
	}
}

func TestImages(t *testing.T) {
	for image, want := range map[string]string{
		"":                                  "",
		"reviewer":                          "reviewer:1.4.0",
		"reviewer:2":                        "reviewer:2",
		"localhost:5000/reviewer":           "localhost:5000/reviewer:1.4.0",
		"localhost:5000/reviewer:2":         "localhost:5000/reviewer:2",
		"registry.example/a@sha256:abcdef":  "registry.example/a@sha256:abcdef",
		"registry.example/a:1@sha256:abcde": "registry.example/a:1@sha256:abcde",
	} {
		if got := testCluster.tagged(image); got != want {
			t.Errorf("tagged(%q) = %q, want %q", image, got, want)
		}
	}
	if got := (Cluster{}).tagged("reviewer"); got != "reviewer" {
		t.Errorf("without a default tag: %q", got)
	}
}

// A script needs nothing but the runner, so that demo runs on any server.
func TestAScriptRunsInTheRunnersImage(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*tallyman.AgentSpec)
		want   string // "": refused
	}{
		"of the runner": {func(*tallyman.AgentSpec) {}, "registry.example/tallyman/runner:1.4.0"},
		"in the image":  {func(s *tallyman.AgentSpec) { s.Runner = tallyman.RunnerImage }, "registry.example/tallyman/runner:1.4.0"},
		"its own":       {func(s *tallyman.AgentSpec) { s.Image = "busybox:1" }, "busybox:1"},
		"from the template": {func(s *tallyman.AgentSpec) {
			s.PodTemplate = json.RawMessage(`{"spec": {"containers": [{"name": "agent", "image": "busybox:2"}]}}`)
		}, "busybox:2"},
		"bare": {func(s *tallyman.AgentSpec) { s.Runner = tallyman.RunnerBare }, ""},
	} {
		w := work(func(w *Work) {
			w.Spec.Harness, w.Spec.Image = "script", ""
			c.change(&w.Spec)
		})
		j, err := testCluster.Job(w)
		if c.want == "" && err == nil || c.want != "" && err != nil {
			t.Errorf("%s: %v", name, err)
		} else if err == nil && j.Spec.Template.Spec.Containers[0].Image != c.want {
			t.Errorf("%s: it runs in %s, want %s", name, j.Spec.Template.Spec.Containers[0].Image, c.want)
		}
	}
}

func TestASpecThatIsRefused(t *testing.T) {
	template := func(pod string) func(*Work) {
		return func(w *Work) { w.Spec.PodTemplate = json.RawMessage(`{"spec": ` + pod + `}`) }
	}
	agent := func(container string) func(*Work) {
		return template(`{"containers": [{"name": "agent", ` + container + `}]}`)
	}
	for _, c := range []struct {
		name   string
		change func(*Work)
		words  []string // of the error; the first is the field
	}{
		{"no image", func(w *Work) { w.Spec.Image = "" }, []string{"spec.image: is missing"}},
		{"no command", func(w *Work) { w.Spec.Harness = "exec" }, []string{"spec.command: is missing", "inject", "bare"}},
		{"unknown field", template(`{"hostNetwrk": true}`), []string{`spec.podTemplate: `, `unknown field "hostNetwrk"`}},
		{"wrong type", template(`{"hostNetwork": "yes"}`), []string{`spec.podTemplate: `, "hostNetwork"}},
		{"our label", func(w *Work) {
			w.Spec.PodTemplate = json.RawMessage(`{"metadata": {"labels": {"tallyman.dev/run": "x"}}}`)
		}, []string{"spec.podTemplate.metadata.labels: tallyman.dev/run"}},
		{"our annotation", func(w *Work) {
			w.Spec.PodTemplate = json.RawMessage(`{"metadata": {"annotations": {"tallyman.dev/server-ca": "x"}}}`)
		}, []string{"spec.podTemplate.metadata.annotations: tallyman.dev/server-ca"}},
		{"the server's labels", func(w *Work) {
			w.Spec.PodTemplate = json.RawMessage(`{"metadata": {"labels": {"app.kubernetes.io/component": "server"}}}`)
		}, []string{"spec.podTemplate.metadata.labels: app.kubernetes.io/component"}},
		{"a Job's label", func(w *Work) {
			w.Spec.PodTemplate = json.RawMessage(`{"metadata": {"labels": {"batch.kubernetes.io/job-name": "x"}}}`)
		}, []string{"spec.podTemplate.metadata.labels: batch.kubernetes.io/job-name"}},
		{"a Job's old label", func(w *Work) {
			w.Spec.PodTemplate = json.RawMessage(`{"metadata": {"labels": {"job-name": "x"}}}`)
		}, []string{"spec.podTemplate.metadata.labels: job-name"}},
		{"over everything", agent(`"volumeMounts": [{"name": "d", "mountPath": "/"}]`), []string{"spec.podTemplate.spec.containers[agent].volumeMounts: / would hide"}},
		{"no AppArmor by annotation", func(w *Work) {
			w.Spec.PodTemplate = json.RawMessage(`{"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/agent": "unconfined"}}}`)
		}, []string{"spec.podTemplate.metadata.annotations: container.apparmor"}},
		{"a finalizer", func(w *Work) {
			w.Spec.PodTemplate = json.RawMessage(`{"metadata": {"finalizers": ["example.com/never"]}}`)
		}, []string{"spec.podTemplate.metadata: ", "finalizers"}},
		{"a name", func(w *Work) { w.Spec.PodTemplate = json.RawMessage(`{"metadata": {"name": "mine"}}`) }, []string{"spec.podTemplate.metadata: the name"}},
		{"a namespace", func(w *Work) { w.Spec.PodTemplate = json.RawMessage(`{"metadata": {"namespace": "theirs"}}`) }, []string{"spec.podTemplate.metadata: the name, the namespace"}},
		{"another image", agent(`"image": "another:1"`), []string{"spec.podTemplate.spec.containers[agent].image: ", "spec.image"}},
		{"our variable", agent(`"env": [{"name": "TALLYMAN_PROMPT", "value": "x"}]`), []string{"spec.podTemplate.spec.containers[agent].env: TALLYMAN_PROMPT"}},
		{"a variable of a Secret", func(w *Work) {
			agent(`"env": [{"name": "KEY", "value": "x"}]`)(w)
			w.Spec.EnvFrom = []tallyman.EnvSource{{SecretRef: &tallyman.SecretRef{Name: "s", Key: "KEY"}}}
		}, []string{"spec.podTemplate.spec.containers[agent].env: KEY", "spec.envFrom"}},
		{"a folder to work in", agent(`"workingDir": "/srv"`), []string{"spec.podTemplate.spec.containers[agent].workingDir: ", "spec.workspace.path"}},
		{"node's network", template(`{"hostNetwork": true}`), []string{"spec.podTemplate.spec.hostNetwork: "}},
		{"node's processes", template(`{"hostPID": true}`), []string{"spec.podTemplate.spec.hostPID: "}},
		{"node's memory", template(`{"hostIPC": true}`), []string{"spec.podTemplate.spec.hostIPC: "}},
		{"shared processes", template(`{"shareProcessNamespace": true}`), []string{"spec.podTemplate.spec.shareProcessNamespace: "}},
		{"a token by itself", template(`{"automountServiceAccountToken": true}`), []string{"spec.podTemplate.spec.automountServiceAccountToken: "}},
		{"restarts", template(`{"restartPolicy": "OnFailure"}`), []string{"spec.podTemplate.spec.restartPolicy: OnFailure", "spec.retry"}},
		{"deadline", template(`{"activeDeadlineSeconds": 5}`), []string{"spec.podTemplate.spec.activeDeadlineSeconds: ", "limits.deadline"}},
		{"grace", template(`{"terminationGracePeriodSeconds": 5}`), []string{"spec.podTemplate.spec.terminationGracePeriodSeconds: "}},
		{"our volume", template(`{"volumes": [{"name": "tallyman-state", "emptyDir": {}}]}`), []string{"spec.podTemplate.spec.volumes[tallyman-state]: "}},
		{"node's files", template(`{"volumes": [{"name": "d", "hostPath": {"path": "/"}}]}`), []string{"spec.podTemplate.spec.volumes[d].hostPath: "}},
		{"root", template(`{"securityContext": {"runAsUser": 0}}`), []string{"spec.podTemplate.spec.securityContext.runAsUser: "}},
		{"may be root", template(`{"securityContext": {"runAsNonRoot": false}}`), []string{"spec.podTemplate.spec.securityContext.runAsNonRoot: "}},
		{"unconfined", template(`{"securityContext": {"seccompProfile": {"type": "Unconfined"}}}`), []string{"spec.podTemplate.spec.securityContext.seccompProfile: "}},
		{"our init container", template(`{"initContainers": [{"name": "tallyman-init"}]}`), []string{"spec.podTemplate.spec.initContainers[tallyman-init]: "}},
		{"sysctls", template(`{"securityContext": {"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "0"}]}}`), []string{"spec.podTemplate.spec.securityContext.sysctls: "}},
		{"another SELinux type", template(`{"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}`), []string{"spec.podTemplate.spec.securityContext.seLinuxOptions: "}},
		{"no AppArmor", template(`{"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}`), []string{"spec.podTemplate.spec.securityContext.appArmorProfile: "}},
		{"no AppArmor there", agent(`"securityContext": {"appArmorProfile": {"type": "Unconfined"}}`), []string{"spec.podTemplate.spec.containers[agent].securityContext.appArmorProfile: "}},
		{"run again and again", agent(`"restartPolicy": "Always"`), []string{"spec.podTemplate.spec.containers[agent].restartPolicy: "}},
		{"run again by rule", agent(`"restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]`), []string{"spec.podTemplate.spec.containers[agent].restartPolicy: "}},
		{"an init container again", template(`{"initContainers": [{"name": "x", "restartPolicy": "OnFailure"}]}`), []string{"spec.podTemplate.spec.initContainers[x].restartPolicy: "}},
		{"the runner's place, written otherwise", agent(`"volumeMounts": [{"name": "d", "mountPath": "//tallyman/."}]`), []string{"spec.podTemplate.spec.containers[agent].volumeMounts: "}},
		{"the workspace, written otherwise", agent(`"volumeMounts": [{"name": "d", "mountPath": "/workspace/"}]`), []string{"spec.podTemplate.spec.containers[agent].volumeMounts: "}},
		{"the runner's volume", template(`{"initContainers": [{"name": "x", "volumeMounts": [{"name": "tallyman-runner", "mountPath": "/x"}]}]}`), []string{"spec.podTemplate.spec.initContainers[x].volumeMounts: "}},
		{"privileged", agent(`"securityContext": {"privileged": true}`), []string{"spec.podTemplate.spec.containers[agent].securityContext.privileged: "}},
		{"escalation", agent(`"securityContext": {"allowPrivilegeEscalation": true}`), []string{"spec.podTemplate.spec.containers[agent].securityContext.allowPrivilegeEscalation: "}},
		{"node's port", agent(`"ports": [{"containerPort": 80, "hostPort": 80}]`), []string{"spec.podTemplate.spec.containers[agent].ports: "}},
		{"a sidecar at the node's address", template(`{"containers": [{"name": "db", "ports": [{"containerPort": 80, "hostIP": "10.0.0.1"}]}]}`), []string{"spec.podTemplate.spec.containers[db].ports: "}},
		{"the runner's own token", template(`{"volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"audience": "tallyman-runner", "path": "t"}}]}}]}`), []string{"spec.podTemplate.spec.volumes[t].projected: "}},
		{"a hook", agent(`"lifecycle": {"preStop": {"sleep": {"seconds": 60}}}`), []string{"spec.podTemplate.spec.containers[agent].lifecycle: "}},
		{"a liveness probe", agent(`"livenessProbe": {"exec": {"command": ["true"]}}`), []string{"spec.podTemplate.spec.containers[agent].livenessProbe", "limits.idle"}},
		{"a startup probe", agent(`"startupProbe": {"exec": {"command": ["true"]}}`), []string{"spec.podTemplate.spec.containers[agent].livenessProbe and startupProbe: "}},
		{"the log as last word", agent(`"terminationMessagePolicy": "FallbackToLogsOnError"`), []string{"spec.podTemplate.spec.containers[agent].terminationMessagePolicy: "}},
		{"the runner's place, without a slash", agent(`"volumeMounts": [{"name": "d", "mountPath": "tallyman"}]`), []string{"spec.podTemplate.spec.containers[agent].volumeMounts: "}},
		{"the workspace, without a slash", agent(`"volumeMounts": [{"name": "d", "mountPath": "workspace"}]`), []string{"spec.podTemplate.spec.containers[agent].volumeMounts: "}},
		{"over the image's runner", agent(`"volumeMounts": [{"name": "d", "mountPath": "/tallyman-runner", "subPath": "x"}]`), []string{"spec.podTemplate.spec.containers[agent].volumeMounts: /tallyman-runner"}},
		{"two commands of a bare image", func(w *Work) {
			agent(`"command": ["x"]`)(w)
			w.Spec.Runner, w.Spec.Harness, w.Spec.Command = tallyman.RunnerBare, "exec", []string{"y"}
		}, []string{"spec.podTemplate.spec.containers[agent].command: spec.command is another"}},
		{"what only a runner does", func(w *Work) {
			w.Spec.Runner, w.Spec.Harness, w.Spec.Model, w.Spec.PromptFile = tallyman.RunnerBare, "exec", "opus", true
			w.Spec.Settings = map[string]json.RawMessage{"x": json.RawMessage("1")}
		}, []string{"spec.runner: bare has no runner", "model", "promptFile", "settings"}},
		{"capability", agent(`"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}`), []string{"spec.podTemplate.spec.containers[agent].securityContext.capabilities.add: ", "NET_ADMIN"}},
		{"root in the container", agent(`"securityContext": {"runAsUser": 0}`), []string{"spec.podTemplate.spec.containers[agent].securityContext.runAsUser: "}},
		{"bare proc", agent(`"securityContext": {"procMount": "Unmasked"}`), []string{"spec.podTemplate.spec.containers[agent].securityContext.procMount: "}},
		{"unconfined container", agent(`"securityContext": {"seccompProfile": {"type": "Unconfined"}}`), []string{"spec.podTemplate.spec.containers[agent].securityContext.seccompProfile: "}},
		{"a sidecar's root", template(`{"containers": [{"name": "db", "securityContext": {"runAsUser": 0}}]}`), []string{"spec.podTemplate.spec.containers[db].securityContext.runAsUser: "}},
		{"command", agent(`"command": ["x"]`), []string{"spec.podTemplate.spec.containers[agent].command: ", "spec.command"}},
		{"args", agent(`"args": ["x"]`), []string{"spec.podTemplate.spec.containers[agent].args: ", "spec.command"}},
		{"last word", agent(`"terminationMessagePath": "/x"`), []string{"spec.podTemplate.spec.containers[agent].terminationMessagePath: "}},
		{"mount over the runner", agent(`"volumeMounts": [{"name": "x", "mountPath": "/tallyman/x"}]`), []string{"spec.podTemplate.spec.containers[agent].volumeMounts: /tallyman/x"}},
		{"mount over the workspace", agent(`"volumeMounts": [{"name": "x", "mountPath": "/workspace"}]`), []string{"spec.podTemplate.spec.containers[agent].volumeMounts: /workspace", "spec.workspace"}},
		{"the runner's token in a sidecar", template(`{"containers": [{"name": "db", "volumeMounts": [{"name": "tallyman-channel", "mountPath": "/t"}]}]}`), []string{"spec.podTemplate.spec.containers[db].volumeMounts: the volume tallyman-channel"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, make := range []func(Work) error{
				func(w Work) error { _, err := testCluster.Job(w); return err },
				func(w Work) error { _, err := testCluster.Pod(w); return err },
			} {
				err := make(work(c.change))
				var e *tallyman.Error
				if !errors.As(err, &e) || e.Code != tallyman.Invalid || e.Reason != tallyman.InvalidSpec || !strings.HasPrefix(e.Message, c.words[0]) {
					t.Fatalf("error %v (%+v), want InvalidSpec beginning with %q", err, e, c.words[0])
				}
				for _, word := range c.words[1:] {
					if !strings.Contains(e.Message, word) {
						t.Errorf("error %q does not say %q", e.Message, word)
					}
				}
			}
		})
	}
	noImage := testCluster
	noImage.RunnerImage = ""
	if _, err := noImage.Job(work(nil)); err == nil || !strings.HasPrefix(err.Error(), "spec.runner: inject needs the image") {
		t.Errorf("without a runner image: %v", err)
	}
	nowhere := testCluster
	nowhere.Advertise = ""
	if _, err := nowhere.Job(work(nil)); err == nil || !strings.Contains(err.Error(), "start it with --advertise") {
		t.Errorf("without a URL: %v", err)
	}
	bare := func(w *Work) {
		w.Spec.Runner, w.Spec.Harness = tallyman.RunnerBare, "exec"
		agent(`"command": ["x"], "args": ["y"]`)(w)
	}
	if _, err := nowhere.Job(work(bare)); err != nil {
		t.Errorf("a bare image may have its own command, and needs no URL: %v", err)
	}
}

func TestEveryContainerIsHardened(t *testing.T) {
	c, w := testCluster, work(nil)
	jobs["template"](&w, &c)
	pod, err := c.Pod(w)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(pod.Spec.Containers) + len(pod.Spec.InitContainers); n != 4 {
		t.Fatalf("%d containers, want 4", n)
	}
	for _, k := range append(pod.Spec.Containers, pod.Spec.InitContainers...) {
		s := k.SecurityContext
		if s == nil || *s.AllowPrivilegeEscalation || !cmp.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("container %s: security context %v", k.Name, s)
		}
		for name := range standard.Limits {
			most, least := k.Resources.Limits[name], k.Resources.Requests[name]
			if most.IsZero() || least.IsZero() || least.Cmp(most) > 0 {
				t.Errorf("container %s: requests %s of %s, at most %s", k.Name, &least, name, &most)
			}
		}
	}
}
