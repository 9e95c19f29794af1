package runner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestAProgramIsFoundAsTheAgentWouldFindIt(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir) // what is here must not be taken for what the PATH names
	for name, mode := range map[string]os.FileMode{"a/tool": 0o755, "b/tool": 0o755, "a/data": 0o644, "b/data": 0o755, "here": 0o755} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	path := dir + "/a:" + dir + "/b"
	for name, c := range map[string]struct {
		program, path string
		want          string // below dir
		err           error
	}{
		"the first of the PATH":        {"tool", path, "a/tool", nil},
		"the first that is executable": {"data", path, "b/data", nil},
		"what nobody may execute":      {"data", dir + "/a", "", fs.ErrPermission},
		"what is nowhere":              {"other", path, "", fs.ErrNotExist},
		"no PATH":                      {"tool", "", "", fs.ErrNotExist},
		"the workspace as part of it":  {"here", ":.:" + dir + "/a", "", fs.ErrNotExist},
		"a folder in the workspace":    {"tool", "a:./b", "", fs.ErrNotExist},
		"a path from the workspace":    {"b/tool", path, "b/tool", nil},
		"a path of the machine":        {dir + "/here", path, "here", nil},
		"a path to a folder":           {"./a", path, "a", fs.ErrPermission},
		"a path that leads to nothing": {"./other", path, "other", fs.ErrNotExist},
	} {
		got, err := LookPath(c.program, dir, []string{"PATH=/nowhere", "PATH=" + c.path})
		want := c.want
		if want != "" {
			want = filepath.Join(dir, want)
		}
		if got != want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v; want %q, %v", name, got, err, want, c.err)
		}
	}
}
