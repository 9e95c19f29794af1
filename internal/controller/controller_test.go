package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/api/v1alpha1"
	"github.com/tallyman-dev/tallyman/internal/catalog"
)

// stage is a controller at a cluster of memory.
type stage struct {
	*testing.T
	client  *fake.FakeDynamicClient
	catalog *catalog.Catalog
	changed chan struct{}

	mu     sync.Mutex
	counts map[string]map[tallyman.State]int64
}

func (s *stage) AgentCounts(context.Context, string) (map[string]map[tallyman.State]int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts, nil
}

func newStage(t *testing.T, objects ...string) *stage {
	t.Helper()
	s := prepareStage(t, objects...)
	t.Cleanup(s.start(slog.New(slog.DiscardHandler)))
	return s
}

func prepareStage(t *testing.T, objects ...string) *stage {
	t.Helper()
	s := &stage{T: t, catalog: catalog.New(nil, nil, nil), changed: make(chan struct{}, 1)}
	var all []runtime.Object
	for _, text := range objects {
		all = append(all, object(t, text))
	}
	s.client = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		kinds[0].resource: "AgentList", kinds[1].resource: "ConfigList",
	}, all...)
	return s
}

// start runs a controller until the function that it returns is called.
func (s *stage) start(log *slog.Logger) (stop func()) {
	s.Helper()
	c, err := newController(Options{
		Namespaces: []string{"team", "team"}, Catalog: s.catalog, Runs: s, Changed: s.changed, Log: log,
		Check: func(_ context.Context, spec tallyman.AgentSpec) error {
			if strings.Contains(string(spec.PodTemplate), "hostNetwork") {
				return tallyman.Errorf(tallyman.Invalid, "spec.podTemplate.spec.hostNetwork: no")
			}
			return nil
		},
	}, s.client)
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			s.Error(err)
		}
	}
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	b, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = u.UnmarshalJSON(b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func agent(name, spec string) string {
	return "{apiVersion: tallyman.dev/v1alpha1, kind: Agent, metadata: {namespace: team, generation: 1, name: " + name + "}, spec: " + spec + "}"
}

func (s *stage) eventually(what string, ok func() bool) {
	s.Helper()
	for until := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			s.Fatalf("it does not come true that %s", what)
		}
	}
}

func (s *stage) status(name string) (v1alpha1.AgentStatus, metav1.Condition) {
	s.Helper()
	u, err := s.client.Resource(kinds[0].resource).Namespace("team").Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	st := statusOf(u)
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.Ready); c != nil {
		return st, *c
	}
	return st, metav1.Condition{}
}

// writes counts the statuses that were written.
func (s *stage) writes() (n int) {
	for _, a := range s.client.Actions() {
		if a.GetSubresource() == "status" {
			n++
		}
	}
	return n
}

const good = "{harness: exec, image: x, command: [work]}"

// What is wrong with one resource is told in that one's status, by the field,
// and by the catalog; the others are agents all the same.
func TestABadOneBesideGoodOnes(t *testing.T) {
	bad := map[string]struct{ spec, says string }{
		"unknown":   {"{harness: exec, imagee: x}", `imagee`},
		"type":      {"{harness: exec, limits: {maxTurns: many}}", "spec.limits.maxTurns"},
		"duration":  {"{harness: exec, limits: {deadline: soon}}", "spec.limits.deadline"},
		"harness":   {"{harness: exce}", `did you mean "exec"?`},
		"no-object": {"[1, 2]", "spec"},
		"nothing":   {"null", "spec.harness"},
		"twice":     {"{harness: exec, env: [{name: A, value: b}, {name: A, value: c}]}", "spec.env[1].name"},
		"ours":      {"{harness: exec, env: [{name: TALLYMAN_X, value: x}]}", "spec.env[0].name"},
		"host":      {"{harness: exec, envFrom: [{host: [DATABASE_PASSWORD]}]}", "spec.envFrom[0].host"},
		"file":      {"{harness: exec, envFrom: [{file: /etc/shadow}]}", "spec.envFrom[0].file"},
		"backend":   {"{harness: exec, podTemplate: {spec: {hostNetwork: true}}}", "spec.podTemplate.spec.hostNetwork"},
	}
	for i := range 4 { // a character that stands across the end of the message
		bad[fmt.Sprint("long-", i)] = struct{ spec, says string }{"{harness: " + strings.Repeat("x", i) + strings.Repeat("😀", maxMessage/4) + "}", "spec.harness"}
	}
	objects := []string{agent("a-good", good), agent("z-good", good)}
	for name, b := range bad {
		objects = append(objects, agent(name, b.spec))
	}
	s := newStage(t, objects...)
	for name, b := range bad {
		var c metav1.Condition
		s.eventually(name+" has a status", func() bool { _, c = s.status(name); return c.Status != "" })
		if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonInvalid || !strings.Contains(c.Message, b.says) || c.ObservedGeneration != 1 {
			t.Errorf("%s: %+v does not say %q", name, c, b.says)
		}
		if !utf8.ValidString(c.Message) || len(c.Message) > maxMessage {
			t.Errorf("%s: %d bytes that no status can hold", name, len(c.Message))
		}
		if _, err := s.catalog.Get(t.Context(), "team", name); err == nil || !strings.Contains(err.Error(), b.says) {
			t.Errorf("%s can be run: %v", name, err)
		}
		if strings.Contains(c.Message, "resource:") {
			t.Errorf("%s: its own name is no news: %s", name, c.Message)
		}
		_, err := s.catalog.Get(t.Context(), "team", name)
		if name != "backend" && (err == nil || !strings.Contains(err.Error(), b.says) || strings.Contains(err.Error(), "unknown agent")) {
			t.Errorf("%s: the catalog says %v", name, err)
		}
	}
	for _, name := range []string{"a-good", "z-good"} {
		s.eventually(name+" is ready", func() bool { _, c := s.status(name); return c.Reason == v1alpha1.ReasonValid })
		a, err := s.catalog.Get(t.Context(), "team", name)
		if err != nil || a.Origin != "resource:tallyman.dev/Agent/team/"+name || a.Spec.Image != "x" {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
}

// Counts are written when they change, and nothing is written when nothing has.
func TestCountsAreWrittenOnce(t *testing.T) {
	synctest.Test(t, countsAreWrittenOnce)
}

func countsAreWrittenOnce(t *testing.T) {
	s := newStage(t, agent("one", good), agent("two", good))
	s.eventually("both are ready", func() bool {
		_, one := s.status("one")
		_, two := s.status("two")
		return one.Reason == v1alpha1.ReasonValid && two.Reason == v1alpha1.ReasonValid
	})
	before := s.writes()
	s.mu.Lock()
	s.counts = map[string]map[tallyman.State]int64{"one": {tallyman.Queued: 5, tallyman.Starting: 1, tallyman.Running: 2, tallyman.Succeeded: 3, tallyman.Failed: 4, tallyman.Stopped: 6}}
	s.mu.Unlock()
	s.changed <- struct{}{}
	want := v1alpha1.AgentStatus{ObservedGeneration: 1, Queued: 5, Running: 3, Succeeded: 3, Failed: 4, Stopped: 6}
	s.eventually("one has its counts", func() bool {
		st, _ := s.status("one")
		want.Conditions = st.Conditions
		return same(st, want)
	})
	s.changed <- struct{}{}
	time.Sleep(10 * calm)
	// Something else about it changes: an event, and nothing to write.
	u, err := s.client.Resource(kinds[0].resource).Namespace("team").Get(t.Context(), "two", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	u.SetLabels(map[string]string{"some": "label"})
	u.SetResourceVersion("another")
	if _, err := s.client.Resource(kinds[0].resource).Namespace("team").Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * usual)
	if n := s.writes() - before; n != 1 {
		t.Errorf("%d statuses were written, want 1", n)
	}
}

func TestAResourceThatChangesAndGoes(t *testing.T) {
	s := newStage(t, agent("a", good))
	s.eventually("it is there", func() bool { _, err := s.catalog.Get(t.Context(), "team", "a"); return err == nil })
	u := object(t, agent("a", "{harness: exec, image: other}"))
	u.SetGeneration(2)
	u.SetResourceVersion("2")
	agents := s.client.Resource(kinds[0].resource).Namespace("team")
	if _, err := agents.Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("it has changed", func() bool { a, _ := s.catalog.Get(t.Context(), "team", "a"); return a.Spec.Image == "other" })
	s.eventually("its status is about that", func() bool { st, _ := s.status("a"); return st.ObservedGeneration == 2 })
	if err := agents.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("it is gone", func() bool {
		_, err := s.catalog.Get(t.Context(), "team", "a")
		return err != nil && strings.Contains(err.Error(), "unknown agent")
	})
}

// A resource whose name an agent file has says so, and not that it is ready.
func TestAResourceBehindAFile(t *testing.T) {
	synctest.Test(t, resourceBehindAFile)
}

func resourceBehindAFile(t *testing.T) {
	s := prepareStage(t, agent("a", good))
	dir := t.TempDir()
	text := "apiVersion: tallyman.dev/v1alpha1\nkind: Agent\nmetadata: {name: a, namespace: team}\nspec: {harness: exec}\n"
	file := filepath.Join(dir, "a.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.catalog = catalog.New([]string{dir}, nil, nil)
	t.Cleanup(s.start(slog.New(slog.DiscardHandler)))
	s.eventually("its status names the file", func() bool {
		_, c := s.status("a")
		return c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonHidden && strings.Contains(c.Message, file)
	})
	s.changed <- struct{}{} // its runs are counted for the first time, and it is looked at
	time.Sleep(3 * calm)
	// That the file is gone is seen also where runs change all the time.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < 2*usual; time.Sleep(calm) {
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
	if _, c := s.status("a"); c.Reason != v1alpha1.ReasonValid {
		t.Errorf("without the file it is %s: %s", c.Reason, c.Message)
	}
}

// A kind that may not be read is told once and asked for rarely; the other
// works.
func TestRightsAreMissing(t *testing.T) {
	synctest.Test(t, rightsAreMissing)
}

func rightsAreMissing(t *testing.T) {
	var log bytes.Buffer
	s := prepareStage(t, agent("a", good))
	asked := make(chan struct{}, 1000)
	refuse := func(clienttesting.Action) (bool, runtime.Object, error) {
		asked <- struct{}{}
		return true, nil, apierrors.NewForbidden(kinds[1].resource.GroupResource(), "", errors.New("not yours"))
	}
	s.client.PrependReactor("list", "configs", refuse)
	s.client.PrependWatchReactor("configs", func(a clienttesting.Action) (bool, apiwatch.Interface, error) {
		_, _, err := refuse(a)
		return true, nil, err
	})
	stop := s.start(slog.New(slog.NewTextHandler(&log, nil)))
	s.eventually("the other kind works", func() bool { _, c := s.status("a"); return c.Reason == v1alpha1.ReasonValid })
	time.Sleep(10 * time.Minute)
	stop()
	time.Sleep(time.Minute) // an informer sleeps through the end
	if n := len(asked); n < 10 || n > 60 {
		t.Errorf("it was asked for %d times in 10 minutes", n)
	}
	if n := strings.Count(log.String(), "resource=configs.agent.benjamin-borbe.de"); n != 1 || !strings.Contains(log.String(), "rights") {
		t.Errorf("it was told %d times:\n%s", n, &log)
	}
}

func config(name, spec string) string {
	return fmt.Sprintf("{apiVersion: agent.benjamin-borbe.de/v1, kind: Config, metadata: {namespace: team, name: %s}, spec: %s}", name, spec)
}

// What the task executor had as agents are agents without a runner.
func TestConfigsAreAgents(t *testing.T) {
	s := newStage(t, agent("both", good),
		config("both", "{assignee: both, image: old, heartbeat: 5m, taskType: x}"),
		config("plain", "{assignee: plain, image: registry/plain, heartbeat: 5m, taskType: code}"),
		config("whole", `{assignee: whole, image: "registry/whole:1", heartbeat: 5m, taskType: code, taskTypes: [code, docs], env: {B: "2", A: "1"},
			secretName: keys, volumeClaim: data, volumeMountPath: /data, configMapName: conf, configMapMountPath: /conf, configMapItems: [{key: k, path: p}],
			resources: {requests: {cpu: 100m}, limits: {memory: 1Gi}}, priorityClassName: low, imagePullSecret: mine, maxConcurrentJobs: 3, zombieJobTimeoutSeconds: 60}`),
		config("service", "{assignee: s, image: x, heartbeat: 5m, type: service}"),
		config("odd", "{assignee: s, image: x, resources: {limits: {memory: much}}}"),
		config("broken", "{assignee: s, image: [x]}"),
	)
	s.eventually("all are known", func() bool { agents, errs := s.catalog.List(t.Context()); return len(agents) == 3 && len(errs) == 3 })
	for name, says := range map[string]string{"service": "spec.type", "odd": "spec.resources.limits.memory", "broken": "image"} {
		if _, err := s.catalog.Get(t.Context(), "team", name); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v does not say %s", name, err, says)
		}
	}
	if a, err := s.catalog.Get(t.Context(), "team", "both"); err != nil || a.Spec.Image != "x" {
		t.Errorf("an Agent goes before a Config of its name: %+v, %v", a, err)
	}
	plain, err := s.catalog.Get(t.Context(), "team", "plain")
	if err != nil {
		t.Fatal(err)
	}
	if l := plain.Spec.Limits.Deadline; l == nil || l.D() != 30*time.Minute || plain.Spec.Runner != tallyman.RunnerBare || plain.Spec.Concurrency.Max != nil {
		t.Errorf("plain: %+v", plain.Spec)
	}
	whole, err := s.catalog.Get(t.Context(), "team", "whole")
	if err != nil {
		t.Fatal(err)
	}
	got, err := yaml.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	if want := wholeConfig; string(got) != want {
		t.Errorf("got\n%s", got)
	}
	for _, a := range s.client.Actions() {
		if a.GetVerb() != "list" && a.GetVerb() != "watch" && a.GetResource() == kinds[1].resource {
			t.Errorf("a Config is not ours to %s", a.GetVerb())
		}
	}
}

const wholeConfig = `description: assignee whole, tasks code, docs
name: whole
namespace: team
origin: resource:agent.benjamin-borbe.de/Config/team/whole
spec:
  concurrency:
    max: 3
  env:
  - name: A
    value: "1"
  - name: B
    value: "2"
  envFrom:
  - secretRef:
      name: keys
  harness: exec
  image: registry/whole:1
  limits:
    deadline: 1m0s
  podTemplate:
    metadata: {}
    spec:
      containers:
      - imagePullPolicy: Always
        name: agent
        resources:
          limits:
            memory: 1Gi
          requests:
            cpu: 100m
        volumeMounts:
        - mountPath: /data
          name: agent-data
        - mountPath: /conf
          name: agent-config
      imagePullSecrets:
      - name: mine
      priorityClassName: low
      volumes:
      - name: agent-data
        persistentVolumeClaim:
          claimName: data
      - configMap:
          items:
          - key: k
            path: p
          name: conf
        name: agent-config
  runner: bare
`
