package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
)

var scheme = clientgoscheme.Scheme

// Names of indexes.
const (
	byAttempt = "attempt"        // Jobs and Pods, by AttemptRef
	byObject  = "involvedObject" // events, by UID
)

// informers keep what is ours in the cluster, and its warnings, in memory.
type informers struct {
	cache      cache.Cache
	namespaces []string
	log        *slog.Logger
	synced     atomic.Bool
	broken     atomic.Pointer[error] // why they cannot watch just now
}

func newInformers(cfg *rest.Config, namespaces []string, tell func(), log *slog.Logger) (*informers, error) {
	in := &informers{log: log}
	watched := map[string]cache.Config{}
	for _, ns := range namespaces {
		if _, twice := watched[ns]; !twice {
			watched[ns] = cache.Config{}
			in.namespaces = append(in.namespaces, ns)
		}
	}
	mine := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{labelManagedBy: managedBy})}
	warnings := cache.ByObject{Field: fields.OneTermEqualSelector("type", corev1.EventTypeWarning)}
	var err error
	in.cache, err = cache.New(cfg, cache.Options{
		Scheme: scheme, Mapper: mapper(), DefaultNamespaces: watched, DefaultTransform: lean,
		ByObject:                 map[client.Object]cache.ByObject{&batchv1.Job{}: mine, &corev1.Pod{}: mine, &corev1.Event{}: warnings},
		DefaultWatchErrorHandler: func(_ context.Context, _ *toolscache.Reflector, err error) { in.broken.Store(&err) },
	})
	if err != nil {
		return nil, fmt.Errorf("make the informers: %w", err)
	}
	ctx := context.Background()
	for _, object := range []client.Object{&batchv1.Job{}, &corev1.Pod{}, &corev1.Event{}} {
		name, index := byAttempt, attemptOf
		if _, event := object.(*corev1.Event); event {
			name, index = byObject, involved
		}
		if err := in.cache.IndexField(ctx, object, name, index); err != nil {
			return nil, fmt.Errorf("index %T: %w", object, err)
		}
		inf, err := in.cache.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", object, err)
		}
		if _, err := inf.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { tell() },
			UpdateFunc: func(was, is any) { in.moved(was, is, tell) },
			DeleteFunc: func(any) { tell() },
		}); err != nil {
			return nil, fmt.Errorf("watch %T: %w", object, err)
		}
	}
	return in, nil
}

// moved tells of what has changed: a resync brings what has not.
func (in *informers) moved(was, is any, tell func()) {
	a, ok := was.(client.Object)
	b, also := is.(client.Object)
	if !ok || !also || a.GetResourceVersion() != b.GetResourceVersion() {
		tell()
	}
}

func attemptOf(o client.Object) []string {
	if ref, ok := refOf(o.GetLabels()); ok {
		return []string{ref.String()}
	}
	return nil
}

func involved(o client.Object) []string {
	if e, ok := o.(*corev1.Event); ok {
		return []string{string(e.InvolvedObject.UID)}
	}
	return nil
}

// run watches until ctx ends. Reflectors say nothing of a cluster that is not
// there: until they have listed everything, ask finds out why.
func (in *informers) run(ctx context.Context, ask func(context.Context) error) error {
	listing, listed := context.WithCancel(ctx)
	defer listed()
	go func() {
		if began := time.Now(); in.cache.WaitForCacheSync(ctx) {
			in.synced.Store(true)
			debug.FreeOSMemory() // listing has left much behind, and little of it is needed
			in.log.InfoContext(ctx, "the cluster is watched", "took", time.Since(began).Round(time.Millisecond))
		}
		listed()
	}()
	go func() {
		for listing.Err() == nil {
			if err := ask(listing); err != nil && listing.Err() == nil {
				in.broken.Store(&err)
			}
			select {
			case <-listing.Done():
			case <-time.After(askPeriod):
			}
		}
	}()
	ended := make(chan error, 1)
	go func() { ended <- in.cache.Start(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil // a reflector that cannot reach the cluster sleeps through that
	}
}

const askPeriod = 2 * time.Second

// ready says why what is in memory cannot be relied on.
func (in *informers) ready() error {
	if in.synced.Load() {
		return nil
	}
	if err := in.broken.Load(); err != nil {
		return *err
	}
	return errors.New("its objects are still being listed")
}

// labelsOf selects an attempt's objects.
func labelsOf(ref tallyman.AttemptRef) client.MatchingLabels {
	return client.MatchingLabels{labelManagedBy: managedBy, labelRun: ref.RunID, labelAttempt: fmt.Sprint(ref.Number)}
}

// scene is what memory has of an attempt. Its objects are not copies: they are
// to be looked at only.
func (in *informers) scene(ctx context.Context, ref tallyman.AttemptRef) (Scene, error) {
	var s Scene
	if err := in.ready(); err != nil {
		return s, err
	}
	var jobs batchv1.JobList
	var pods corev1.PodList
	mine := client.MatchingFields{byAttempt: ref.String()}
	if err := errors.Join(in.cache.List(ctx, &jobs, mine, client.UnsafeDisableDeepCopy), in.cache.List(ctx, &pods, mine, client.UnsafeDisableDeepCopy)); err != nil {
		return s, err
	}
	s = s.with(jobs.Items, pods.Items)
	for _, object := range s.objects() {
		var events corev1.EventList
		if err := in.cache.List(ctx, &events, client.MatchingFields{byObject: string(object.GetUID())}, client.UnsafeDisableDeepCopy); err != nil {
			return s, err
		}
		s.Events = append(s.Events, events.Items...)
	}
	return s, nil
}

func (s Scene) objects() []client.Object {
	var all []client.Object
	if s.Job != nil {
		all = append(all, s.Job)
	}
	if s.Pod != nil {
		all = append(all, s.Pod)
	}
	return all
}
