package config

import (
	"encoding"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Key is one thing that can be configured.
type Key struct {
	Name string // in tallyman.yaml; a dot is a level
	Help string
	// Cluster: only a server with a cluster needs it.
	Cluster bool
	// Switch: its flag alone says true.
	Switch bool

	// set takes a flag's or a variable's text; cwd is what paths start at.
	set func(c *Config, text, cwd string) error
	get func(c Config) string
}

// Flag is the name of the key's flag, without dashes in front.
func (k Key) Flag() string { return strings.ReplaceAll(k.Name, ".", "-") }

// Env is the name of the key's variable.
func (k Key) Env() string {
	return "TALLYMAN_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(k.Name))
}

// Keys returns every key, in the order in which they are shown.
func Keys() []Key { return slices.Clone(keys) }

var keys = []Key{
	pathKey("data", "folder of everything that is kept", func(c *Config) *string { return &c.Data }),
	textKey("server", "URL of a server to talk to, instead of the data folder's own", func(c *Config) *string { return &c.Server }),
	pathKey("token-file", "file with the token for the server; on loopback DATA/token", func(c *Config) *string { return &c.TokenFile }),
	{
		Name: "agents", Help: "files and folders with agents, separated by colons, before the usual ones",
		set: func(c *Config, text, cwd string) error {
			c.Agents = nil
			for _, path := range filepath.SplitList(text) {
				if path != "" {
					c.Agents = append(c.Agents, absolute(cwd, path))
				}
			}
			return nil
		},
		get: func(c Config) string { return strings.Join(c.Agents, string(filepath.ListSeparator)) },
	},
	textKey("listen", "address to listen on, HOST:PORT; beyond loopback with TLS or insecure-listen", func(c *Config) *string { return &c.Listen }),
	{
		Name: "max-running", Help: "how many attempts run at once",
		set: func(c *Config, text, _ string) (err error) {
			if c.MaxRunning, err = strconv.Atoi(text); err != nil {
				return fmt.Errorf("%q is not a whole number", text)
			}
			return nil
		},
		get: func(c Config) string { return strconv.Itoa(c.MaxRunning) },
	},
	textKey("log-level", "what is logged: debug, info, warn or error", func(c *Config) *string { return &c.LogLevel }),
	textKey("log-format", "how it is logged: text or json", func(c *Config) *string { return &c.LogFormat }),
	valueKey("retention.age", "how long ended runs are kept; 0: for ever", func(c *Config) value { return &c.Retention.Age }),
	valueKey("retention.size", "how much of ended runs is kept, like 10GiB; 0: everything", func(c *Config) value { return &c.Retention.Size }),
	valueKey("grace", "from TERM to KILL", func(c *Config) value { return &c.Grace }),
	valueKey("result-grace", "from an agent's result to the end of its process", func(c *Config) value { return &c.ResultGrace }),
	valueKey("orphan-budget", "how long a runner goes on without a server; 0: until its deadline", func(c *Config) value { return &c.OrphanBudget }),
	valueKey("drain-budget", "how long a runner tries to deliver the rest after the end", func(c *Config) value { return &c.DrainBudget }),
	valueKey("start-timeout", "how long a start may take, from admission to the agent (default 10m)", func(c *Config) value { return &c.StartTimeout }),
	valueKey("lost-timeout", "how long a runner may be silent until it counts as lost", func(c *Config) value { return &c.LostTimeout }),
	valueKey("journal-reserve", "free space below which no new commands are taken", func(c *Config) value { return &c.JournalReserve }),
	valueKey("max-artifact", "how large one artifact may be", func(c *Config) value { return &c.MaxArtifact }),
	pathKey("prices", "file with prices that replace those built in", func(c *Config) *string { return &c.Prices }),
	textKey("advertise", "URL where others, Pods among them, reach this server; with https it makes its own certificate", func(c *Config) *string { return &c.Advertise }),
	pathKey("tls-cert", "file with the server's certificate, PEM", func(c *Config) *string { return &c.TLSCert }),
	pathKey("tls-key", "file with the key of that certificate, PEM", func(c *Config) *string { return &c.TLSKey }),
	switchKey("insecure-listen", "listen on any address without TLS", func(c *Config) *bool { return &c.InsecureListen }),
	pathKey("server-ca", "file with who vouches for the server that is talked to, PEM", func(c *Config) *string { return &c.ServerCA }),
	textKey("backend", "where attempts run: local or kube", func(c *Config) *string { return &c.Backend }),
	inCluster(pathKey("kubeconfig", "file that says how the cluster is reached; default: the Pod's own account, $KUBECONFIG, ~/.kube/config", func(c *Config) *string { return &c.Kubeconfig })),
	inCluster(textKey("cluster", "name of the cluster, where there are several", func(c *Config) *string { return &c.ClusterName })),
	inCluster(textKey("namespace", "namespace of the Jobs of agents from files (default: default)", func(c *Config) *string { return &c.Namespace })),
	inCluster(Key{
		Name: "namespaces", Help: "other namespaces with Agent resources, separated by commas",
		set: func(c *Config, text, _ string) error {
			c.Namespaces = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
			return nil
		},
		get: func(c Config) string { return strings.Join(c.Namespaces, ",") },
	}),
	inCluster(textKey("runner-image", "image that holds the runner at /tallyman-runner", func(c *Config) *string { return &c.RunnerImage })),
	inCluster(textKey("default-tag", "tag of images that name none", func(c *Config) *string { return &c.DefaultTag })),
	inCluster(textKey("ca-config-map", "ConfigMap with private roots for agents, under ca.crt", func(c *Config) *string { return &c.CAConfigMap })),
	inCluster(textKey("service-account", "ServiceAccount of the Pods; default: the namespace's", func(c *Config) *string { return &c.Account })),
	inCluster(textKey("owner", "ConfigMap in the Jobs' namespace that owns them: they go with it", func(c *Config) *string { return &c.Owner })),
	inCluster(switchKey("openshift", "the cluster gives Pods their user ids, as OpenShift does: ask for none", func(c *Config) *bool { return &c.OpenShift })),
	inCluster(valueKey("pull-patience", "how long an image may fail to be pulled (default 3m)", func(c *Config) value { return &c.PullPatience })),
	inCluster(valueKey("keep-objects", "how long ended objects stay in the cluster (default 1h)", func(c *Config) value { return &c.KeepObjects })),
}

// inCluster marks a key that only a server with a cluster needs.
func inCluster(k Key) Key {
	k.Cluster = true
	return k
}

// value is a field that reads and writes itself.
type value interface {
	encoding.TextUnmarshaler
	fmt.Stringer
}

func valueKey(name, help string, field func(*Config) value) Key {
	return Key{
		Name: name, Help: help,
		set: func(c *Config, text, _ string) error { return field(c).UnmarshalText([]byte(text)) },
		get: func(c Config) string { return field(&c).String() },
	}
}

func switchKey(name, help string, field func(*Config) *bool) Key {
	return Key{
		Name: name, Help: help, Switch: true,
		set: func(c *Config, text, _ string) (err error) {
			if *field(c), err = strconv.ParseBool(text); err != nil {
				return fmt.Errorf("%q is neither true nor false", text)
			}
			return nil
		},
		get: func(c Config) string { return strconv.FormatBool(*field(&c)) },
	}
}

func textKey(name, help string, field func(*Config) *string) Key {
	return Key{
		Name: name, Help: help,
		set: func(c *Config, text, _ string) error { *field(c) = text; return nil },
		get: func(c Config) string { return *field(&c) },
	}
}

func pathKey(name, help string, field func(*Config) *string) Key {
	return Key{
		Name: name, Help: help,
		set: func(c *Config, text, cwd string) error { *field(c) = absolute(cwd, text); return nil },
		get: func(c Config) string { return *field(&c) },
	}
}

// absolute starts a path at a folder. "" stays, and so does ~, which nobody
// expands here and Validate refuses.
func absolute(folder, path string) string {
	if path == "" || path[0] == '~' {
		return path
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(folder, path)
	}
	return filepath.Clean(path)
}
