package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/kube/job"
	"github.com/tallyman-dev/tallyman/internal/kube/observe"
)

// Name is what attempts of this backend are said to run on.
const Name = "kube"

// Options are what a backend needs.
type Options struct {
	Config     *rest.Config
	Namespace  string   // of agents from files
	Namespaces []string // that are watched beside it
	Cluster    job.Cluster
	Owner      string // ConfigMap that owns the objects, "": none
	// Lookup finds a variable of the server's environment.
	Lookup func(name string) (string, bool)
	// Object is what was made for an attempt, as it was recorded.
	Object func(ctx context.Context, ref tallyman.AttemptRef) (string, error)
	// Kept reports whether an attempt's record is complete, so that its
	// objects may go.
	Kept    func(ctx context.Context, ref tallyman.AttemptRef) (bool, error)
	Control Control       // is told of attempts without a runner
	History History       // has their journals
	Ended   time.Duration // how long ended objects stay
	Grace   time.Duration // from TERM to KILL, of an agent without a runner
	Orphan  time.Duration // how long a runner goes on without a server, 0: until its deadline
	Log     *slog.Logger
}

// Backend runs attempts in a cluster.
type Backend struct {
	o       Options
	live    client.Client                // asks the API server each time
	core    corev1client.CoreV1Interface // for logs, which client.Client does not know
	seen    *informers
	scribe  *scribe
	changed chan struct{}
	stirred chan struct{} // the cluster's side of changed
	nodes   nodes
	clock   *clock
	line    *line
}

// New makes a backend. It asks nothing yet.
func New(o Options) (*Backend, error) {
	log.SetLogger(logr.FromSlogHandler(o.Log.Handler()))
	clock, line := &clock{}, &line{}
	o.Config = rest.CopyConfig(o.Config)
	o.Config.Wrap(clock.listening)
	o.Config.Wrap(line.watched)
	live, err := client.New(o.Config, client.Options{Scheme: scheme.Scheme, Mapper: mapper()})
	if err != nil {
		return nil, fmt.Errorf("make a client of the cluster at %s: %w", o.Config.Host, err)
	}
	core, err := corev1client.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the cluster at %s: %w", o.Config.Host, err)
	}
	b := &Backend{o: o, live: live, core: core, changed: make(chan struct{}, 1), stirred: make(chan struct{}, 1), clock: clock, line: line}
	b.scribe, b.nodes.live = newScribe(b), live
	b.seen, err = newInformers(o.Config, append([]string{o.Namespace}, o.Namespaces...), func() { notify(b.stirred) }, o.Log)
	return b, err
}

// Changed gets a notice when an attempt's objects have changed.
func (b *Backend) Changed() <-chan struct{} { return b.changed }

func (b *Backend) tell() {
	notify(b.changed)
	notify(b.scribe.wake)
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// together is how long what changes in the cluster is gathered, once something
// was told: the Pod, the Job and the events of one step come one by one, and
// each notice makes the executor look at everything.
const together = 100 * time.Millisecond

// passOn tells of what changes in the cluster: at once after a quiet time.
func (b *Backend) passOn(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.stirred:
		}
		b.tell()
		select {
		case <-ctx.Done():
			return
		case <-time.After(together):
		}
	}
}

// Run watches the cluster, and removes what is done with.
func (b *Backend) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var working sync.WaitGroup
	working.Go(func() { b.every(ctx, sweepPeriod, "removing ended objects from the cluster", b.sweep) })
	working.Go(func() {
		b.every(ctx, wakePeriod, "looking for room in quotas; Jobs that wait for it take up to a minute longer", b.wake)
	})
	working.Go(func() { b.every(ctx, deadlinePeriod, "ending Pods at their deadline", b.holdDeadlines) })
	working.Go(func() { b.scribe.run(ctx) })
	working.Go(func() { b.probe(ctx) })
	working.Go(func() { b.passOn(ctx) })
	defer working.Wait()
	defer cancel()
	return b.seen.run(ctx, func(ctx context.Context, namespace string) error {
		return b.live.List(ctx, &corev1.PodList{}, client.InNamespace(namespace), client.Limit(1))
	})
}

// namespaceOf is where the objects of a run of an agent go: those of a custom
// resource beside it, all others where the server was told.
func (b *Backend) namespaceOf(w tallyman.Assignment) string {
	if tallyman.IsResource(w.Origin) {
		return w.Run.Namespace
	}
	return b.o.Namespace
}

// object is what is made for an attempt.
func (b *Backend) object(ctx context.Context, w tallyman.Assignment) (client.Object, error) {
	object, err := b.o.Cluster.Object(job.Work{
		Run: w.Run, Attempt: w.Attempt.Number, Spec: w.Agent, Prompt: w.Prompt, Bytes: w.PromptSize, Namespace: b.namespaceOf(w),
	})
	if err != nil {
		return nil, err
	}
	return object, b.own(ctx, object)
}

// Start makes the attempt's object. One that is there already must be the
// attempt's own. It returns which one it is.
func (b *Backend) Start(ctx context.Context, w tallyman.Assignment) (string, error) {
	object, err := b.object(ctx, w)
	if err != nil {
		return "", err
	}
	err = b.live.Create(ctx, object)
	if apierrors.IsAlreadyExists(err) {
		return b.adopt(ctx, w.Attempt.Ref(), object)
	}
	if err != nil {
		return "", refused(err)
	}
	return observe.Object(object), nil
}

// Preview is the object that Start would make, as JSON.
func (b *Backend) Preview(ctx context.Context, w tallyman.Assignment) (json.RawMessage, error) {
	object, err := b.object(ctx, w)
	if err != nil {
		return nil, err
	}
	return json.Marshal(object)
}

// adopt takes an object that is there for the attempt's own, if it is.
func (b *Backend) adopt(ctx context.Context, attempt tallyman.AttemptRef, object client.Object) (string, error) {
	if err := b.live.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return "", unreachable(err)
	}
	if ref, ours := job.RefOf(object.GetLabels()); !ours || ref != attempt {
		return "", &tallyman.Error{Code: tallyman.Conflict, Reason: tallyman.BackendError,
			Message: fmt.Sprintf("%s/%s is taken by another object, which is not of this attempt", object.GetNamespace(), object.GetName())}
	}
	return observe.Object(object), nil
}

// refused judges an API server's answer to the making of an object: an error
// with a reason ends the attempt, one without is tried again.
func refused(err error) error {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), strings.Contains(err.Error(), observe.Denied):
		if b := observe.Refused(err.Error()); b.Hopeless {
			return &tallyman.Error{Code: tallyman.Invalid, Reason: b.Reason, Message: b.Message, Err: err}
		} else if b.Wait != "" {
			return &tallyman.Error{Code: tallyman.Unavailable, Wait: b.Wait, Message: b.Message, Err: err}
		}
	case apierrors.IsRequestEntityTooLargeError(err):
		return &tallyman.Error{Code: tallyman.Invalid, Reason: tallyman.InvalidSpec, Message: err.Error(), Err: err}
	case apierrors.IsNotFound(err):
		return &tallyman.Error{Code: tallyman.Invalid, Reason: tallyman.ConfigMissing, Message: err.Error(), Err: err} // the namespace
	}
	return unreachable(err)
}

// unreachable says that nothing can be known or done just now.
func unreachable(err error) error {
	return &tallyman.Error{Code: tallyman.Unavailable, Wait: tallyman.NoBackend, Message: "the cluster cannot be used: " + err.Error(), Err: err}
}

// Observe looks at an attempt's objects.
func (b *Backend) Observe(ctx context.Context, a tallyman.Attempt) (tallyman.Observation, error) {
	s, err := b.seen.scene(a.Ref(), a.Object)
	begun := a.Object != "" || a.Journal != "" // what was never started is adopted then, if it was
	if err == nil && s.Pod == nil && (s.Job == nil && begun || s.Job != nil && observe.JobEnded(s.Job) != nil) {
		// What the informers do not know may be too new for them, or where
		// they cannot look.
		s, err = b.ask(ctx, a.Ref(), a.Object)
	}
	if err != nil {
		return tallyman.Observation{}, unreachable(err)
	}
	if s.Unrecorded(a) {
		return tallyman.Observation{}, nil
	}
	if pod := b.scribe.writing(a); s.Pod == nil && pod != nil {
		s.Pod, s.Bare = pod, true
	}
	s.Made, s.Now, s.Patience = a.Object != "", b.clock.now(), b.o.Cluster.Pull
	if s.Pod != nil && s.Pod.Spec.NodeName == "" {
		s.Biggest = biggest(b.nodes.list(ctx))
	}
	s.Silence = b.silence(ctx, a, s)
	o := observe.Look(s)
	if err := b.line.err(); err != nil && o.Running && o.Deaf && a.Journal == "" {
		return tallyman.Observation{}, unreachable(err) // nothing can become of it meanwhile
	}
	if a.Journal != "" && !s.Bare {
		o.Deaf = false // its runner was heard, whatever the informers know of it
	}
	if s.Bare && o.Gone && s.Pod != nil && a.Final == nil && !b.scribe.finished(s.Pod) {
		// It is over when its journal is.
		return tallyman.Observation{Running: true, Deaf: true, StartedAt: o.StartedAt, Process: o.Process, Evidence: o.Evidence}, nil
	}
	if o.Gone && s.Pod != nil && !a.Gone && s.Lost() == nil { // a lost node shows no logs
		b.addOutput(ctx, s.Pod, o.Evidence, a.Journal == "")
		o.Cause = observe.NotExecutable(o.Cause, o.Evidence)
	}
	return o, nil
}

// ask looks for an attempt's objects at the API server: in the namespace of
// what was made for it, and in all of them before that is recorded. One that
// may not be looked at matters then only where they are in no other.
func (b *Backend) ask(ctx context.Context, ref tallyman.AttemptRef, object string) (observe.Scene, error) {
	var s observe.Scene
	var errs []error
	namespaces := b.seen.namespaces
	if one, recorded := namespaceIn(object); recorded {
		namespaces = []string{one}
	}
	for _, ns := range namespaces {
		options := []client.ListOption{client.InNamespace(ns), labelsOf(ref)}
		var jobs batchv1.JobList
		var pods corev1.PodList
		if err := errors.Join(b.live.List(ctx, &jobs, options...), b.live.List(ctx, &pods, options...)); err != nil {
			errs = append(errs, err)
			continue
		}
		s = s.With(object, pointers(jobs.Items), pointers(pods.Items))
	}
	if s.None() {
		return s, errors.Join(errs...)
	}
	return s, nil
}

func pointers[T any](values []T) []*T {
	all := make([]*T, len(values))
	for i := range values {
		all[i] = &values[i]
	}
	return all
}

// Kill ends an attempt's Pod, or keeps it from coming: also one whose making
// was not answered.
func (b *Backend) Kill(ctx context.Context, a tallyman.Attempt) error {
	s, err := b.seen.scene(a.Ref(), a.Object)
	if err == nil && s.None() {
		s, err = b.ask(ctx, a.Ref(), a.Object)
	}
	if err != nil {
		return unreachable(err)
	}
	switch {
	case s.Pod != nil && s.Bare && observe.HasEnded(s.Pod) && !b.scribe.finished(s.Pod):
		return nil // its log goes with it
	case s.Pod != nil && s.Bare && !observe.StartOf(s.Pod).IsZero():
		return b.deletePod(ctx, s.Pod, b.o.Grace) // nobody but the kubelet asks it to end
	case s.Pod != nil:
		return b.deletePod(ctx, s.Pod, time.Second)
	case s.Pod == nil && s.Job != nil && s.Job.DeletionTimestamp == nil:
		err = b.live.Delete(ctx, s.Job, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &s.Job.UID})
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return unreachable(err)
	}
	return nil
}

// deletePod ends a Pod: TERM, and KILL after the grace, of which 0 would take
// the object away before its processes. One that ends as soon is left alone.
func (b *Backend) deletePod(ctx context.Context, pod *corev1.Pod, grace time.Duration) error {
	seconds := max(1, int64(grace/time.Second))
	if pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds <= seconds {
		return nil
	}
	err := b.live.Delete(ctx, pod, client.GracePeriodSeconds(seconds), client.Preconditions{UID: &pod.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return unreachable(err)
	}
	return nil
}

// Remove deletes an ended attempt's objects.
func (b *Backend) Remove(ctx context.Context, ref tallyman.AttemptRef) error {
	object, err := b.o.Object(ctx, ref)
	if err != nil && tallyman.CodeOf(err) != tallyman.NotFound {
		return err
	}
	s, err := b.seen.scene(ref, object)
	if err != nil {
		return unreachable(err)
	}
	return b.remove(ctx, s)
}

func (b *Backend) remove(ctx context.Context, s observe.Scene) error {
	var object client.Object = s.Job
	if s.Job == nil {
		if s.Pod == nil {
			return nil
		}
		object = s.Pod
	}
	uid := object.GetUID()
	err := b.live.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &uid})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return unreachable(err)
	}
	return nil
}

// Leftover has nothing: the journal of a runner in a Pod is gone with it.
func (b *Backend) Leftover(context.Context, tallyman.AttemptRef, uint64, func(uint64, []byte) error) error {
	return nil
}
