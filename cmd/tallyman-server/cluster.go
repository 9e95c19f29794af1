package main

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tallyman-dev/tallyman/internal/cli"
	"github.com/tallyman-dev/tallyman/internal/config"
	"github.com/tallyman-dev/tallyman/internal/kube"
	"github.com/tallyman-dev/tallyman/internal/kube/job"
)

// How many requests a second this server may make: a cluster has its own
// fairness, and the client's usual 5 would hold starts up.
const (
	requests = 200
	burst    = 400
)

// openCluster makes the backend of the cluster that is configured.
func openCluster(o cli.BackendOptions) (cli.Backend, error) {
	keepRoom()
	rest, err := clusterConfig(o.Config)
	if err != nil {
		return nil, err
	}
	c := o.Config
	return kube.New(kube.Options{
		Config: rest, Namespace: c.Namespace, Namespaces: c.Namespaces,
		Cluster: cluster(c, o.CA), Owner: c.Owner,
		Lookup: o.Lookup, Object: o.Object, Kept: o.Kept, Control: o.Control, History: o.History,
		Ended: c.KeepObjects.D(), Grace: c.Grace.D(), Orphan: c.OrphanBudget.D(), Log: o.Log,
	})
}

// cluster is what the objects of all attempts have in common.
func cluster(c config.Config, ca string) job.Cluster {
	return job.Cluster{
		Name: c.ClusterName, RunnerImage: c.RunnerImage, Advertise: c.Advertise, CA: ca, CAConfigMap: c.CAConfigMap,
		DefaultTag: c.DefaultTag, Account: c.Account, OpenShift: c.OpenShift,
		Pull: c.PullPatience.D(), Setup: c.StartTimeout.D(), Drain: c.DrainBudget.D(), Keep: job.Backstop,
	}
}

// clusterConfig says how the cluster is reached: the file that is named, the
// account of the Pod that this runs in, or what kubectl would use.
func clusterConfig(c config.Config) (*rest.Config, error) {
	cfg, err := rest.InClusterConfig()
	if c.Kubeconfig != "" || err != nil {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = c.Kubeconfig
		cfg, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("find out how the cluster is reached: %w; name a file with --kubeconfig", err)
	}
	cfg.QPS, cfg.Burst = requests, burst
	cfg.UserAgent = "tallyman-server"
	return cfg, nil
}
