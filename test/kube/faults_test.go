//go:build kube

package kube_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
)

// waits waits until a run waits for a reason, in words.
func (p *place) waits(run tallyman.Run, reason tallyman.WaitReason, words string) {
	p.Helper()
	var last *tallyman.Waiting
	p.eventually(fmt.Sprintf("%s waits: %s %q", run.Name, reason, words), func() bool {
		now := p.show(run.ID)
		if now.State.Terminal() {
			p.Fatalf("it has ended with %s (%s)", now.Reason, now.Message)
		}
		last = now.Waiting
		return last != nil && last.Reason == reason && strings.Contains(last.Detail, words)
	})
}

// once checks that at most n Pods were made for each attempt, which no two
// processes of an agent outlive.
func (p *place) once(run tallyman.Run) {
	p.Helper()
	if pods := p.pods(run); len(pods) > 1 {
		p.Errorf("%d Pods were made for run %s", len(pods), run.Name)
	}
	p.eventually("nothing of it runs", func() bool { return len(p.busy(run)) == 0 })
}

// An object that has the name of a run's Job, and is not its own, is left as
// it is.
func TestAForeignJobHasTheName(t *testing.T) {
	p := newPlace(t, "TALLYMAN_MAX_RUNNING=1")
	p.agent("first", shell("sleep 5"))
	p.agent("second", shell("echo hello"))
	first := p.detach("first")
	p.running(first)
	run := p.detach("second")
	foreign := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: run.Name, Namespace: p.namespace, Labels: map[string]string{"of": "somebody"}},
		Spec: batchv1.JobSpec{Suspend: new(true), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "x", Image: shellImage}},
		}}},
	}
	p.must(kube.Create(t.Context(), foreign))
	p.holds(p.ended(run.ID), tallyman.BackendError, run.Name, "another object")
	p.holds(p.ended(first.ID), tallyman.Completed)
	var now batchv1.Job
	p.must(kube.Get(t.Context(), client.ObjectKeyFromObject(foreign), &now))
	if now.UID != foreign.UID || now.Generation != foreign.Generation || now.DeletionTimestamp != nil {
		t.Errorf("the foreign Job has changed: %+v", now.ObjectMeta)
	}
	if pods := p.pods(run); len(pods) > 0 {
		t.Errorf("%d Pods were made", len(pods))
	}
}

// Runs of one agent at the same time are different runs.
func TestRunsOfTheSameSecond(t *testing.T) {
	p := newPlace(t)
	p.agent("same", shell("echo $TALLYMAN_RUN_ID"))
	runs := make([]tallyman.Run, 4)
	var all sync.WaitGroup
	for i := range runs {
		all.Go(func() { runs[i] = p.detach("same") })
	}
	all.Wait()
	seen := map[string]bool{}
	for _, run := range runs {
		p.holds(p.ended(run.ID), tallyman.Completed)
		p.once(run)
		seen[run.Name] = true
	}
	if len(seen) != len(runs) {
		t.Errorf("%d runs have %d names", len(runs), len(seen))
	}
}

// Names and labels that no cluster would take become ones that it takes; the
// annotation has them as they were.
func TestNamesAndLabels(t *testing.T) {
	p := newPlace(t)
	long := strings.Repeat("Long/", 60)
	agent := strings.Repeat("a-", 26) + "z" // as long as may be
	p.agent(agent, shell("true"))
	run := p.detach(agent, "--label", "team="+long, "--label", "Ünï/code 🎉=🎉/A B", "--label", "kubernetes.io/x=y", "--label", strings.Repeat("k", 250)+"=v",
		"--label", "empty=", "--label", "skill=Skill/of ours 🎉")
	p.holds(p.ended(run.ID), tallyman.Completed)
	pods := p.pods(run)
	if len(pods) != 1 {
		t.Fatalf("%d Pods were made", len(pods))
	}
	pod := pods[0]
	for _, words := range []string{long, "Ünï/code 🎉", "kubernetes.io/x"} {
		if !strings.Contains(pod.Annotations["tallyman.dev/labels"], words) {
			t.Errorf("the annotation lacks %q: %s", words, pod.Annotations["tallyman.dev/labels"])
		}
	}
	for _, key := range []string{"team", "tallyman.dev/skill", "tallyman.dev/agent"} {
		if v := pod.Labels[key]; v == "" || len(v) > 63 {
			t.Errorf("label %s is %q", key, v)
		}
	}
	if v, ok := pod.Labels["kubernetes.io/x"]; ok {
		t.Errorf("label kubernetes.io/x is %q", v)
	}
	p.once(run)
}

// A prompt that no object of a cluster could hold arrives whole.
func TestALargePrompt(t *testing.T) {
	p := newPlace(t)
	var text strings.Builder
	for i := 0; text.Len() < 1<<20; i++ {
		fmt.Fprintf(&text, "line %d: it's \"quoted\", $HOME and ünï\n", i)
	}
	file := filepath.Join(p.dir, "prompt")
	p.must(os.WriteFile(file, []byte(text.String()), 0o644))
	p.agent("digest", shell("busybox sha256sum"))
	run := p.detach("digest", "--file", file)
	p.holds(p.ended(run.ID), tallyman.Completed)
	if got, want := p.ok("logs", run.ID), fmt.Sprintf("%x  -\n", sha256.Sum256([]byte(text.String()))); got != want {
		t.Errorf("its digest is %q, want %q", got, want)
	}
	p.once(run)
}

// A server that no Pod reaches is said in words, and once.
func TestAServerThatIsNotReached(t *testing.T) {
	p := newPlace(t)
	p.stop(9)
	p.args = []string{"--advertise", "https://10.88.0.1:1"}
	p.up()
	p.agent("cut-off", strings.Replace(shell("echo hello"), "retry: {max: 0}\n", "", 1))
	begin := time.Now()
	run := p.detach("cut-off")
	p.holds(p.ended(run.ID), tallyman.ServerUnreachable, "10.88.0.1:1", "connection refused")
	t.Logf("it took %v", time.Since(begin).Round(time.Second))
	if out := p.container(run, "agent").Output; !strings.Contains(out, "10.88.0.1:1") {
		t.Errorf("of what its runner printed is kept %q", out)
	}
	p.once(run)
}
