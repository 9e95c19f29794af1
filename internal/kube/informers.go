package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	batchv1client "k8s.io/client-go/kubernetes/typed/batch/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/kube/job"
	"github.com/tallyman-dev/tallyman/internal/kube/observe"
)

// Names of indexes.
const (
	byAttempt = "attempt"        // Jobs and Pods, by AttemptRef
	byObject  = "involvedObject" // events, by UID
)

// informers keep what is ours in the cluster, and its warnings, in memory.
// They are client-go's own: controller-runtime's cache copies a list each time
// that it is asked for one, which at thousands of objects is most of what a
// server would hold.
type informers struct {
	jobs       kept[*batchv1.Job]
	pods       kept[*corev1.Pod]
	events     kept[*corev1.Event]
	places     []*watch
	namespaces []string // their names
	tell       func()
	log        *slog.Logger
}

// watch is of a namespace. One that may not be looked at keeps nobody from
// seeing the others.
type watch struct {
	namespace string
	informers []cache.SharedIndexInformer
	synced    atomic.Bool
	broken    atomic.Pointer[error] // why it cannot be watched, as it was told last
	told      atomic.Int64          // when, in Unix seconds
}

// kept are the objects of a kind that are in memory, an informer for each
// namespace. They are not copies: they are to be looked at only.
type kept[T client.Object] []placed

type placed struct {
	cache.SharedIndexInformer
	in *watch
}

func newInformers(cfg *rest.Config, namespaces []string, tell func(), log *slog.Logger) (*informers, error) {
	core, err := corev1client.NewForConfig(protobuf(cfg))
	if err != nil {
		return nil, fmt.Errorf("make the informers: %w", err)
	}
	batch, err := batchv1client.NewForConfig(protobuf(cfg))
	if err != nil {
		return nil, fmt.Errorf("make the informers: %w", err)
	}
	in := &informers{tell: tell, log: log}
	mine := func(o *metav1.ListOptions) { o.LabelSelector = labels.Set{job.LabelManagedBy: job.ManagedBy}.String() }
	warnings := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("type", corev1.EventTypeWarning).String()
	}
	for _, ns := range namespaces {
		if slices.Contains(in.namespaces, ns) {
			continue
		}
		w := &watch{namespace: ns}
		in.namespaces, in.places = append(in.namespaces, ns), append(in.places, w)
		jobs, err1 := in.watch(w, cache.NewFilteredListWatchFromClient(batch.RESTClient(), "jobs", ns, mine), &batchv1.Job{}, byAttempt, attemptOf)
		pods, err2 := in.watch(w, cache.NewFilteredListWatchFromClient(core.RESTClient(), "pods", ns, mine), &corev1.Pod{}, byAttempt, attemptOf)
		events, err3 := in.watch(w, cache.NewFilteredListWatchFromClient(core.RESTClient(), "events", ns, warnings), &corev1.Event{}, byObject, involved)
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, err
		}
		in.jobs, in.pods, in.events = append(in.jobs, jobs), append(in.pods, pods), append(in.events, events)
	}
	return in, nil
}

// protobuf asks for what an API server encodes, and we decode, fastest.
func protobuf(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType, cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	return cfg
}

func (in *informers) watch(w *watch, from *cache.ListWatch, kind client.Object, index string, of cache.IndexFunc) (placed, error) {
	inf := cache.NewSharedIndexInformer(from, kind, 0, cache.Indexers{index: of})
	_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { in.tell() },
		UpdateFunc: in.moved,
		DeleteFunc: func(any) { in.tell() },
	})
	failed := func(ctx context.Context, _ *cache.Reflector, err error) { in.failed(ctx, w, err) }
	err = errors.Join(err, inf.SetTransform(observe.Lean), inf.SetWatchErrorHandlerWithContext(failed))
	if err != nil {
		return placed{}, fmt.Errorf("watch %T: %w", kind, err)
	}
	w.informers = append(w.informers, inf)
	return placed{inf, w}, nil
}

// tellAgain is after how long the same trouble is told again.
const tellAgain = 5 * time.Minute

// failed keeps why a namespace cannot be watched, and says so now and then.
func (in *informers) failed(ctx context.Context, w *watch, err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, io.EOF) {
		return // it lists again, or watches on
	}
	now := time.Now()
	was := w.broken.Swap(&err)
	if was != nil && (*was).Error() == err.Error() && now.Sub(time.Unix(w.told.Load(), 0)) < tellAgain {
		return
	}
	w.told.Store(now.Unix())
	in.log.WarnContext(ctx, "watching the cluster; what happens there is not seen until it works again", "namespace", w.namespace, "err", err)
}

// moved tells of what has changed: a list that is asked for again brings what
// has not.
func (in *informers) moved(was, is any) {
	a, ok := was.(client.Object)
	b, also := is.(client.Object)
	if !ok || !also || a.GetResourceVersion() != b.GetResourceVersion() {
		in.tell()
	}
}

func attemptOf(o any) ([]string, error) {
	object, err := meta.Accessor(o)
	if err != nil {
		return nil, err
	}
	if ref, ok := job.RefOf(object.GetLabels()); ok {
		return []string{ref.String()}, nil
	}
	return nil, nil
}

func involved(o any) ([]string, error) {
	if e, ok := o.(*corev1.Event); ok {
		return []string{string(e.InvolvedObject.UID)}, nil
	}
	return nil, nil
}

// run watches until ctx ends. ask looks for a namespace's objects once.
func (in *informers) run(ctx context.Context, ask func(ctx context.Context, namespace string) error) error {
	var places sync.WaitGroup
	defer places.Wait()
	for _, w := range in.places {
		places.Go(func() { in.open(ctx, w, ask) })
	}
	<-ctx.Done()
	return nil
}

// open begins to watch a namespace. Reflectors say nothing of a cluster that
// is not there: until they have listed everything, ask finds out why.
func (in *informers) open(ctx context.Context, w *watch, ask func(ctx context.Context, namespace string) error) {
	listing, listed := context.WithCancel(ctx)
	var has []cache.InformerSynced
	for _, inf := range w.informers {
		go inf.RunWithContext(ctx) // not waited for: a reflector that cannot reach the cluster sleeps through ctx's end
		has = append(has, inf.HasSynced)
	}
	var asking sync.WaitGroup
	asking.Go(func() {
		for listing.Err() == nil {
			if err := ask(listing, w.namespace); err != nil && listing.Err() == nil {
				w.broken.Store(&err)
			}
			select {
			case <-listing.Done():
			case <-time.After(askPeriod):
			}
		}
	})
	defer asking.Wait()
	defer listed()
	if began := time.Now(); cache.WaitForCacheSync(ctx.Done(), has...) {
		w.synced.Store(true)
		in.tell()
		debug.FreeOSMemory() // listing has left much behind, and little of it is needed
		in.log.InfoContext(ctx, "the cluster is watched", "namespace", w.namespace, "took", time.Since(began).Round(time.Millisecond))
	}
}

const askPeriod = 2 * time.Second

// ready says why nothing is in memory yet. Once it has one namespace, what it
// has is true; what it has not may be in another.
func (in *informers) ready() error {
	var why error
	for _, w := range in.places {
		err := w.ready()
		if err == nil {
			return nil
		}
		why = cmp.Or(why, err)
	}
	return why
}

// readyIn says why a namespace is not in memory yet.
func (in *informers) readyIn(namespace string) error {
	for _, w := range in.places {
		if w.namespace == namespace {
			return w.ready()
		}
	}
	return fmt.Errorf("namespace %s is not one of this server's any more; add it to --namespaces until what was made there has ended", namespace)
}

func (w *watch) ready() error {
	if w.synced.Load() {
		return nil
	}
	if err := w.broken.Load(); err != nil {
		return *err
	}
	return fmt.Errorf("the objects of namespace %s are still being listed", w.namespace)
}

// all are the objects of a kind.
func (k kept[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, inf := range k {
			if !inf.in.synced.Load() {
				continue
			}
			for _, o := range inf.GetIndexer().List() {
				if object, ok := o.(T); ok && !yield(object) {
					return
				}
			}
		}
	}
}

// by are the objects that an index has under a value.
func (k kept[T]) by(index, value string) ([]T, error) {
	var found []T
	for _, inf := range k {
		if !inf.in.synced.Load() {
			continue
		}
		all, err := inf.GetIndexer().ByIndex(index, value)
		if err != nil {
			return nil, err
		}
		for _, o := range all {
			if object, ok := o.(T); ok {
				found = append(found, object)
			}
		}
	}
	return found, nil
}

// get is the object of that name, and whether there is one.
func (k kept[T]) get(key client.ObjectKey) (object T, there bool) {
	for _, inf := range k {
		if o, ok, err := inf.GetIndexer().GetByKey(key.String()); err == nil && ok {
			object, there = o.(T)
			return object, there
		}
	}
	return object, false
}

// labelsOf selects an attempt's objects.
func labelsOf(ref tallyman.AttemptRef) client.MatchingLabels {
	return client.MatchingLabels{job.LabelManagedBy: job.ManagedBy, job.LabelRun: ref.RunID, job.LabelAttempt: fmt.Sprint(ref.Number)}
}

// scene is what memory has of an attempt for which that object was made; "":
// which one is not recorded yet.
func (in *informers) scene(ref tallyman.AttemptRef, object string) (observe.Scene, error) {
	if namespace, recorded := namespaceIn(object); recorded {
		if err := in.readyIn(namespace); err != nil {
			return observe.Scene{}, err
		}
	} else if err := in.ready(); err != nil {
		return observe.Scene{}, err
	}
	jobs, err1 := in.jobs.by(byAttempt, ref.String())
	pods, err2 := in.pods.by(byAttempt, ref.String())
	s := observe.Scene{}.With(object, jobs, pods)
	err := errors.Join(err1, err2)
	for _, object := range s.Objects() {
		events, err3 := in.events.by(byObject, string(object.GetUID()))
		err = errors.Join(err, err3)
		s.Events = append(s.Events, events...)
	}
	return s, err
}

// namespaceIn is where an object is, once that is recorded.
func namespaceIn(object string) (namespace string, recorded bool) {
	namespace, _, recorded = strings.Cut(object, "/")
	return namespace, recorded
}
