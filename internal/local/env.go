package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/envfrom"
	"github.com/tallyman-dev/tallyman/internal/runner"
)

// inherited are the variables of the server that every harness gets.
var inherited = []string{
	"PATH", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME", "TERM",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE",
}

// runnerEnv is the environment of a runner: what its own work needs, not what
// else the server's holds. TALLYMAN_FAULT… is read by test builds only.
func (b *Backend) runnerEnv() []string {
	var env []string
	names := append([]string{"HOME", "TMPDIR"}, inherited...)
	for _, name := range names {
		if v, ok := b.o.Lookup(name); ok {
			env = append(env, name+"="+v)
		}
	}
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "TALLYMAN_FAULT") {
			env = append(env, kv)
		}
	}
	return env
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Preflight refuses a spec that cannot run here: a variable or file that is
// declared and not optional is missing, or the workspace or the harness's
// program is.
func (b *Backend) Preflight(_ context.Context, spec tallyman.AgentSpec) error {
	if spec.Runner == tallyman.RunnerBare && len(spec.Command) == 0 {
		return tallyman.Errorf(tallyman.Invalid, "spec.runner: bare runs what an image would run by itself, and this server runs no images: write spec.command, or use a server with --backend kube")
	}
	var errs []error
	if _, err := b.declared(spec); err != nil {
		errs = append(errs, err)
	}
	if err := findWorkspace(spec.Workspace.Path); err != nil {
		errs = append(errs, err)
	} else if err := b.findProgram(spec); err != nil {
		errs = append(errs, err)
	}
	if spec.Harness == "claude" && b.o.UID == 0 && !b.sandboxed(spec) && len(spec.Settings["permissionMode"]) == 0 {
		errs = append(errs, errors.New("claude refuses to run as root with --dangerously-skip-permissions; "+
			"in a sandbox of your own set IS_SANDBOX=1 (env in the agent's spec, or --env IS_SANDBOX=1), or set settings.permissionMode"))
	}
	if err := errors.Join(errs...); err != nil {
		return &tallyman.Error{Code: tallyman.Invalid, Reason: tallyman.ConfigMissing, Message: err.Error(), Err: err}
	}
	return nil
}

// findWorkspace looks for the folder that a spec names.
func findWorkspace(path string) error {
	if !filepath.IsAbs(path) {
		return nil // it will be made
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("workspace: %s is a file; name a folder", path)
	}
	return nil
}

func (b *Backend) sandboxed(spec tallyman.AgentSpec) bool {
	env, err := b.declared(spec)
	return err == nil && slices.ContainsFunc(env, func(v tallyman.EnvVar) bool { return v.Name == "IS_SANDBOX" && v.Value == "1" })
}

// findProgram looks for the program that a harness needs, where that can be
// known before the workspace exists.
func (b *Backend) findProgram(spec tallyman.AgentSpec) error {
	program := ""
	switch {
	case len(spec.Command) > 0:
		program = spec.Command[0]
	case spec.Harness == "claude":
		program = "claude"
	default:
		return nil
	}
	dir, path := spec.Workspace.Path, b.path(spec)
	byPath := strings.Contains(program, "/")
	if byPath && !filepath.IsAbs(program) && !filepath.IsAbs(dir) {
		return nil // a fresh workspace may bring it
	}
	found, err := runner.LookPath(program, dir, []string{"PATH=" + path})
	switch {
	case err == nil:
		return nil
	case !byPath:
		return fmt.Errorf("harness %s: the program %q is in no folder of the server's PATH (%s)", spec.Harness, program, path)
	case isFolder(found):
		return fmt.Errorf("the program of harness %s: %s is a folder; name a program in it", spec.Harness, found)
	default:
		return fmt.Errorf("the program of harness %s: %w", spec.Harness, err)
	}
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func (b *Backend) path(spec tallyman.AgentSpec) string {
	for _, v := range slices.Backward(spec.Env) {
		if v.Name == "PATH" {
			return v.Value
		}
	}
	if p, ok := b.o.Lookup("PATH"); ok {
		return p
	}
	return defaultPath
}

// declared is what the spec itself puts into the environment. Secrets of a
// cluster are refused.
func (b *Backend) declared(spec tallyman.AgentSpec) ([]tallyman.EnvVar, error) {
	env, err := envfrom.Resolve(spec, b.o.Lookup)
	errs := []error{err}
	for _, src := range spec.EnvFrom {
		if src.SecretRef != nil && !src.Optional {
			errs = append(errs, fmt.Errorf("envFrom.secretRef: %s is a Kubernetes Secret; on one machine use host or file", src.SecretRef.Name))
		}
	}
	return env, errors.Join(errs...)
}

// loginKeys are the variables that log a harness in; without any of them a
// built-in agent uses the login in the user's HOME.
var loginKeys = map[string][]string{
	"claude": {"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"},
}

// Spec completes what a runner is told: folders, environment and notes.
func (b *Backend) Spec(_ context.Context, origin string, spec tallyman.RunnerSpec) (tallyman.RunnerSpec, error) {
	dir := b.Dir(tallyman.AttemptRef{RunID: spec.RunID, Number: spec.Attempt})
	work := spec.Agent.Workspace
	switch {
	case filepath.IsAbs(work.Path):
		spec.WorkDir = work.Path
	case work.Keep:
		spec.WorkDir = b.shared(spec.RunID)
	default:
		spec.WorkDir = filepath.Join(dir, "work")
	}
	env, err := b.declared(spec.Agent)
	if err != nil {
		return spec, &tallyman.Error{Code: tallyman.Invalid, Reason: tallyman.ConfigMissing, Message: err.Error(), Err: err}
	}
	spec.Home = filepath.Join(dir, "home")
	if keys := loginKeys[spec.Agent.Harness]; origin == tallyman.BuiltIn && b.o.Home != "" {
		given := slices.IndexFunc(env, func(v tallyman.EnvVar) bool { return slices.Contains(keys, v.Name) && v.Value != "" })
		switch {
		case given >= 0:
			spec.Notes = append(spec.Notes, fmt.Sprintf("%s is logged in by %s", spec.Agent.Harness, env[given].Name))
		case len(keys) > 0:
			spec.Home = b.o.Home
			spec.Notes = append(spec.Notes, fmt.Sprintf("no key variable is set: %s uses the login in %s", spec.Agent.Harness, b.o.Home))
		default:
			spec.Home = b.o.Home
		}
	}
	var all []tallyman.EnvVar
	for _, name := range inherited {
		if value, ok := b.o.Lookup(name); ok {
			all = append(all, tallyman.EnvVar{Name: name, Value: value})
		}
	}
	if _, ok := b.o.Lookup("PATH"); !ok {
		all = append(all, tallyman.EnvVar{Name: "PATH", Value: defaultPath})
	}
	all = append(all, tallyman.EnvVar{Name: "HOME", Value: spec.Home}, tallyman.EnvVar{Name: "TMPDIR", Value: filepath.Join(dir, "tmp")})
	spec.Env = envfrom.LastWins(append(all, env...))
	return spec, nil
}
