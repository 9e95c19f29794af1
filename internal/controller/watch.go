package controller

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tallyman-dev/tallyman/api/v1alpha1"
)

// watch keeps the resources of one kind in one namespace in memory. They are
// kept as they are: one that does not fit our types must not keep the others
// from being read. A kind that the cluster does not know yet, or that may not
// be looked at, is asked for again by the informer itself, after at most half
// a minute.
type watch struct {
	kind      *kind
	namespace string
	informer  cache.SharedIndexInformer

	mu   sync.Mutex
	told string // why it cannot be watched, as it was last logged
}

func (c *Controller) watch(k *kind, namespace string) (*watch, error) {
	w := &watch{kind: k, namespace: namespace}
	w.informer = dynamicinformer.NewFilteredDynamicInformer(c.client, k.resource, namespace, 0, cache.Indexers{}, nil).Informer()
	look := func(o any) {
		w.works(c)
		if name, ok := keyOf(k, o); ok {
			c.queue.Add(name)
		}
	}
	err := w.informer.SetTransform(func(o any) (any, error) {
		if u, ok := o.(*unstructured.Unstructured); ok {
			u.SetManagedFields(nil)
		}
		return o, nil
	})
	if err == nil {
		err = w.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) { w.broken(ctx, c, err) })
	}
	if err == nil {
		_, err = w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: look, DeleteFunc: look,
			UpdateFunc: func(was, is any) {
				a, ok := was.(metav1.Object)
				b, also := is.(metav1.Object)
				if !ok || !also || a.GetResourceVersion() != b.GetResourceVersion() {
					look(is)
				}
			},
		})
	}
	if err != nil {
		return nil, fmt.Errorf("watch %s in %s: %w", k.resource.Resource, namespace, err)
	}
	return w, nil
}

// broken says once why resources cannot be watched. What is in memory stays.
func (w *watch) broken(ctx context.Context, c *Controller, err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || ctx.Err() != nil {
		return // the informer lists again
	}
	why := reason(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.told == why {
		return
	}
	w.told = why
	c.o.Log.InfoContext(ctx, "agents are not read from these resources", "resource", w.kind.resource.GroupResource().String(),
		"namespace", w.namespace, "why", why, "err", err)
}

// works says once that resources are watched which were not.
func (w *watch) works(c *Controller) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.told == "" {
		return
	}
	w.told = ""
	c.o.Log.Info("agents are read from these resources", "resource", w.kind.resource.GroupResource().String(), "namespace", w.namespace)
}

// each calls fn for every resource in memory.
func (w *watch) each(fn func(key)) {
	for _, o := range w.informer.GetStore().List() {
		if name, ok := keyOf(w.kind, o); ok {
			fn(name)
		}
	}
}

// Absent is why resources are not read whose kind the cluster does not know.
const Absent = "the cluster does not know this kind: apply its CustomResourceDefinition, and they are read"

// reason says why resources cannot be read, and what would help.
func reason(err error) string {
	switch {
	case apierrors.IsNotFound(err):
		return Absent
	case apierrors.IsForbidden(err):
		return "the rights to list and watch them are missing"
	}
	return "the cluster cannot be asked"
}

// Seen is what Look has found in a namespace.
type Seen struct {
	All     int
	Invalid []string // that no Job can be made of, as the server last said
}

// Look asks a cluster once for the agents that a namespace has as resources.
// With an error comes the reason.
func Look(ctx context.Context, cfg *rest.Config, namespace string) (seen Seen, why string, err error) {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return seen, "name a cluster that can be reached", fmt.Errorf("make a client of the cluster at %s: %w", cfg.Host, err)
	}
	list, err := client.Resource(kinds[0].resource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return seen, reason(err), fmt.Errorf("list agents in %s: %w", namespace, err)
	}
	seen.All = len(list.Items)
	for _, u := range list.Items {
		if c := meta.FindStatusCondition(statusOf(&u).Conditions, v1alpha1.Ready); c != nil && c.Reason == v1alpha1.ReasonInvalid {
			seen.Invalid = append(seen.Invalid, u.GetName())
		}
	}
	return seen, "", nil
}
