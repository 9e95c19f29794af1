package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tallyman-dev/tallyman/internal/cli"
	"github.com/tallyman-dev/tallyman/internal/config"
	"github.com/tallyman-dev/tallyman/internal/controller"
	"github.com/tallyman-dev/tallyman/internal/kube"
)

// watchAgents makes what reads the cluster's resources as agents.
func watchAgents(o cli.ResourceOptions) (cli.Loop, error) {
	rest, err := clusterConfig(o.Config)
	if err != nil {
		return nil, err
	}
	return controller.New(controller.Options{
		Config: rest, Namespaces: o.Config.Watched(),
		Catalog: o.Catalog, Runs: o.Runs, Check: o.Check, Changed: o.Changed, Log: o.Log,
	})
}

// checkPatience is how long doctor waits for a cluster, a Pod that tries to
// reach the server among it.
const checkPatience = 2 * time.Minute

// check looks, for doctor, at everything that attempts in a cluster need.
func check(ctx context.Context, o cli.CheckOptions) []cli.Finding {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	cfg, err := clusterConfig(o.Config)
	if err != nil {
		return []cli.Finding{{What: "cluster", Found: err.Error(), Mend: "name a file with --kubeconfig"}}
	}
	cfg.Timeout = patience
	c := kube.Checkup{Config: cfg, Namespaces: o.Config.Watched(), Agents: o.Agents, Cluster: cluster(o.Config, o.CA), Owner: o.Config.Owner}
	if o.Serves {
		c.NewID = o.NewID
	}
	var all []cli.Finding
	for _, f := range c.Check(ctx) {
		all = append(all, cli.Finding{What: f.What, OK: !f.Broken, Found: f.Found, Mend: f.Mend})
	}
	if !all[0].OK {
		return all // what cannot be reached cannot be asked for agents
	}
	return append(all, checkAgents(ctx, cfg, o.Config)...)
}

// patience is how long doctor waits for a cluster.
const patience = 10 * time.Second

// checkAgents says, for doctor, whether agents can be read from the cluster.
func checkAgents(ctx context.Context, cluster *rest.Config, c config.Config) []cli.Finding {
	var all []cli.Finding
	for _, ns := range c.Watched() {
		f := cli.Finding{What: "agents in " + ns, OK: true}
		seen, why, err := controller.Look(ctx, cluster, ns)
		switch {
		case err == nil && len(seen.Invalid) > 0:
			f.OK, f.Found = false, fmt.Sprintf("%d, of which these cannot be run: %s", seen.All, strings.Join(seen.Invalid, ", "))
			f.Mend = "kubectl -n " + ns + " describe agents: the condition Ready says what is wrong"
		case err == nil:
			f.Found = fmt.Sprintf("%d resources", seen.All)
		case why == controller.Absent:
			f.Found = "from files only: " + controller.Absent + " (kubectl apply --server-side -f deploy/crds/)"
		default:
			f.OK, f.Found, f.Mend = false, err.Error(), why
		}
		all = append(all, f)
	}
	return all
}
