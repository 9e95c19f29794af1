package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/api/v1alpha1"
	"github.com/tallyman-dev/tallyman/internal/catalog"
)

// readAgent reads a resource of our own kind.
func readAgent(k key, u *unstructured.Unstructured) catalog.Resource {
	spec, err := json.Marshal(u.Object["spec"])
	if err != nil {
		return faulty(k, fmt.Errorf("%s: spec: it cannot be read: %w", k.origin(), err))
	}
	return catalog.ParseResource(k.origin(), k.namespace, k.name, u.GetAnnotations()["description"], spec)
}

// faulty is a resource that cannot be read.
func faulty(k key, err error) catalog.Resource {
	return catalog.Resource{
		Origin: k.origin(), Agent: tallyman.Agent{Name: k.name, Namespace: k.namespace},
		Err: tallyman.Errorf(tallyman.Invalid, "%w", err),
	}
}

// statusFor is the status that a resource should have; was is the one it has.
func (c *Controller) statusFor(ctx context.Context, generation int64, r catalog.Resource, was v1alpha1.AgentStatus) v1alpha1.AgentStatus {
	now := *was.DeepCopy()
	now.ObservedGeneration = generation
	c.mu.Lock()
	all, counted := c.counts[r.Agent.Namespace]
	n := all[r.Agent.Name]
	c.mu.Unlock()
	if counted {
		now.Queued, now.Running = n[tallyman.Queued], n[tallyman.Starting]+n[tallyman.Running]
		now.Succeeded, now.Failed, now.Stopped = n[tallyman.Succeeded], n[tallyman.Failed], n[tallyman.Stopped]
	}
	ready := c.judge(ctx, r)
	ready.Type, ready.ObservedGeneration = v1alpha1.Ready, generation
	meta.SetStatusCondition(&now.Conditions, ready)
	return now
}

// maxMessage is what a condition's message may have, in bytes.
const maxMessage = 8 << 10

// judge says whether runs of a resource can be had.
func (c *Controller) judge(ctx context.Context, r catalog.Resource) metav1.Condition {
	no := func(reason, message string) metav1.Condition {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")}
	}
	if r.Err != nil {
		return no(v1alpha1.ReasonInvalid, r.Message())
	}
	switch a, err := c.o.Catalog.Get(ctx, r.Agent.Namespace, r.Agent.Name); {
	case err != nil:
		return no(v1alpha1.ReasonHidden, err.Error())
	case a.Origin != r.Origin:
		return no(v1alpha1.ReasonHidden, "the server has an agent of this name from "+a.Origin+", which goes before")
	}
	return metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonValid, Message: "it can be run"}
}

// checked is the resource, or what is wrong with it where no Job can be made.
func (c *Controller) checked(ctx context.Context, r catalog.Resource) catalog.Resource {
	if r.Err != nil || c.o.Check == nil {
		return r
	}
	spec := r.Agent.Spec
	if spec.Harness == "exec" && len(spec.Command) == 0 && spec.Runner != tallyman.RunnerBare {
		spec.Command = []string{"true"} // a request brings it
	}
	if err := c.o.Check(ctx, spec); tallyman.CodeOf(err) == tallyman.Invalid {
		r.Err = tallyman.Errorf(tallyman.Invalid, "%s: %w", r.Origin, err)
	}
	return r
}

// statusOf reads a resource's status. One that does not fit is replaced.
func statusOf(u *unstructured.Unstructured) v1alpha1.AgentStatus {
	var s v1alpha1.AgentStatus
	b, err := json.Marshal(u.Object["status"])
	if err != nil || json.Unmarshal(b, &s) != nil {
		return v1alpha1.AgentStatus{}
	}
	return s
}

func encode(s v1alpha1.AgentStatus) (map[string]any, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode the status: %w", err)
	}
	var m map[string]any
	return m, json.Unmarshal(b, &m)
}

func same(a, b v1alpha1.AgentStatus) bool { return equality.Semantic.DeepEqual(a, b) }
