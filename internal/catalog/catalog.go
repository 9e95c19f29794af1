// Package catalog knows the agents: those in files, which it reads again when
// they change, those that a cluster has as resources, of which it is told, and
// those that come with tallyman, in this order. It says what is wrong with a
// file or a resource, and where.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/strictyaml"
)

// agentKey is what an agent is found by.
type agentKey struct{ namespace, name string }

func keyOf(a tallyman.Agent) agentKey { return agentKey{a.Namespace, a.Name} }

func (k agentKey) String() string { return tallyman.AgentName(k.namespace, k.name) }

// Catalog finds agents by name. It looks at the files on each call and reads
// those that have changed; nothing runs in between. It may be used by several
// goroutines at once.
type Catalog struct {
	paths   []string
	builtin []tallyman.Agent
	log     *slog.Logger

	mu        sync.Mutex // guards what follows
	files     map[string]*file
	resources map[string]Resource // by origin
}

// New makes a catalog of files and folders, where the earlier wins, and at
// last the built-in agents (none is fine). A folder's files are those ending
// in .yaml, .yml or .json; folders within it are not entered. A path that ends
// in a slash may be missing. A file that cannot be used is logged once; a nil
// log says nothing.
func New(paths []string, builtin []tallyman.Agent, log *slog.Logger) *Catalog {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Catalog{paths: slices.Clone(paths), builtin: builtin, log: log, files: map[string]*file{}, resources: map[string]Resource{}}
}

// Get returns an agent; an empty namespace is the usual one, and built-in
// agents are in every namespace. A file with faults hides what comes after it:
// if it is about this agent, its faults are the answer, and so are those of a
// resource. The error is Invalid,
// for an unknown agent too, since whoever asks has to mend something; it tells
// the nearest name. What the agent holds must not be changed.
func (c *Catalog) Get(ctx context.Context, namespace, name string) (tallyman.Agent, error) {
	if err := ctx.Err(); err != nil {
		return tallyman.Agent{}, fmt.Errorf("look for agent %s: %w", name, err)
	}
	if namespace == "" {
		namespace = tallyman.DefaultNamespace
	}
	key := agentKey{namespace, name}
	places := c.look()
	for _, p := range places {
		if p.err != nil {
			return tallyman.Agent{}, tallyman.Errorf(tallyman.Invalid, "%w", p.err)
		}
		switch about := p.about(key); {
		case len(about) > 1:
			return tallyman.Agent{}, tallyman.Errorf(tallyman.Invalid, "%w", twice(key, about))
		case len(about) == 1 && about[0].err != nil:
			return tallyman.Agent{}, tallyman.Errorf(tallyman.Invalid, "%w", about[0].err)
		case len(about) == 1:
			return about[0].agent(key), nil
		}
	}
	for _, r := range c.inCluster() {
		if keyOf(r.Agent) != key {
			continue
		}
		if r.Err != nil {
			return tallyman.Agent{}, tallyman.Errorf(tallyman.Invalid, "%w", r.Err)
		}
		return r.Agent, nil
	}
	for _, a := range c.builtin {
		if a.Name == name {
			a.Namespace = namespace
			return a, nil
		}
	}
	return tallyman.Agent{}, c.unknown(key, places)
}

// List returns the agents in use, by namespace and name, and an error for each
// place or file that cannot be used and each agent that is there twice.
func (c *Catalog) List(ctx context.Context) ([]tallyman.Agent, []error) {
	if err := ctx.Err(); err != nil {
		return nil, []error{fmt.Errorf("list agents: %w", err)}
	}
	var agents []tallyman.Agent
	var errs []error
	taken := map[agentKey]bool{} // also by files with faults
	for _, p := range c.look() {
		errs = append(errs, p.faults()...)
		for _, f := range p.files {
			for _, a := range f.agents {
				if key := keyOf(a); len(p.about(key)) == 1 && !taken[key] {
					agents = append(agents, a)
				}
			}
		}
		for _, f := range p.files {
			for _, key := range f.claims {
				taken[key] = true
			}
		}
	}
	for _, r := range c.inCluster() {
		key := keyOf(r.Agent)
		switch {
		case taken[key]:
			continue
		case r.Err != nil:
			errs = append(errs, r.Err)
		default:
			agents = append(agents, r.Agent)
		}
		taken[key] = true
	}
	for _, a := range c.builtin {
		if !taken[keyOf(a)] {
			agents = append(agents, a)
		}
	}
	slices.SortFunc(agents, func(a, b tallyman.Agent) int {
		return strings.Compare(a.Namespace+"\x00"+a.Name, b.Namespace+"\x00"+b.Name)
	})
	return agents, errs
}

// unknown says that there is no such agent, what may have been meant, where it
// was looked for, and which files could not be read there.
func (c *Catalog) unknown(key agentKey, places []place) error {
	var known, elsewhere, looked []string
	var broken []error
	for _, p := range places {
		looked = append(looked, p.String())
		for _, f := range p.files {
			for _, a := range f.agents {
				if a.Namespace == key.namespace {
					known = append(known, a.Name)
				}
			}
			if f.err != nil {
				broken = append(broken, f.err)
			}
		}
	}
	for _, r := range c.inCluster() {
		switch {
		case r.Agent.Namespace == key.namespace:
			known = append(known, r.Agent.Name)
		case r.Agent.Name == key.name:
			elsewhere = append(elsewhere, keyOf(r.Agent).String())
		}
	}
	for _, a := range c.builtin {
		known = append(known, a.Name)
	}
	slices.Sort(known)
	known = slices.Compact(known)
	text := fmt.Sprintf("unknown agent %q", key.String())
	if near := strictyaml.Nearest(key.name, known); len(elsewhere) > 0 {
		text += "; there is " + strings.Join(elsewhere, ", ")
	} else if near != "" {
		text += fmt.Sprintf("; did you mean %q?", agentKey{key.namespace, near})
	} else if len(known) > 0 && key.namespace != tallyman.DefaultNamespace {
		text += "; in " + key.namespace + " there are " + strings.Join(known, ", ")
	} else if len(known) > 0 {
		text += "; there are " + strings.Join(known, ", ")
	}
	if len(looked) > 0 {
		text += "\nlooked in " + strings.Join(looked, ", ")
	}
	if err := errors.Join(broken...); err != nil {
		text += "\nnot readable there:\n" + err.Error()
	}
	return tallyman.Errorf(tallyman.Invalid, "%s", text)
}

// twice says that files of one place are about the same agent.
func twice(key agentKey, about []*file) error {
	names := make([]string, len(about))
	for i, f := range about {
		names[i] = f.path
	}
	return fmt.Errorf("agent %s is in two files: %s; rename it in one of them", key, strings.Join(names, " and "))
}

// missing reports whether an error only says that nothing is there.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
