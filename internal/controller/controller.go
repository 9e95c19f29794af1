// Package controller keeps the catalog's agents those that a cluster has as
// resources, and writes into each what the server makes of it: whether it can
// be run, and how many of its runs there are.
//
// It looks at what is true: an event only says which resource to look at, and
// now and then all are. What is wrong with one resource is that one's: it is
// told in its status and by the catalog, and the others go on.
package controller

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/api/v1alpha1"
	"github.com/tallyman-dev/tallyman/internal/catalog"
)

// Catalog is what has the agents.
type Catalog interface {
	Get(ctx context.Context, namespace, name string) (tallyman.Agent, error)
	SetResource(r catalog.Resource)
	DropResource(origin string)
}

// Runs knows how many runs there are of each agent.
type Runs interface {
	AgentCounts(ctx context.Context, namespace string) (map[string]map[tallyman.State]int64, error)
}

// Options are what a controller needs.
type Options struct {
	Config     *rest.Config
	Namespaces []string // that are watched
	Catalog    Catalog
	Runs       Runs
	// Check judges a valid agent by what the backend would make of it; nil
	// finds nothing.
	Check func(ctx context.Context, spec tallyman.AgentSpec) error
	// Changed gets a notice when runs have changed; nil: they are counted now
	// and then.
	Changed <-chan struct{}
	Log     *slog.Logger
}

// Times of the controller.
const (
	calm  = 2 * time.Second // at least, from one count to the next
	usual = time.Minute     // at most, to the next look at everything
)

// key names a resource of one of the kinds.
type key struct {
	kind            *kind
	namespace, name string
}

func (k key) origin() string {
	return tallyman.ResourceOrigin + k.kind.resource.Group + "/" + k.kind.kind + "/" + k.namespace + "/" + k.name
}

// kind is a kind of resource that is read as agents.
type kind struct {
	resource schema.GroupVersionResource
	kind     string
	// read makes an agent of a resource.
	read func(k key, u *unstructured.Unstructured) catalog.Resource
	ours bool // it has our status
}

var kinds = []*kind{
	{resource: v1alpha1.GroupVersion.WithResource(v1alpha1.Resource), kind: tallyman.KindAgent, read: readAgent, ours: true},
	{resource: schema.GroupVersionResource{Group: "agent.benjamin-borbe.de", Version: "v1", Resource: "configs"}, kind: "Config", read: readConfig},
}

// Controller watches the resources.
type Controller struct {
	o       Options
	client  dynamic.Interface
	queue   workqueue.TypedRateLimitingInterface[key]
	watches []*watch

	mu     sync.Mutex
	counts map[string]map[string]map[tallyman.State]int64 // by namespace and agent
}

// New makes a controller. It asks nothing yet.
func New(o Options) (*Controller, error) {
	client, err := dynamic.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the cluster at %s: %w", o.Config.Host, err)
	}
	return newController(o, client)
}

func newController(o Options, client dynamic.Interface) (*Controller, error) {
	c := &Controller{
		o: o, client: client, counts: map[string]map[string]map[tallyman.State]int64{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](100*time.Millisecond, usual)),
	}
	c.o.Namespaces = slices.Clone(o.Namespaces)
	slices.Sort(c.o.Namespaces)
	c.o.Namespaces = slices.Compact(c.o.Namespaces)
	for _, k := range kinds {
		for _, ns := range c.o.Namespaces {
			w, err := c.watch(k, ns)
			if err != nil {
				return nil, err
			}
			c.watches = append(c.watches, w)
		}
	}
	return c, nil
}

// Run watches until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	for _, w := range c.watches {
		// Not waited for: one that cannot reach the cluster sleeps through the
		// end of ctx.
		go w.informer.RunWithContext(ctx)
	}
	parts.Go(func() { c.count(ctx) })
	parts.Go(func() { c.work(ctx) })
	<-ctx.Done()
	c.queue.ShutDown()
	return nil
}

// work looks at one resource after the other.
func (c *Controller) work(ctx context.Context) {
	for {
		k, end := c.queue.Get()
		if end {
			return
		}
		if err := c.settle(ctx, k); err != nil && ctx.Err() == nil {
			c.o.Log.DebugContext(ctx, "looking at a resource", "resource", k.origin(), "err", err)
			c.queue.AddRateLimited(k)
		} else {
			c.queue.Forget(k)
		}
		c.queue.Done(k)
	}
}

// settle makes the catalog and the status right for one resource.
func (c *Controller) settle(ctx context.Context, k key) error {
	u, err := c.find(k)
	if err != nil {
		return err
	}
	if u == nil || u.GetDeletionTimestamp() != nil {
		c.o.Catalog.DropResource(k.origin())
		return nil
	}
	r := c.checked(ctx, k.kind.read(k, u))
	c.o.Catalog.SetResource(r)
	if !k.kind.ours {
		return nil
	}
	was := statusOf(u)
	now := c.statusFor(ctx, u.GetGeneration(), r, was)
	if same(was, now) {
		return nil
	}
	return c.write(ctx, k, u, now)
}

// find returns what memory has of a resource, nil when there is none.
func (c *Controller) find(k key) (*unstructured.Unstructured, error) {
	for _, w := range c.watches {
		if w.kind != k.kind || w.namespace != k.namespace {
			continue
		}
		o, there, err := w.informer.GetStore().GetByKey(k.namespace + "/" + k.name)
		if err != nil || !there {
			return nil, err
		}
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			return nil, fmt.Errorf("%s is a %T", k.origin(), o)
		}
		return u, nil
	}
	return nil, nil
}

// write replaces a resource's status. One that has changed meanwhile is looked
// at again.
func (c *Controller) write(ctx context.Context, k key, u *unstructured.Unstructured, s v1alpha1.AgentStatus) error {
	status, err := encode(s)
	if err != nil {
		return err
	}
	u = u.DeepCopy()
	u.Object["status"] = status
	_, err = c.client.Resource(k.kind.resource).Namespace(k.namespace).UpdateStatus(ctx, u, metav1.UpdateOptions{FieldManager: "tallyman"})
	if err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}

// count keeps the figures of the agents: soon when runs have changed, but not
// more often than is calm, and now and then in any case.
func (c *Controller) count(ctx context.Context) {
	again := time.NewTicker(usual)
	defer again.Stop()
	for {
		all := c.recount(ctx)
		if all != nil && ctx.Err() == nil {
			c.o.Log.WarnContext(ctx, "counting the runs of agents", "err", all)
		}
		if !sleep(ctx, calm) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-c.o.Changed:
		case <-again.C:
			c.everything()
		}
	}
}

// recount counts, and looks at the agents whose figures have changed.
func (c *Controller) recount(ctx context.Context) error {
	for _, w := range c.watches {
		if !w.kind.ours || len(w.informer.GetStore().ListKeys()) == 0 {
			continue
		}
		now, err := c.o.Runs.AgentCounts(ctx, w.namespace)
		if err != nil {
			return err
		}
		c.mu.Lock()
		was, counted := c.counts[w.namespace]
		c.counts[w.namespace] = now
		c.mu.Unlock()
		w.each(func(k key) {
			if !counted || !maps.Equal(was[k.name], now[k.name]) {
				c.queue.Add(k)
			}
		})
	}
	return nil
}

// everything looks at all resources.
func (c *Controller) everything() {
	for _, w := range c.watches {
		w.each(c.queue.Add)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// keyOf names the resource that an event is about.
func keyOf(k *kind, o any) (key, bool) {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
	if err != nil {
		return key{}, false
	}
	ns, n, err := cache.SplitMetaNamespaceKey(name)
	return key{k, ns, n}, err == nil
}
