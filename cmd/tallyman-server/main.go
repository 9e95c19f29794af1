// Tallyman-server is tallyman with Kubernetes compiled in: the same command
// line, and a server whose attempts run in a cluster.
package main

import (
	"context"
	"os"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/cli"
	"github.com/tallyman-dev/tallyman/internal/kube"
)

func main() {
	p := cli.Program{
		Name: "tallyman-server", Version: tallyman.Version,
		Backends:  map[string]func(cli.BackendOptions) (cli.Backend, error){kube.Name: openCluster},
		Resources: map[string]func(cli.ResourceOptions) (cli.Loop, error){kube.Name: watchAgents},
		Checks:    map[string]func(context.Context, cli.CheckOptions) []cli.Finding{kube.Name: check},
	}
	os.Exit(cli.Main(context.Background(), p, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
