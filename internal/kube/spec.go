package kube

import (
	"context"
	"strings"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/envfrom"
	"github.com/tallyman-dev/tallyman/internal/kube/job"
)

// Preflight refuses a spec that cannot run in a cluster. Whether what it names
// there exists is found out when it runs.
func (b *Backend) Preflight(_ context.Context, spec tallyman.AgentSpec) error {
	_, err := envfrom.Resolve(spec, b.o.Lookup)
	if err != nil {
		return &tallyman.Error{Code: tallyman.Invalid, Reason: tallyman.ConfigMissing, Message: err.Error(), Err: err}
	}
	if spec.Workspace.Keep && !strings.HasPrefix(spec.Workspace.Path, "/") {
		return job.Invalid("spec.workspace.keep", "a Pod's own workspace goes with it; mount a volume in podTemplate and name its path")
	}
	_, err = b.o.Cluster.Job(job.Work{Run: tallyman.Run{ID: "01000000000000000000000000", Name: "preflight", Agent: "preflight"}, Attempt: 1, Spec: spec, Namespace: b.o.Namespace})
	return err
}

// Spec completes what a runner in a Pod is told. The variables of its
// container, Secrets among them, are there already.
func (b *Backend) Spec(_ context.Context, _ string, spec tallyman.RunnerSpec) (tallyman.RunnerSpec, error) {
	spec.WorkDir, spec.Home = tallyman.PodWork, tallyman.PodHome
	if path := spec.Agent.Workspace.Path; strings.HasPrefix(path, "/") {
		spec.WorkDir = path
	}
	declared, err := envfrom.Resolve(spec.Agent, b.o.Lookup)
	if err != nil {
		return spec, &tallyman.Error{Code: tallyman.Invalid, Reason: tallyman.ConfigMissing, Message: err.Error(), Err: err}
	}
	env := []tallyman.EnvVar{{Name: "HOME", Value: tallyman.PodHome}, {Name: "TMPDIR", Value: tallyman.PodTmp}}
	if spec.Agent.Harness == "claude" {
		env = append(env, tallyman.EnvVar{Name: "IS_SANDBOX", Value: "1"}) // a container is one
	}
	spec.Env = envfrom.LastWins(append(env, declared...))
	return spec, nil
}
