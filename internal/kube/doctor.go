package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/kube/job"
	"github.com/tallyman-dev/tallyman/internal/kube/observe"
)

// Checkup is what a cluster is looked at with, before anything runs in it.
type Checkup struct {
	Config     *rest.Config
	Cluster    job.Cluster
	Namespaces []string // each once; the first is that of agents from files
	Agents     []tallyman.Agent
	// NewID makes the id of a run that is none, for a Pod that tries whether
	// the server is reached; nil: nothing is tried.
	NewID func() string
	Owner string // the ConfigMap that owns the objects, "": none
}

// Finding is one thing that was looked at.
type Finding struct {
	What, Found string
	Broken      bool
	Mend        string // what to do when it is broken
}

// Check looks at everything that attempts in the cluster need. What cannot be
// asked is broken, with the reason; the rest is then not asked.
func (c Checkup) Check(ctx context.Context) []Finding {
	var clock clock
	config := rest.CopyConfig(c.Config)
	config.Wrap(clock.listening)
	live, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err == nil {
		err = live.Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: c.Namespaces[0], Verb: "get", Resource: "pods"}}})
	}
	if err != nil {
		return []Finding{{What: "cluster", Broken: true, Found: fmt.Sprintf("%s: %v", c.Config.Host, err), Mend: mendAccess(err)}}
	}
	all := []Finding{{What: "cluster", Found: c.Config.Host}, compare(clock.now(), time.Now())}
	all = append(all, c.clusterRights(ctx, live)...)
	takes := false // the first namespace our Pods
	for i, ns := range c.Namespaces {
		rights, sample := c.rights(ctx, live, ns), c.samplePod(ctx, live, ns)
		all = append(all, rights, sample)
		takes = takes || i == 0 && !sample.Broken
	}
	all = append(all, c.secrets(ctx, live)...)
	if c.NewID != nil && takes {
		all = append(all, c.reach(ctx, live, &clock))
	}
	return all
}

// apart is how far two clocks may be from each other.
const apart = time.Minute

// compare holds the cluster's clock against this machine's.
func compare(theirs, ours time.Time) Finding {
	f := Finding{What: "clock", Found: "the cluster's and this machine's agree", Mend: "set them by NTP: ends are told right all the same, but the times in a run's record are not all of one clock, and a Pod may take the server's certificate for one that is not valid yet"}
	if d := theirs.Sub(ours).Round(time.Second); d.Abs() > apart {
		f.Broken, f.Found = true, fmt.Sprintf("the cluster's is %s ahead of this machine's", d)
		if d < 0 {
			f.Found = fmt.Sprintf("the cluster's is %s behind this machine's", -d)
		}
	}
	return f
}

// mendAccess says what to do about a cluster that does not answer as it must.
func mendAccess(err error) string {
	switch {
	case apierrors.IsUnauthorized(err):
		return "the credentials are not good, or not any more: log in again, or name another file with --kubeconfig"
	case apierrors.IsForbidden(err):
		return "the account has no rights at all: see docs/kubernetes.md, The rights that it needs"
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return "who answers there is not vouched for: the kubeconfig needs the cluster's own authority (certificate-authority-data), and an address that its certificate names"
	default:
		return "no cluster answers there: check the address and the network, or name another file with --kubeconfig"
	}
}

// needed are the rights in a namespace, resource by resource.
var needed = []struct {
	group, resource, sub string
	verbs                []string
}{
	{"batch", "jobs", "", []string{"create", "get", "list", "watch", "delete", "patch"}},
	{"", "pods", "", []string{"create", "get", "list", "watch", "delete", "patch"}},
	{"", "pods", "log", []string{"get"}},
	{"", "events", "", []string{"get", "list", "watch"}},
	{"", "resourcequotas", "", []string{"get", "list", "watch"}},
	{"", "configmaps", "", []string{"get"}}, // of the owner
}

// rights says what is missing in a namespace.
func (c Checkup) rights(ctx context.Context, live client.Client, ns string) Finding {
	f := Finding{What: "rights in " + ns, Mend: "give the account the Role of docs/kubernetes.md, or of the Helm chart, in namespace " + ns}
	var missing []string
	for _, n := range needed {
		if n.resource == "configmaps" && c.Owner == "" {
			continue
		}
		for _, verb := range n.verbs {
			may, err := allowed(ctx, live, authorizationv1.ResourceAttributes{Namespace: ns, Verb: verb, Group: n.group, Resource: n.resource, Subresource: n.sub})
			if err != nil {
				f.Broken, f.Found = true, err.Error()
				return f
			}
			if !may {
				missing = append(missing, verb+" "+strings.TrimSuffix(n.resource+"/"+n.sub, "/"))
			}
		}
	}
	if f.Broken = len(missing) > 0; f.Broken {
		f.Found = "missing: " + strings.Join(missing, ", ")
	} else {
		f.Found = "all that are needed"
	}
	return f
}

func allowed(ctx context.Context, live client.Client, a authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}
	if err := live.Create(ctx, review); err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// clusterRights looks at the two rights that no namespace has.
func (c Checkup) clusterRights(ctx context.Context, live client.Client) []Finding {
	tokens := Finding{What: "tokenreviews", Found: "Pods are known by their tokens", Mend: "let the account create tokenreviews.authentication.k8s.io (ClusterRole): without them only bare images run"}
	err := live.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "none", Audiences: []string{tallyman.TokenAudience}}})
	if err != nil {
		tokens.Broken, tokens.Found = true, err.Error()
	}
	nodes := Finding{What: "nodes", Found: "their sizes are known: what no node can hold fails at once"}
	if may, err := allowed(ctx, live, authorizationv1.ResourceAttributes{Verb: "list", Resource: "nodes"}); err != nil || !may {
		nodes.Found = "may not be listed (optional): what no node can hold waits for start-timeout"
	}
	return []Finding{tokens, nodes}
}

// samplePod asks whether a namespace takes a Pod of ours: whether it is there,
// its security, limits, quotas and webhooks. Nothing is made.
func (c Checkup) samplePod(ctx context.Context, live client.Client, ns string) Finding {
	f := Finding{What: "Pods in " + ns, Found: "the namespace takes ours", Mend: "see the words of the cluster; podTemplate of an agent adds what a namespace wants"}
	pod, err := c.pod("01000000000000000000000000", ns)
	if err != nil {
		f.Broken, f.Found, f.Mend = true, err.Error(), "start the server with --runner-image and --advertise"
		return f
	}
	err = live.Create(ctx, pod, client.DryRunAll)
	switch {
	case err == nil:
	case apierrors.IsNotFound(err):
		f.Broken, f.Found, f.Mend = true, "there is no namespace "+ns, "kubectl create namespace "+ns+", or name another with --namespace or --namespaces"
	default:
		f.Broken, f.Found = true, err.Error()
	}
	return f
}

// pod is a Pod of an attempt of no run.
func (c Checkup) pod(run, ns string) (*corev1.Pod, error) {
	if c.Cluster.RunnerImage == "" {
		return nil, errors.New("there is no image with the runner")
	}
	if c.Cluster.Advertise == "" {
		return nil, errors.New("there is no URL where Pods reach the server")
	}
	spec := tallyman.AgentSpec{Harness: "exec", Command: []string{"true"}, Image: c.Cluster.RunnerImage, Runner: tallyman.RunnerImage, Workload: tallyman.WorkloadPod}
	return c.Cluster.Pod(job.Work{Run: tallyman.Run{ID: run, Name: "doctor-" + strings.ToLower(run[max(0, len(run)-8):]), Agent: "doctor"}, Attempt: 1, Spec: spec, Namespace: ns})
}

// secrets looks for the Secrets that agents name, and their keys, where it may.
func (c Checkup) secrets(ctx context.Context, live client.Client) []Finding {
	var needs []need
	for _, a := range c.Agents {
		for _, src := range a.Spec.EnvFrom {
			if src.SecretRef == nil || src.Optional {
				continue
			}
			ns := c.Namespaces[0]
			if tallyman.IsResource(a.Origin) {
				ns = a.Namespace
			}
			i := slices.IndexFunc(needs, func(n need) bool { return n.namespace == ns && n.name == src.SecretRef.Name })
			if i < 0 {
				i = len(needs)
				needs = append(needs, need{namespace: ns, name: src.SecretRef.Name})
			}
			needs[i].add(src.SecretRef.Key, a.Name)
		}
	}
	var all []Finding
	for _, n := range needs {
		all = append(all, n.secret(ctx, live))
	}
	return all
}

// need is what agents want of a Secret.
type need struct {
	namespace, name string
	keys, agents    []string
}

func (n *need) add(key, agent string) {
	if key != "" && !slices.Contains(n.keys, key) {
		n.keys = append(n.keys, key)
	}
	if !slices.Contains(n.agents, agent) {
		n.agents = append(n.agents, agent)
	}
}

func (n *need) who() string {
	if len(n.agents) == 1 {
		return "agent " + n.agents[0]
	}
	return "agents " + strings.Join(n.agents, ", ")
}

// secret looks for it, and for the keys that are named.
func (n *need) secret(ctx context.Context, live client.Client) Finding {
	f := Finding{What: "Secret " + n.name, Found: "is there, for " + n.who()}
	var s corev1.Secret
	err := live.Get(ctx, client.ObjectKey{Namespace: n.namespace, Name: n.name}, &s)
	missing := slices.DeleteFunc(slices.Clone(n.keys), func(key string) bool { _, has := s.Data[key]; return has })
	switch {
	case apierrors.IsNotFound(err):
		if len(missing) == 0 {
			missing = []string{"NAME"} // all of its keys are taken
		}
		f.Broken, f.Found = true, fmt.Sprintf("is not in namespace %s; it is used by %s", n.namespace, n.who())
		f.Mend = fmt.Sprintf("kubectl -n %s create secret generic %s", n.namespace, n.name)
		for _, key := range missing {
			f.Mend += fmt.Sprintf(" --from-literal=%s=VALUE", key)
		}
	case err != nil:
		f.Found = "may not be looked at, which is as it should be; whether it is there is seen when it is used, by " + n.who()
	case len(missing) > 0:
		values := make([]string, len(missing))
		for i, key := range missing {
			values[i] = fmt.Sprintf("%q:\"VALUE\"", key)
		}
		f.Broken, f.Found = true, fmt.Sprintf("in namespace %s has no key %s; it is used by %s", n.namespace, strings.Join(missing, ", "), n.who())
		f.Mend = fmt.Sprintf("kubectl -n %s patch secret %s -p '{\"stringData\":{%s}}'", n.namespace, n.name, strings.Join(values, ","))
	}
	return f
}

// reachPatience is how long a Pod may take to start and to try.
const reachPatience = reach + 40*time.Second

// imagePatience is how long its image may fail to come.
const imagePatience = 20 * time.Second

// leavePatience is how long taking the Pod away may keep one from going.
const leavePatience = 10 * time.Second

// reach is how long a runner tries to reach its server.
const reach = 50 * time.Second

// reach runs a Pod that says hello to the server for a run that is none.
func (c Checkup) reach(ctx context.Context, live client.Client, clock *clock) Finding {
	f := Finding{What: "reach", Mend: fmt.Sprintf("from a Pod in namespace %s the server must be reached at %s (--advertise): check network policies, name and port; see kubectl describe pod", c.Namespaces[0], c.Cluster.Advertise)}
	pod, err := c.pod(c.NewID(), c.Namespaces[0])
	if err == nil {
		err = live.Create(ctx, pod)
	}
	if err != nil {
		f.Broken, f.Found = true, err.Error()
		return f
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leavePatience)
		defer cancel()
		_ = live.Delete(ctx, pod, client.GracePeriodSeconds(1)) // its deadline ends it, too
	}()
	ctx, cancel := context.WithTimeout(ctx, reachPatience)
	defer cancel()
	scene := observe.Scene{Pod: pod, Made: true, Patience: imagePatience}
	for {
		if err := live.Get(ctx, client.ObjectKeyFromObject(pod), scene.Pod); err != nil {
			f.Broken, f.Found = true, err.Error()
			return f
		}
		scene.Now = clock.now()
		o := observe.Look(scene)
		switch {
		case o.Gone && o.Cause != nil:
			return c.reached(f, *o.Cause)
		case o.Blocked != nil && o.Blocked.Hopeless:
			f.Broken, f.Found = true, o.Blocked.Message
			if o.Blocked.Reason == tallyman.ImagePullFailed {
				f.Mend = "the Pod that tries it needs the runner's image: name one that the nodes can pull with --runner-image"
			}
			return f
		}
		select {
		case <-ctx.Done():
			f.Broken, f.Found = true, "the Pod did not end in time"
			if o.Blocked != nil {
				f.Found += ": " + o.Blocked.Message
			}
			return f
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// reached reads the last word of such a Pod's runner: a server that has
// answered refuses it, since nothing is known of its run.
func (c Checkup) reached(f Finding, cause tallyman.Cause) Finding {
	if cause.Reason == tallyman.ServerUnreachable || !strings.Contains(cause.Message, "has no attempt") {
		f.Broken, f.Found = true, cause.Message
		return f
	}
	f.Found = "a Pod reaches the server at " + c.Cluster.Advertise
	return f
}
