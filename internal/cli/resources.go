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
	"github.com/tallyman-dev/tallyman/client"
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

// watched are the namespaces whose resources are agents of a server.
func watched(cfg config.Config, p Program) []string {
	if p.Resources[cfg.Backend] == nil {
		return nil
	}
	return cfg.Watched()
}

// resources are the agents that the server of the data folder has from a
// cluster, none where no server is there: the command line has only files.
func (c *command) resources(ctx context.Context, cfg config.Config) []tallyman.Agent {
	there := client.NewSocket(socketPath(cfg.Data))
	defer there.Close()
	agents, err := there.Agents(ctx)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(agents, func(a tallyman.Agent) bool { return !tallyman.IsResource(a.Origin) })
}

// withResources adds resources to what the command line has. Files go before
// resources, resources before what is built in.
func withResources(items, resources []tallyman.Agent) []tallyman.Agent {
	for _, r := range resources {
		i := slices.IndexFunc(items, func(a tallyman.Agent) bool { return a.Namespace == r.Namespace && a.Name == r.Name })
		switch {
		case i < 0:
			items = append(items, r)
		case items[i].Origin == tallyman.BuiltIn:
			items[i] = r
		}
	}
	slices.SortFunc(items, func(a, b tallyman.Agent) int {
		return strings.Compare(tallyman.AgentKey(a.Namespace, a.Name), tallyman.AgentKey(b.Namespace, b.Name))
	})
	return items
}

// resource is the agent that a request names, where the server of the data
// folder has it from a cluster.
func (s *session) resource(ctx context.Context, req *tallyman.Request) (tallyman.Agent, bool) {
	agents := s.c.resources(ctx, s.cfg)
	i := slices.IndexFunc(agents, func(a tallyman.Agent) bool {
		return a.Name == req.Agent && a.Namespace == cmp.Or(req.Namespace, tallyman.DefaultNamespace)
	})
	if i < 0 {
		return tallyman.Agent{}, false
	}
	return agents[i], true
}
