package kube

import (
	"context"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/kube/job"
	"github.com/tallyman-dev/tallyman/internal/kube/observe"
)

// What a TokenReview says of a token that was projected into a Pod.
const (
	extraPodName  = "authentication.kubernetes.io/pod-name"
	extraPodUID   = "authentication.kubernetes.io/pod-uid"
	accountPrefix = "system:serviceaccount:"
)

// Identify finds out whose token it is: one TokenReview, then the Pod must be
// the attempt's, and its owner the attempt's Job. It returns the Pod's UID.
// The errors are Unauthorized, Stale (a Pod, but not of this attempt), and
// Unavailable while the cluster cannot be asked.
func (b *Backend) Identify(ctx context.Context, ref tallyman.AttemptRef, token, cluster string) (string, error) {
	if cluster != b.o.Cluster.Name {
		return "", tallyman.Errorf(tallyman.Unauthorized, "attempt %s: cluster %q is not this server's", ref, cluster)
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{tallyman.TokenAudience}}}
	if err := b.live.Create(ctx, review); err != nil {
		return "", unreachable(err)
	}
	st := review.Status
	account, isAccount := strings.CutPrefix(st.User.Username, accountPrefix)
	namespace, _, _ := strings.Cut(account, ":")
	name, uid := one(st.User.Extra[extraPodName]), one(st.User.Extra[extraPodUID])
	if !st.Authenticated || !slices.Contains(st.Audiences, tallyman.TokenAudience) || !isAccount || name == "" || uid == "" {
		return "", tallyman.Errorf(tallyman.Unauthorized, "attempt %s: this is not the token of a runner's Pod", ref)
	}
	if !slices.Contains(b.seen.namespaces, namespace) {
		return "", tallyman.Errorf(tallyman.Unauthorized, "attempt %s: Pods of namespace %s are not this server's", ref, namespace)
	}
	pod, err := b.pod(ctx, client.ObjectKey{Namespace: namespace, Name: name}, uid)
	if err != nil {
		return "", err
	}
	if mine, ours := job.RefOf(pod.Labels); !ours || mine != ref {
		return "", tallyman.Errorf(tallyman.Stale, "attempt %s: Pod %s is not its own", ref, pod.Name)
	}
	return uid, b.checkOwner(ctx, ref, pod)
}

func one(values authenticationv1.ExtraValue) string {
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// pod is the Pod of that name and UID: from memory, or when that does not know
// it yet from the API server.
func (b *Backend) pod(ctx context.Context, key client.ObjectKey, uid string) (*corev1.Pod, error) {
	if pod, there := b.seen.pods.get(key); there && string(pod.UID) == uid {
		return pod, nil
	}
	var pod corev1.Pod
	err := b.live.Get(ctx, key, &pod)
	if apierrors.IsNotFound(err) || err == nil && string(pod.UID) != uid {
		return nil, tallyman.Errorf(tallyman.Stale, "Pod %s is gone", key)
	}
	if err != nil {
		return nil, unreachable(err)
	}
	return &pod, nil
}

// checkOwner refuses a Pod that carries our labels but was made by somebody
// else: it must belong to the attempt's Job, or be the attempt's object.
func (b *Backend) checkOwner(ctx context.Context, ref tallyman.AttemptRef, pod *corev1.Pod) error {
	made, err := b.o.Object(ctx, ref)
	if err != nil {
		return err
	}
	switch made {
	case "":
		return tallyman.Errorf(tallyman.Unavailable, "attempt %s: what was made for it is not recorded yet", ref)
	case observe.ObjectOf(pod):
		return nil
	}
	return tallyman.Errorf(tallyman.Stale, "attempt %s: Pod %s was not made for it", ref, pod.Name)
}
