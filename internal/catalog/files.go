package catalog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/strictyaml"
)

// settled is how long before its reading a file must have been changed to be
// known by its time: within a tick of the clock it may change once more and
// look the same.
const settled = 2 * time.Second

// place is a path of the search as it is now.
type place struct {
	path  string
	gone  bool // missing, as it may be
	err   error
	files []*file // by name
}

// file is an agent file as it was last read.
type file struct {
	path   string
	info   fs.FileInfo
	read   time.Time
	agents []tallyman.Agent
	claims []agentKey // which agents it is about, also when it has faults
	err    error
}

// String names the place, and says so when nothing is there.
func (p place) String() string {
	if p.gone {
		return filepath.Clean(p.path) + " (not there)"
	}
	return filepath.Clean(p.path)
}

// about returns the files of the place that are about an agent. One that
// cannot be read counts only if no other is: what it is about was guessed.
func (p place) about(key agentKey) []*file {
	var good, bad []*file
	for _, f := range p.files {
		switch {
		case !slices.Contains(f.claims, key):
		case f.err == nil:
			good = append(good, f)
		default:
			bad = append(bad, f)
		}
	}
	if len(good) > 0 {
		return good
	}
	return bad[:min(1, len(bad))]
}

// faults returns what is wrong with the place and its files, and an error for
// each agent that two of them have.
func (p place) faults() []error {
	var errs []error
	if p.err != nil {
		errs = append(errs, p.err)
	}
	for _, f := range p.files {
		if f.err != nil {
			errs = append(errs, f.err)
		}
	}
	told := map[agentKey]bool{}
	for _, f := range p.files {
		for _, key := range f.claims {
			if about := p.about(key); len(about) > 1 && !told[key] {
				told[key] = true
				errs = append(errs, twice(key, about))
			}
		}
	}
	return errs
}

func (f *file) agent(key agentKey) tallyman.Agent {
	for _, a := range f.agents {
		if keyOf(a) == key {
			return a
		}
	}
	return tallyman.Agent{}
}

// look brings every place up to date.
func (c *Catalog) look() []place {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[string]*file{}
	places := make([]place, 0, len(c.paths))
	for _, path := range c.paths {
		p := place{path: path}
		var names []string
		if names, p.err = agentFiles(path); missing(p.err) && mayBeMissing(path) {
			p.gone, p.err = true, nil
		}
		for _, name := range names {
			f, err := c.current(name)
			if missing(err) {
				continue // removed since the folder was read
			}
			seen[name] = f
			p.files = append(p.files, f)
		}
		places = append(places, p)
	}
	c.files = seen
	return places
}

// agentFiles returns the files at a path: itself, or those in the folder.
func agentFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("look for agents: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("look for agents: %w", err)
	}
	var names []string
	for _, e := range entries {
		ext := strings.ToLower(filepath.Ext(e.Name()))
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, ext) {
			continue
		}
		names = append(names, filepath.Join(path, e.Name()))
	}
	return names, nil
}

// current returns the file as it is now, from memory when it has not changed.
// The error tells only that it is not there; all else is the file's own.
func (c *Catalog) current(path string) (*file, error) {
	info, err := os.Stat(path)
	if missing(err) {
		return nil, err
	}
	known := c.files[path]
	if known != nil && err == nil && known.describes(info) {
		return known, nil
	}
	f := &file{path: path, info: info, read: time.Now()}
	if err == nil {
		f.agents, f.claims, err = readAgents(path, info)
	}
	if f.err = err; err != nil && len(f.claims) == 0 {
		f.claims = guessNames(path, nil)
	}
	if f.err != nil && (known == nil || known.err == nil || known.err.Error() != f.err.Error()) {
		c.log.Warn("an agent file cannot be used", "file", path, "err", f.err)
	}
	return f, nil
}

// describes reports whether the file is still what was read.
func (f *file) describes(now fs.FileInfo) bool {
	return f.info != nil && os.SameFile(f.info, now) && f.info.Size() == now.Size() &&
		f.info.ModTime().Equal(now.ModTime()) && f.read.Sub(f.info.ModTime()) > settled
}

func readAgents(path string, info fs.FileInfo) ([]tallyman.Agent, []agentKey, error) {
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s: this is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read agents: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, strictyaml.MaxSize+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, nil, fmt.Errorf("read agents: %w", err)
	}
	agents, claims, err := parse(path, data)
	return agents, claims, err
}
