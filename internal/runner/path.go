package runner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// LookPath finds a program as the harness's environment would: by its PATH,
// and relative to its folder. The error is an *fs.PathError.
func LookPath(program, dir string, env []string) (string, error) {
	if strings.Contains(program, "/") {
		if !filepath.IsAbs(program) {
			program = filepath.Join(dir, program)
		}
		return program, executable(program)
	}
	var path string
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	err := error(fs.ErrNotExist)
	for _, d := range filepath.SplitList(path) {
		if !filepath.IsAbs(d) {
			continue // a place in the workspace never counts: agents write there
		}
		full := filepath.Join(d, program)
		e := executable(full)
		if e == nil {
			return full, nil
		}
		if !errors.Is(e, fs.ErrNotExist) {
			err = e
		}
	}
	return "", &fs.PathError{Op: "find", Path: program, Err: err}
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir(), info.Mode()&0o111 == 0:
		return &fs.PathError{Op: "exec", Path: path, Err: fs.ErrPermission}
	}
	return nil
}
