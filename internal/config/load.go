package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/strictyaml"
)

// FileName is how the configuration file is called where it is looked for.
const FileName = "tallyman.yaml"

// Origins says by key where each value comes from: "default", "flag --data",
// "TALLYMAN_DATA", or the file with the line; and of "config", the file itself,
// "found" where nobody named it.
type Origins map[string]string

const fromDefault = "default"

// Load returns the configuration in force and where each value comes from.
// defaults, by key, take the place of the usual ones.
// flags are those that were given, by name; a variable that is empty is not
// given. The file is --config or TALLYMAN_CONFIG, which must exist, else
// ./tallyman.yaml, else the one in $XDG_CONFIG_HOME/tallyman (~/.config
// without it). Paths in the file start at its folder, others at cwd. The error
// is Invalid and joins everything that is wrong.
func Load(flags map[string]string, env func(string) string, cwd string, defaults map[string]string) (Config, Origins, error) {
	c, origins := Defaults(), Origins{}
	for _, k := range keys {
		origins[k.Name] = fromDefault
	}
	c.Data = defaultData(env)
	var errs []error
	for _, k := range keys {
		if text := defaults[k.Name]; text != "" {
			errs = append(errs, k.set(&c, text, cwd))
		}
	}
	errs = append(errs, c.readFile(origins, flags, env, cwd)...)
	bad := map[string]bool{} // keys whose value in force could not be read
	take := func(k Key, from, text string) {
		origins[k.Name] = from
		err := k.set(&c, text, cwd)
		if bad[k.Name] = err != nil; err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", from, err))
		}
	}
	for _, k := range keys {
		if text := env(k.Env()); text != "" {
			take(k, k.Env(), text)
		}
		if text, given := flags[k.Flag()]; given {
			take(k, "flag --"+k.Flag(), text)
		}
	}
	errs = append(errs, unknownFlags(flags)...)
	for _, w := range c.wrong() {
		if from := origins[w.key]; !bad[w.key] {
			errs = append(errs, explain(w, from))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return c, origins, tallyman.Errorf(tallyman.Invalid, "%w", err)
	}
	return c, origins, nil
}

// explain says where a wrong value comes from.
func explain(w *keyError, from string) error {
	if from == fromDefault {
		return w
	}
	return fmt.Errorf("%s: %s", from, w)
}

func unknownFlags(flags map[string]string) []error {
	var known []string
	for _, k := range keys {
		known = append(known, k.Flag())
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		if name != "config" && !slices.Contains(known, name) {
			errs = append(errs, fmt.Errorf("flag --%s: there is no such key%s", name, didYouMean(name, known)))
		}
	}
	return errs
}

// defaultData is where the state of a user belongs, "" when nothing says so.
func defaultData(env func(string) string) string {
	switch state, home := env("XDG_STATE_HOME"), env("HOME"); {
	case filepath.IsAbs(state):
		return filepath.Join(state, "tallyman")
	case filepath.IsAbs(home):
		return filepath.Join(home, ".local", "state", "tallyman")
	default:
		return ""
	}
}

// findFile returns the configuration file, "" without one, and who named it.
func findFile(flags map[string]string, env func(string) string, cwd string) (path, from string) {
	if path := flags["config"]; path != "" {
		return absolute(cwd, path), "flag --config"
	}
	if path := env("TALLYMAN_CONFIG"); path != "" {
		return absolute(cwd, path), "TALLYMAN_CONFIG"
	}
	candidates := []string{filepath.Join(cwd, FileName)}
	switch config, home := env("XDG_CONFIG_HOME"), env("HOME"); {
	case filepath.IsAbs(config):
		candidates = append(candidates, filepath.Join(config, "tallyman", FileName))
	case filepath.IsAbs(home):
		candidates = append(candidates, filepath.Join(home, ".config", "tallyman", FileName))
	}
	for _, path := range candidates {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return path, "found"
		}
	}
	return "", fromDefault
}

// readFile puts what the configuration file says into c.
func (c *Config) readFile(origins Origins, flags map[string]string, env func(string) string, cwd string) []error {
	path, from := findFile(flags, env, cwd)
	if origins["config"] = from; path == "" {
		return nil
	}
	c.File = path
	data, err := os.ReadFile(path)
	if err != nil {
		return []error{fmt.Errorf("read the configuration (%s): %w", from, err)}
	}
	docs, err := strictyaml.Parse(path, data)
	switch {
	case err != nil:
		return []error{err}
	case len(docs) == 0:
		return nil
	case len(docs) > 1:
		return []error{docs[1].Fault("", "a second document; the configuration is one")}
	}
	faults := docs[0].Decode(c)
	for _, k := range keys {
		if docs[0].Given(k.Name) {
			f := docs[0].Fault(k.Name, "")
			origins[k.Name] = fmt.Sprintf("%s:%d", f.File, f.Line)
		}
	}
	c.placePaths(filepath.Dir(path), origins)
	if err := strictyaml.Join(faults); err != nil {
		return []error{err}
	}
	return nil
}

// paths are the keys that name one file or folder.
func (c *Config) paths() map[string]*string {
	return map[string]*string{
		"data": &c.Data, "token-file": &c.TokenFile, "prices": &c.Prices,
		"tls-cert": &c.TLSCert, "tls-key": &c.TLSKey, "server-ca": &c.ServerCA, "kubeconfig": &c.Kubeconfig,
	}
}

// placePaths starts the paths that the file gave at its folder.
func (c *Config) placePaths(folder string, origins Origins) {
	for key, path := range c.paths() {
		if origins[key] != fromDefault {
			*path = absolute(folder, *path)
		}
	}
	for i, path := range c.Agents {
		c.Agents[i] = absolute(folder, path)
	}
}
