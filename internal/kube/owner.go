package kube

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
)

// owners finds the ConfigMap that owns what is made in a namespace, so that
// the cluster removes it with an installation.
type owners struct {
	name string // "": nothing is owned
	live client.Client

	mu   sync.Mutex
	uids map[string]*corev1.ConfigMap // by namespace
}

// own marks an object as the owner's. An owner that is not there is a fault of
// the installation: without it objects would outlive that.
func (o *owners) own(ctx context.Context, object client.Object) error {
	if o.name == "" {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.uids[object.GetNamespace()]
	if c == nil {
		c = &corev1.ConfigMap{}
		err := o.live.Get(ctx, client.ObjectKey{Namespace: object.GetNamespace(), Name: o.name}, c)
		if apierrors.IsNotFound(err) {
			err = fmt.Errorf("the ConfigMap %s, which owns the Jobs, is not in namespace %s", o.name, object.GetNamespace())
			return &tallyman.Error{Code: tallyman.Unavailable, Wait: tallyman.NoBackend, Message: err.Error(), Err: err}
		}
		if err != nil {
			return unreachable(err)
		}
		o.uids[object.GetNamespace()] = c
	}
	object.SetOwnerReferences(append(object.GetOwnerReferences(), metav1.OwnerReference{
		APIVersion: "v1", Kind: "ConfigMap", Name: c.Name, UID: c.UID,
	}))
	return nil
}
