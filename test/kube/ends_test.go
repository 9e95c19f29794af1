//go:build kube

package kube_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tallyman-dev/tallyman"
)

// TestEnds is the table of ends that need nobody's help: what the agent's
// spec asks for brings them about.
func TestEnds(t *testing.T) {
	p := newPlace(t, "TALLYMAN_PULL_PATIENCE=5s", "TALLYMAN_START_TIMEOUT=20s")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "here", Namespace: p.namespace}, StringData: map[string]string{"KEY": "a-secret-value"}}
	if err := kube.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	small := "podTemplate: {spec: {containers: [{name: agent, resources: {limits: {memory: 64Mi}}}]}}"
	for name, c := range map[string]struct {
		spec   string
		reason tallyman.Reason
		exit   int
		says   []string
	}{
		"completed":          {spec: shell("echo hello"), reason: tallyman.Completed},
		"exit-3":             {spec: shell("echo oh no >&2; exit 3"), reason: tallyman.AgentError, exit: 3, says: []string{"oh no"}},
		"oom":                {spec: shell("tail /dev/zero") + small, reason: tallyman.OOMKilled, exit: 137, says: []string{"memory"}},
		"oom-of-a-child":     {spec: shell("tail /dev/zero; exit 0") + small, reason: tallyman.OOMKilled, exit: 0, says: []string{"memory"}},
		"no-image":           {spec: strings.Replace(shell("true"), shellImage, "127.0.0.1:1/nothing:1", 1), reason: tallyman.ImagePullFailed, says: []string{"127.0.0.1:1/nothing:1", "refused"}},
		"image-name":         {spec: strings.Replace(shell("true"), shellImage, "local/UPPER:1", 1), reason: tallyman.ImagePullFailed, says: []string{"InvalidImageName"}},
		"image-never-pulled": {spec: strings.Replace(shell("true"), shellImage, "local/absent:1", 1) + "podTemplate: {spec: {containers: [{name: agent, imagePullPolicy: Never}]}}", reason: tallyman.ImagePullFailed, says: []string{"ErrImageNeverPull"}},
		"missing-secret":     {spec: shell("true") + "envFrom: [{secretRef: {name: absent}}]", reason: tallyman.ConfigMissing, says: []string{`secret "absent" not found`}},
		"missing-key":        {spec: shell("true") + "envFrom: [{secretRef: {name: here, key: absent}}]", reason: tallyman.ConfigMissing, says: []string{"absent"}},
		"a-secret":           {spec: shell("test \"$KEY\" = a-secret-value") + "envFrom: [{secretRef: {name: here}}]", reason: tallyman.Completed},
		"optional-secret":    {spec: shell("true") + "envFrom: [{secretRef: {name: absent}, optional: true}]", reason: tallyman.Completed},
		"missing-configmap":  {spec: shell("true") + "podTemplate: {spec: {volumes: [{name: c, configMap: {name: absent}}], containers: [{name: agent, volumeMounts: [{name: c, mountPath: /c}]}]}}", reason: tallyman.ConfigMissing, says: []string{`configmap "absent" not found`}},
		"no-node":            {spec: shell("true") + "podTemplate: {spec: {nodeSelector: {no: such}}}", reason: tallyman.Unschedulable, says: []string{"node"}},
		"too-big":            {spec: shell("true") + "podTemplate: {spec: {containers: [{name: agent, resources: {requests: {memory: 900Gi}}}]}}", reason: tallyman.Unschedulable, says: []string{"900Gi", "largest node"}},
		"init-oom":           {spec: shell("true") + "podTemplate: {spec: {initContainers: [{name: first, image: " + shellImage + ", command: [sh, -c, exec tail /dev/zero], resources: {limits: {memory: 32Mi}}}]}}", reason: tallyman.OOMKilled, says: []string{"init container first"}},
		"init-fails":         {spec: shell("true") + "podTemplate: {spec: {initContainers: [{name: first, image: " + shellImage + ", command: [sh, -c, exit 7]}]}}", reason: tallyman.SetupFailed, says: []string{"init container first", "exit code 7"}},
		"no-program":         {spec: "harness: exec\nimage: " + shellImage + "\ncommand: [/no/such/program]", reason: tallyman.SetupFailed, says: []string{"/no/such/program"}},
		"deadline":           {spec: shell("sleep 100") + "limits: {deadline: 2s}", reason: tallyman.DeadlineExceeded},
		"runner-in-image":    {spec: strings.Replace(shell("echo hello"), shellImage, bothImage, 1) + "runner: image", reason: tallyman.Completed},
		"pod-workload":       {spec: shell("echo hello") + "workload: pod", reason: tallyman.Completed},
		"sidecar-never-ends": {spec: shell("echo hello") + "podTemplate: {spec: {containers: [{name: side, image: " + shellImage + ", command: [sleep, \"1000\"]}]}}", reason: tallyman.Completed},
		"read-only-root":     {spec: shell("echo x > /tmp/x && echo x > $HOME/x && echo x > x") + "podTemplate: {spec: {containers: [{name: agent, securityContext: {readOnlyRootFilesystem: true}}]}}", reason: tallyman.Completed},
		"other-user":         {spec: shell("test $(id -u) = 4711 && echo x > x") + "podTemplate: {spec: {securityContext: {runAsUser: 4711}}}", reason: tallyman.Completed},
		"ignores-term":       {spec: shell("trap : TERM; while :; do sleep 1; done") + "limits: {deadline: 1s}", reason: tallyman.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := *p
			p.T = t
			p.agent(name, c.spec)
			run := p.ended(p.detach(name, "a prompt").ID)
			if run.Reason != c.reason {
				t.Errorf("it ended with %s (%s), want %s", run.Reason, run.Message, c.reason)
			}
			if c.exit != 0 && (run.ExitCode == nil || *run.ExitCode != c.exit) && run.Reason != tallyman.OOMKilled {
				t.Errorf("exit code %v, want %d", run.ExitCode, c.exit)
			}
			for _, word := range c.says {
				if !strings.Contains(run.Message, word) {
					t.Errorf("%q is not in %q", word, run.Message)
				}
			}
			p.eventually("its slot is free", func() bool { return len(p.busy(run)) == 0 })
		})
	}
}

// busy are the run's Pods that still run something.
func (p *place) busy(run tallyman.Run) (names []string) {
	for _, pod := range p.pods(run) {
		for _, c := range pod.Status.ContainerStatuses {
			if c.State.Running != nil {
				names = append(names, pod.Name+"/"+c.Name)
			}
		}
	}
	return names
}
