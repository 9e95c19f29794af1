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
	textKey("listen", "loopback address to listen on, HOST:PORT", func(c *Config) *string { return &c.Listen }),
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
	valueKey("start-timeout", "how long a start may take", func(c *Config) value { return &c.StartTimeout }),
	valueKey("lost-timeout", "how long a runner may be silent until it counts as lost", func(c *Config) value { return &c.LostTimeout }),
	valueKey("journal-reserve", "free space below which no new commands are taken", func(c *Config) value { return &c.JournalReserve }),
	valueKey("max-artifact", "how large one artifact may be", func(c *Config) value { return &c.MaxArtifact }),
	pathKey("prices", "file with prices that replace those built in", func(c *Config) *string { return &c.Prices }),
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
