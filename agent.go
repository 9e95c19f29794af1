package tallyman

import (
	"encoding/json"
	"strings"
	"time"
)

// APIVersion and KindAgent head every agent file and custom resource.
const (
	APIVersion = "tallyman.dev/v1alpha1"
	KindAgent  = "Agent"
)

// BuiltIn is the origin of the agents that come with tallyman.
const BuiltIn = "built-in"

// ResourceOrigin heads the origin of agents that are resources of a cluster.
const ResourceOrigin = "resource:"

// IsResource reports whether an agent of this origin is such a resource.
func IsResource(origin string) bool { return strings.HasPrefix(origin, ResourceOrigin) }

// Agent is a named configuration of how to run.
type Agent struct {
	Name        string    `json:"name"`
	Namespace   string    `json:"namespace"`
	Origin      string    `json:"origin"` // BuiltIn, the file it was read from, or ResourceOrigin and which one
	Description string    `json:"description,omitempty"`
	Spec        AgentSpec `json:"spec"`
}

// AgentSpec is what an agent file says under spec. One type for files, the
// API and the custom resource.
type AgentSpec struct {
	Harness     string      `json:"harness"`              // claude, codex, gemini, opencode, exec or script
	Command     []string    `json:"command,omitempty"`    // exec: the whole command line; others: the program, our flags follow
	Image       string      `json:"image,omitempty"`      // kube only: of the agent's container; without a tag it gets the server's default-tag
	Model       string      `json:"model,omitempty"`      // by the name that the harness knows
	Env         []EnvVar    `json:"env,omitempty"`        // of the agent's process, which has little else
	EnvFrom     []EnvSource `json:"envFrom,omitempty"`    // secrets for that environment
	PromptFile  bool        `json:"promptFile,omitempty"` // put the prompt in the workspace and send a pointer to it
	Limits      Limits      `json:"limits,omitzero"`
	Concurrency Concurrency `json:"concurrency,omitzero"`
	Priority    int         `json:"priority,omitempty"` // higher first; 0 by default
	Retry       Retry       `json:"retry,omitzero"`
	Outputs     []Output    `json:"outputs,omitempty"` // files that must be there at the end; they are kept
	Workspace   Workspace   `json:"workspace,omitzero"`
	// +kubebuilder:validation:Schemaless
	MCPServers map[string]json.RawMessage `json:"mcpServers,omitempty"` // as the harness knows them; "required": true is ours
	// +kubebuilder:validation:Schemaless
	Settings map[string]json.RawMessage `json:"settings,omitempty"` // particular to the harness
	Runner   RunnerMode                 `json:"runner,omitempty"`   // kube only
	Workload Workload                   `json:"workload,omitempty"` // kube only
	// +kubebuilder:validation:Schemaless
	PodTemplate json.RawMessage `json:"podTemplate,omitempty"` // kube only: a Pod's metadata and spec, under ours
}

// RunnerMode says how a runner gets into the agent's container.
type RunnerMode string

// The modes. RunnerInject, the default, copies it there in an init container;
// RunnerImage finds it in the image, at /tallyman-runner; RunnerBare has none:
// the image's own entrypoint is the agent.
const (
	RunnerInject RunnerMode = "inject"
	RunnerImage  RunnerMode = "image"
	RunnerBare   RunnerMode = "bare"
)

// RunnerModes lists every mode.
var RunnerModes = []RunnerMode{RunnerInject, RunnerImage, RunnerBare}

// Workload says which object an attempt is in a cluster.
type Workload string

// The workloads: a Job, the default, or the same Pod without one, for
// clusters whose Job controller is slow.
const (
	WorkloadJob Workload = "job"
	WorkloadPod Workload = "pod"
)

// Workloads lists every workload.
var Workloads = []Workload{WorkloadJob, WorkloadPod}

// EnvVar is one variable of the harness's environment.
type EnvVar struct {
	Name  string `json:"name"`           // of the variable
	Value string `json:"value"`          // as it stands; nothing is expanded in it
	Mask  *bool  `json:"mask,omitempty"` // default: false here, true for envFrom
}

// EnvSource takes variables from elsewhere; exactly one of its kinds is given.
// They are secrets: masked everywhere unless mask is false.
type EnvSource struct {
	Host      []string   `json:"host,omitempty"`      // names in the environment of the server's process
	File      string     `json:"file,omitempty"`      // KEY=VALUE lines; relative to the agent file
	SecretRef *SecretRef `json:"secretRef,omitempty"` // a Kubernetes Secret; kube only
	Optional  bool       `json:"optional,omitempty"`  // run also when it is not there
	Mask      *bool      `json:"mask,omitempty"`      // default true: its values are masked in everything that is kept
}

// SecretRef names a Kubernetes Secret, and one key of it or all.
type SecretRef struct {
	Name string `json:"name"`          // of a Secret in the namespace of the Job
	Key  string `json:"key,omitempty"` // the variable of this name; "": all keys
}

// Concurrency caps how many attempts of an agent run at once.
type Concurrency struct {
	Max    *int   `json:"max,omitempty"`
	Key    string `json:"key,omitempty"`
	Policy string `json:"policy,omitempty"`
}

// Retry says which failed attempts are followed by another.
type Retry struct {
	Max     *int     `json:"max,omitempty"`     // more attempts after the first; 0: never; default by class of reason
	Backoff Duration `json:"backoff,omitempty"` // before the first retry, doubled each time; default 2s
	On      []Reason `json:"on,omitempty"`      // retried in addition to the defaults
	Safe    bool     `json:"safe,omitempty"`    // the work may be done twice: infra failures retry 3 times after the start
}

// Output is a file, or files, that a run must leave in its workspace.
type Output struct {
	Path     string `json:"path"`               // a pattern relative to the workspace; ** crosses folders
	Required *bool  `json:"required,omitempty"` // default true
	// +kubebuilder:validation:Schemaless
	Schema json.RawMessage `json:"schema,omitempty"` // JSON Schema that each such file must satisfy
}

// IsRequired reports whether a run without this output has failed.
func (o Output) IsRequired() bool { return o.Required == nil || *o.Required }

// Workspace says where a run works: "fresh" (an empty folder per attempt, the
// default), an absolute path, or git:URL#ref. A plain string is the path.
type Workspace struct {
	Path string `json:"path,omitempty"` // fresh, an absolute path, or git:URL#ref; default fresh
	Keep bool   `json:"keep,omitempty"` // a retry goes on in the folder of the attempt before
}

// UnmarshalJSON reads a plain string as the path.
func (w *Workspace) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &w.Path)
	}
	type plain Workspace
	return json.Unmarshal(b, (*plain)(w))
}

// DefaultBackoff is what Retry.Backoff is when not given; MaxBackoff is what
// doubling stops at, unless the first wait is longer already.
const (
	DefaultBackoff = 2 * time.Second
	MaxBackoff     = 5 * time.Minute
)
