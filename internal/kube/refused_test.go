package kube

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tallyman-dev/tallyman"
)

// What an API server says about a Job or a Pod that it does not take.
func TestRefused(t *testing.T) {
	pods, jobs := schema.GroupResource{Resource: "pods"}, schema.GroupResource{Group: "batch", Resource: "jobs"}
	forbidden := func(r schema.GroupResource, words string) error {
		return apierrors.NewForbidden(r, "x", errors.New(words))
	}
	for name, c := range map[string]struct {
		err    error
		reason tallyman.Reason
		wait   tallyman.WaitReason
	}{
		"no right to make Jobs":   {forbidden(jobs, `User "u" cannot create resource "jobs" in API group "batch"`), "", tallyman.NoBackend},
		"no right to make Pods":   {forbidden(pods, `User "u" cannot create resource "pods" in API group ""`), "", tallyman.NoBackend},
		"no room for Jobs":        {forbidden(jobs, "exceeded quota: few, requested: count/jobs.batch=1"), "", tallyman.Quota},
		"no room for Pods":        {forbidden(pods, "exceeded quota: few, requested: pods=1"), "", tallyman.Quota},
		"a rule about Jobs":       {forbidden(jobs, "violates the policy"), tallyman.InvalidSpec, ""},
		"a webhook's own code":    {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 418, Message: `admission webhook "w" denied the request: no`}}, tallyman.InvalidSpec, ""},
		"a webhook that is down":  {apierrors.NewInternalError(errors.New(`failed calling webhook "w"`)), "", tallyman.NoBackend},
		"a namespace that ends":   {forbidden(jobs, "unable to create new content in namespace n because it is being terminated"), tallyman.ConfigMissing, ""},
		"a namespace that is not": {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "n"), tallyman.ConfigMissing, ""},
		"an API server that ends": {apierrors.NewServiceUnavailable("shutting down"), "", tallyman.NoBackend},
	} {
		var e *tallyman.Error
		if err := refused(c.err); !errors.As(err, &e) || e.Reason != c.reason || e.Wait != c.wait {
			t.Errorf("%s: %q %q (%v), want %q %q", name, e.Reason, e.Wait, err, c.reason, c.wait)
		}
	}
}
