// Package config knows how a server and a command line are set up: flags, over
// the environment (TALLYMAN_…), over tallyman.yaml, over defaults. What is
// wrong is told all at once, with its place and the way out.
package config

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/strictyaml"
)

// Config is everything that can be configured. Its tags are the keys of
// tallyman.yaml. Paths are absolute once loaded.
type Config struct {
	Data           string            `json:"data"`            // the data folder
	Server         string            `json:"server"`          // URL of a server to talk to; "": the data folder's own
	TokenFile      string            `json:"token-file"`      // the token for Server; "": DATA/token on loopback
	Agents         []string          `json:"agents"`          // files and folders, before the usual ones
	Listen         string            `json:"listen"`          // HOST:PORT
	MaxRunning     int               `json:"max-running"`     // attempts at once
	LogLevel       string            `json:"log-level"`       // debug, info, warn or error
	LogFormat      string            `json:"log-format"`      // text or json
	Retention      Retention         `json:"retention"`       // of ended runs
	Grace          tallyman.Duration `json:"grace"`           // from TERM to KILL
	ResultGrace    tallyman.Duration `json:"result-grace"`    // from the result to the end of the process
	OrphanBudget   tallyman.Duration `json:"orphan-budget"`   // of a runner without contact; 0: it never gives up
	DrainBudget    tallyman.Duration `json:"drain-budget"`    // for delivering the rest after the end
	StartTimeout   tallyman.Duration `json:"start-timeout"`   // from admission to agent.started
	LostTimeout    tallyman.Duration `json:"lost-timeout"`    // of silence, until an attempt is RunnerLost
	JournalReserve Bytes             `json:"journal-reserve"` // free space below which no new commands are taken
	MaxArtifact    Bytes             `json:"max-artifact"`    // of one file
	Backend        string            `json:"backend"`         // where attempts run: local, or what else is compiled in
	Advertise      string            `json:"advertise"`       // URL where others, Pods among them, reach this server
	TLSCert        string            `json:"tls-cert"`        // PEM; with TLSKey
	TLSKey         string            `json:"tls-key"`         // PEM
	InsecureListen bool              `json:"insecure-listen"` // plain HTTP on any address
	ServerCA       string            `json:"server-ca"`       // PEM of who vouches for Server

	// For the backend kube.
	Kubeconfig   string            `json:"kubeconfig"`      // "": the Pod's own account, else $KUBECONFIG and ~/.kube/config
	ClusterName  string            `json:"cluster"`         // "" where there is only one
	Namespace    string            `json:"namespace"`       // of the Jobs of agents from files
	Namespaces   []string          `json:"namespaces"`      // others that hold Agent resources
	RunnerImage  string            `json:"runner-image"`    // holds the runner at /tallyman-runner
	DefaultTag   string            `json:"default-tag"`     // of images that name none
	CAConfigMap  string            `json:"ca-config-map"`   // with private roots for agents, under ca.crt
	Account      string            `json:"service-account"` // the Pods'; "": the namespace's default
	Owner        string            `json:"owner"`           // ConfigMap that owns the Jobs, "": none
	OpenShift    bool              `json:"openshift"`       // the cluster chooses user ids
	PullPatience tallyman.Duration `json:"pull-patience"`   // with an image
	KeepObjects  tallyman.Duration `json:"keep-objects"`    // after their end

	Prices string `json:"prices"` // a price table over the embedded one; "": none

	// File is the configuration file that was read, "" without one.
	File string `json:"-"`
}

// Watched are the namespaces of a cluster in which a server works, each once:
// first that of agents from files.
func (c Config) Watched() []string {
	var all []string
	for _, namespace := range append([]string{c.Namespace}, c.Namespaces...) {
		if !slices.Contains(all, namespace) {
			all = append(all, namespace)
		}
	}
	return all
}

// Retention says how long ended runs are kept. Zero is without limit.
type Retention struct {
	Age  tallyman.Duration `json:"age"`
	Size Bytes             `json:"size"` // of all events and artifacts
}

// Defaults returns the configuration that nobody has changed; Data is "",
// since it depends on the environment.
func Defaults() Config {
	return Config{
		Listen: "127.0.0.1:7333", MaxRunning: 16, LogLevel: "info", LogFormat: "text",
		Retention: Retention{Age: tallyman.Duration(30 * 24 * time.Hour)},
		Grace:     tallyman.Duration(10 * time.Second), ResultGrace: tallyman.Duration(10 * time.Second),
		DrainBudget: tallyman.Duration(10 * time.Minute), StartTimeout: tallyman.Duration(10 * time.Minute),
		LostTimeout: tallyman.Duration(15 * time.Minute), JournalReserve: 64 << 20, MaxArtifact: 1 << 30,
		Backend: "local", Namespace: "default", PullPatience: tallyman.Duration(3 * time.Minute), KeepObjects: tallyman.Duration(time.Hour),
	}
}

var (
	logLevels  = []string{"debug", "info", "warn", "error"}
	logFormats = []string{"text", "json"}
)

// keyError is something wrong with the value of a key.
type keyError struct{ key, message string }

// Error writes KEY: message.
func (e *keyError) Error() string { return e.key + ": " + e.message }

// Validate returns everything that makes no sense, each beginning with its
// key.
func (c Config) Validate() error {
	var errs []error
	for _, e := range c.wrong() {
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

func (c Config) wrong() []*keyError {
	var wrong []*keyError
	note := func(key, format string, args ...any) {
		wrong = append(wrong, &keyError{key, fmt.Sprintf(format, args...)})
	}
	if c.Data == "" {
		note("data", "is not given, and neither HOME nor XDG_STATE_HOME says where state belongs; name a folder: --data DIR")
	}
	for key, path := range c.paths() {
		if *path != "" && !filepath.IsAbs(*path) {
			note(key, "%q is not an absolute path", *path)
		}
	}
	for _, path := range c.Agents {
		if !filepath.IsAbs(path) {
			note("agents", "%q is not an absolute path", path)
		}
	}
	if message := wrongServer(c.Server); message != "" {
		note("server", "%s", message)
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		note("tls-cert", "tls-cert and tls-key are given together, or neither")
	}
	if message := wrongServer(c.Advertise); message != "" {
		note("advertise", "%s", message)
	}
	if message := wrongListen(c.Listen, c.guarded()); message != "" {
		note("listen", "%s", message)
	}
	if c.MaxRunning < 1 {
		note("max-running", "%d would never run anything; write 1 or more", c.MaxRunning)
	}
	for key, v := range map[string]struct {
		value string
		known []string
	}{"log-level": {c.LogLevel, logLevels}, "log-format": {c.LogFormat, logFormats}} {
		if !slices.Contains(v.known, v.value) {
			note(key, "%q is none of %s%s", v.value, strings.Join(v.known, ", "), didYouMean(v.value, v.known))
		}
	}
	for key, d := range map[string]tallyman.Duration{"start-timeout": c.StartTimeout, "lost-timeout": c.LostTimeout} {
		if d == 0 {
			note(key, "0 leaves no time at all; write a duration like 60s")
		}
	}
	if c.MaxArtifact == 0 {
		note("max-artifact", "0 would refuse every artifact; write a size like 1GiB")
	}
	slices.SortFunc(wrong, func(a, b *keyError) int { return strings.Compare(a.Error(), b.Error()) })
	return wrong
}

func wrongServer(server string) string {
	if server == "" {
		return ""
	}
	u, err := url.Parse(server)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return "this is no URL of a server; write it like http://127.0.0.1:7333" // not itself: it may hold a password
	case u.User != nil:
		return "the URL holds a user or password; put the token in a file and name it with token-file"
	}
	return ""
}

// wrongListen says what is wrong with an address to listen on, as far as it
// can be read; a host's name is looked up by ListenAddress.
func wrongListen(listen string, guarded bool) string {
	host, port, err := net.SplitHostPort(listen)
	if _, numErr := strconv.ParseUint(port, 10, 16); err != nil || numErr != nil {
		return fmt.Sprintf("%q is no address; write it like 127.0.0.1:7333", listen)
	}
	if guarded {
		return ""
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && !ip.Unmap().IsLoopback() {
		return notLoopback(listen, port)
	}
	return ""
}

// notLoopback refuses an address: tokens would cross the network in the open.
func notLoopback(listen, port string) string {
	return fmt.Sprintf("%q is not on loopback: give --tls-cert and --tls-key, or --advertise URL for a certificate of the server's own; or listen on 127.0.0.1:%s behind a TLS proxy; or say --insecure-listen", listen, port)
}

// guarded reports whether the server may listen beyond loopback: it has TLS, or
// was told to do without.
func (c Config) guarded() bool { return c.UsesTLS() || c.InsecureListen }

// UsesTLS reports whether the server speaks TLS: with a certificate that was
// given, or with one of its own for the URL that it advertises.
func (c Config) UsesTLS() bool {
	return !c.InsecureListen && (c.TLSCert != "" || strings.HasPrefix(c.Advertise, "https://"))
}

// lookupPatience is how long the name of a host to listen on is looked up.
const lookupPatience = 2 * time.Second

// ListenAddress returns where to listen: Listen with the name of a host
// replaced by its address, so that what was checked is what is used. lookup is
// the system's, net.DefaultResolver.LookupNetIP; it is asked only for names
// other than localhost, and for 2 s at most. The error is Invalid: all of the
// host's addresses must be loopback, unless the server has TLS.
func (c Config) ListenAddress(ctx context.Context, lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)) (string, error) {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return "", tallyman.Errorf(tallyman.Invalid, "listen: %s", wrongListen(c.Listen, c.guarded()))
	}
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" || c.guarded() {
		return c.Listen, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupPatience)
	defer cancel()
	ips, err := lookup(ctx, "ip", host)
	if err == nil && len(ips) == 0 {
		err = errors.New("it has no address")
	}
	if err != nil {
		return "", tallyman.Errorf(tallyman.Invalid, "listen: %q: the host is not found (%v); listen on 127.0.0.1:%s", c.Listen, err, port)
	}
	for _, ip := range ips {
		if !ip.Unmap().IsLoopback() {
			return "", tallyman.Errorf(tallyman.Invalid, "listen: %s", notLoopback(c.Listen, port))
		}
	}
	return net.JoinHostPort(ips[0].Unmap().String(), port), nil
}

func didYouMean(word string, known []string) string {
	if near := strictyaml.Nearest(word, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}
