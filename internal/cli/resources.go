package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/catalog"
	"github.com/tallyman-dev/tallyman/internal/config"
	"github.com/tallyman-dev/tallyman/internal/harness"
)

// Loop is something that a server does until ctx ends.
type Loop interface {
	Run(ctx context.Context) error
}

// ResourceOptions are what keeps the agents of resources is made of.
type ResourceOptions struct {
	Config  config.Config
	Catalog *catalog.Catalog
	Runs    AgentCounter
	// Check refuses a spec that could not be run here.
	Check   func(ctx context.Context, spec tallyman.AgentSpec) error
	Changed <-chan struct{} // gets a notice when runs have changed
	Log     *slog.Logger
}

// CheckOptions are what a check of doctor looks with.
type CheckOptions struct {
	Config config.Config
	CA     string           // PEM of who vouches for the server, "": the system's roots, or no server has run
	Agents []tallyman.Agent // that the data folder's server would run
	Serves bool             // it serves just now
	NewID  func() string    // makes the id of a run
}

// checkBackend looks at what the backend needs elsewhere.
func (c *command) checkBackend(ctx context.Context, cfg config.Config) []Finding {
	check := c.program.Checks[cfg.Backend]
	if check == nil {
		return nil
	}
	o := CheckOptions{Config: cfg, NewID: func() string { return ulid.Make().String() }}
	if cfg.UsesTLS() && cfg.TLSCert == "" {
		if a, err := readAuthority(cfg.Data); err == nil {
			o.CA = string(a.pem)
		}
	}
	o.Agents, _, _ = c.findAgents(ctx) // what is wrong with them is told beside this
	if s, err := c.connect(ctx, looks); err == nil {
		info, err := s.Info(ctx)
		o.Serves = err == nil && info.PID != os.Getpid() && info.URL != ""
	}
	return check(ctx, o)
}

// AgentCounter counts the runs of each agent of a namespace, by state.
type AgentCounter interface {
	AgentCounts(ctx context.Context, namespace string) (map[string]map[tallyman.State]int64, error)
}

// watchResources makes what keeps the agents of resources, where the backend
// has such. Only who admits runs does: it alone writes what is known of them.
func (s *server) watchResources(o serverOptions) error {
	make, ok := o.program.Resources[s.cfg.Backend]
	if !ok || o.role != admits {
		return nil
	}
	changed, end := s.house.service.Changed()
	s.closers = append(s.closers, func() error { end(); return nil })
	check := func(ctx context.Context, spec tallyman.AgentSpec) error {
		if err := harness.Check(spec); err != nil {
			return err
		}
		return s.backend.Preflight(ctx, spec)
	}
	loop, err := make(ResourceOptions{Config: s.cfg, Catalog: s.house.agents, Runs: s.house.store, Check: check, Changed: changed, Log: s.log})
	if err != nil {
		return fmt.Errorf("watch agents of %s: %w", s.cfg.Backend, err)
	}
	s.agents = loop
	return nil
}

// watched are the namespaces whose resources are agents here.
func (s *server) watched() []string {
	if s.agents == nil {
		return nil
	}
	all := append([]string{s.cfg.Namespace}, s.cfg.Namespaces...)
	slices.Sort(all)
	return slices.Compact(all)
}

// agentNamed reads the name of an agent, which may have its namespace before
// it: NAMESPACE/NAME. What is no such name stays whole, to be refused.
func agentNamed(word string) (namespace, name string) {
	namespace, name, both := strings.Cut(word, "/")
	if !both || tallyman.ValidName("namespace", namespace) != nil || tallyman.ValidName("agent", name) != nil {
		return "", word
	}
	return namespace, name
}

// nameOf is how an agent is named on the command line.
func nameOf(a tallyman.Agent) string {
	if a.Namespace == "" || a.Namespace == tallyman.DefaultNamespace {
		return a.Name
	}
	return a.Namespace + "/" + a.Name
}

// resource is the agent that a request names, where the server of the data
// folder has it from a cluster: the command line has only files.
func (s *session) resource(req *tallyman.Request) (tallyman.Agent, bool) {
	if s.cfg.Backend == "" || s.c.program.Resources[s.cfg.Backend] == nil && req.Namespace == "" {
		return tallyman.Agent{}, false
	}
	agents, err := s.Agents(context.Background())
	if err != nil {
		return tallyman.Agent{}, false
	}
	for _, a := range agents {
		if tallyman.IsResource(a.Origin) && a.Name == req.Agent && a.Namespace == cmp.Or(req.Namespace, tallyman.DefaultNamespace) {
			return a, true
		}
	}
	return tallyman.Agent{}, false
}
