package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
)

// own marks an object as one of the ConfigMap that owns what is made, so that
// the cluster removes it with an installation. It is asked for each time: the
// objects of an owner that has been made anew meanwhile would be removed at
// once. One that is not there is a fault of the installation: without it
// objects would outlive that.
func (b *Backend) own(ctx context.Context, object client.Object) error {
	if b.o.Owner == "" {
		return nil
	}
	var c corev1.ConfigMap
	err := b.live.Get(ctx, client.ObjectKey{Namespace: object.GetNamespace(), Name: b.o.Owner}, &c)
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("the ConfigMap %s, which owns the Jobs, is not in namespace %s", b.o.Owner, object.GetNamespace())
		return &tallyman.Error{Code: tallyman.Unavailable, Wait: tallyman.NoBackend, Message: err.Error(), Err: err}
	}
	if err != nil {
		return unreachable(err)
	}
	object.SetOwnerReferences(append(object.GetOwnerReferences(), metav1.OwnerReference{
		APIVersion: "v1", Kind: "ConfigMap", Name: c.Name, UID: c.UID,
	}))
	return nil
}
