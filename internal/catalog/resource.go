package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/strictyaml"
)

// Resource is an agent that a cluster has, or what is wrong with it.
type Resource struct {
	Origin string // resource:GROUP/KIND/NAMESPACE/NAME
	Agent  tallyman.Agent
	Err    error // then only the agent's name and namespace count
	After  bool  // another resource of the same name goes before this one
}

// SetResource takes over a resource as it is now. What was known under its
// origin is forgotten.
func (c *Catalog) SetResource(r Resource) {
	r.Agent.Origin = r.Origin
	c.mu.Lock()
	defer c.mu.Unlock()
	was, known := c.resources[r.Origin]
	c.resources[r.Origin] = r
	if r.Err != nil && (!known || was.Err == nil || was.Err.Error() != r.Err.Error()) {
		c.log.Warn("a resource is no agent that can be run", "resource", r.Origin, "err", r.Err)
	}
}

// DropResource forgets a resource that is gone.
func (c *Catalog) DropResource(origin string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.resources, origin)
}

// inCluster returns the resources that count, by origin.
func (c *Catalog) inCluster() []Resource {
	c.mu.Lock()
	defer c.mu.Unlock()
	best := map[agentKey]Resource{}
	for _, r := range c.resources {
		if was, there := best[keyOf(r.Agent)]; !there || was.After && !r.After {
			best[keyOf(r.Agent)] = r
		}
	}
	all := make([]Resource, 0, len(best))
	for _, r := range best {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Resource) int { return strings.Compare(a.Origin, b.Origin) })
	return all
}

// ParseResource reads a resource of the kind Agent, by the rules of agent
// files. Nothing of the server's own is for it to take: neither its
// environment nor its files. The error is Invalid and joins what is wrong,
// each beginning with the field's path.
func ParseResource(origin, namespace, name, description string, spec []byte) Resource {
	r := Resource{Origin: origin, Agent: tallyman.Agent{Name: name, Namespace: namespace, Origin: origin, Description: description}}
	wrapped := append(append([]byte(`{"spec":`), spec...), '}')
	docs, err := strictyaml.Parse(origin, wrapped)
	if err != nil || len(docs) != 1 {
		r.Err = tallyman.Errorf(tallyman.Invalid, "%s: spec: it cannot be read: %w", origin, err)
		return r
	}
	var body struct {
		Spec tallyman.AgentSpec `json:"spec"`
	}
	var told []string
	for _, f := range docs[0].Decode(&body) {
		told = append(told, f.Message)
	}
	r.Agent.Spec = body.Spec
	wrong := append(validate(r.Agent), envTwice(body.Spec.Env)...)
	for _, w := range append(wrong, ofServer(body.Spec)...) {
		if !docs[0].Doubtful(w.Path) {
			told = append(told, w.Error())
		}
	}
	r.Err = faulty(origin, told)
	return r
}

// CheckResource completes a resource that was made by other rules.
func CheckResource(r Resource) Resource {
	r.Agent.Origin = r.Origin
	if r.Err != nil {
		return r
	}
	var told []string
	for _, w := range append(validate(r.Agent), ofServer(r.Agent.Spec)...) {
		told = append(told, w.Error())
	}
	r.Err = faulty(r.Origin, told)
	return r
}

func faulty(origin string, told []string) error {
	if len(told) == 0 {
		return nil
	}
	errs := make([]error, len(told))
	for i, t := range told {
		errs[i] = fmt.Errorf("%s: %s", origin, t)
	}
	return tallyman.Errorf(tallyman.Invalid, "%w", errors.Join(errs...))
}

// ofServer refuses what would bring the server's own secrets into a Pod that
// whoever may write a resource can read.
func ofServer(spec tallyman.AgentSpec) []*FieldError {
	var wrong []*FieldError
	for i, from := range spec.EnvFrom {
		path := fmt.Sprintf("spec.envFrom[%d]", i)
		if from.Host != nil {
			wrong = append(wrong, fieldError(path+".host", "the server's environment is not for agents in a cluster; write secretRef"))
		}
		if from.File != "" {
			wrong = append(wrong, fieldError(path+".file", "the server's files are not for agents in a cluster; write secretRef"))
		}
	}
	return wrong
}

// Message is what is wrong with a resource, without its origin in each line.
func (r Resource) Message() string {
	if r.Err == nil {
		return ""
	}
	lines := strings.Split(r.Err.Error(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, r.Origin+": ")
	}
	return strings.Join(lines, "\n")
}
