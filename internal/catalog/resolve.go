package catalog

import (
	"path/filepath"
	"slices"
	"strings"
)

// Resolve returns where agents are looked for, the first place first: those of
// flags or else of TALLYMAN_AGENTS, each a file, a folder or several joined by
// colons; then ./agents and $XDG_CONFIG_HOME/tallyman/agents (~/.config
// without it). The paths are absolute. The last two end in a slash, which
// tells New that they need not be there.
func Resolve(cwd string, flags []string, env func(string) string) []string {
	named := flags
	if len(named) == 0 {
		named = []string{env("TALLYMAN_AGENTS")}
	}
	var paths []string
	for _, list := range named {
		for _, path := range filepath.SplitList(list) {
			if path == "" {
				continue
			}
			if !filepath.IsAbs(path) {
				path = filepath.Join(cwd, path)
			}
			paths = append(paths, filepath.Clean(path))
		}
	}
	usual := []string{filepath.Join(cwd, "agents")}
	switch config, home := env("XDG_CONFIG_HOME"), env("HOME"); {
	case filepath.IsAbs(config):
		usual = append(usual, filepath.Join(config, "tallyman", "agents"))
	case filepath.IsAbs(home):
		usual = append(usual, filepath.Join(home, ".config", "tallyman", "agents"))
	}
	for _, path := range usual {
		if !slices.Contains(paths, path) {
			paths = append(paths, mayMiss(path))
		}
	}
	return paths
}

func mayMiss(path string) string { return path + "/" }

func mayBeMissing(path string) bool { return strings.HasSuffix(path, "/") }
