// Package envfrom resolves the environment that an agent's spec declares: what
// it takes from the server's process and from files, and what it says itself.
package envfrom

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/tallyman-dev/tallyman"
)

// Resolve returns the variables of envFrom's host and file sources and those
// of env, in this order; secretRef is the backend's to resolve. lookup finds a
// variable of the server's process. The error joins everything that is
// missing and not optional.
func Resolve(spec tallyman.AgentSpec, lookup func(string) (string, bool)) ([]tallyman.EnvVar, error) {
	var env []tallyman.EnvVar
	var errs []error
	for _, src := range spec.EnvFrom {
		switch {
		case len(src.Host) > 0:
			for _, name := range src.Host {
				value, ok := lookup(name)
				if ok {
					env = append(env, outside(src, name, value))
				} else if !src.Optional {
					errs = append(errs, fmt.Errorf("envFrom.host: %s is not set in the environment of the server's process", name))
				}
			}
		case src.File != "":
			vars, err := readEnvFile(src)
			if err != nil && !(src.Optional && errors.Is(err, fs.ErrNotExist)) {
				errs = append(errs, fmt.Errorf("envFrom.file: %w", err))
			}
			env = append(env, vars...)
		}
	}
	return append(env, spec.Env...), errors.Join(errs...)
}

// minSecret is how long a value must be to be masked without being asked for:
// a shorter one would black out every place where its letters happen to stand.
const minSecret = 8

// outside is a variable that the spec takes from elsewhere: a secret,
// unless the spec says otherwise or it is too short for one.
func outside(src tallyman.EnvSource, name, value string) tallyman.EnvVar {
	secret := len(value) >= minSecret
	if src.Mask != nil {
		secret = *src.Mask
	}
	return tallyman.EnvVar{Name: name, Value: value, Mask: &secret}
}

// readEnvFile reads KEY=VALUE lines. Empty lines and # comments are passed
// over, `export ` and quotes around a value are taken off.
func readEnvFile(src tallyman.EnvSource) ([]tallyman.EnvVar, error) {
	path := src.File
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var env []tallyman.EnvVar
	for i, line := range strings.Split(string(b), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return nil, fmt.Errorf("%s:%d: not a KEY=VALUE line", path, i+1) // never the line itself: it may be a secret
		}
		if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			value = value[1 : n-1]
		}
		env = append(env, outside(src, name, value))
	}
	return env, nil
}

// LastWins keeps the last of each name, in the order of their last places.
func LastWins(env []tallyman.EnvVar) []tallyman.EnvVar {
	seen := map[string]bool{}
	var kept []tallyman.EnvVar
	for _, v := range slices.Backward(env) {
		if !seen[v.Name] {
			seen[v.Name] = true
			kept = append(kept, v)
		}
	}
	slices.Reverse(kept)
	return kept
}
