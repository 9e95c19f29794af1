package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"

	"github.com/tallyman-dev/tallyman"
)

// StartError says what it means that a program could not be started.
func StartError(err error, argv []string) tallyman.Outcome {
	program := "the agent's program"
	if len(argv) > 0 {
		program = argv[0]
	}
	o := tallyman.Outcome{Reason: tallyman.BackendError, Message: fmt.Sprintf("start %s: %v", program, err)}
	var path *fs.PathError
	switch {
	case errors.As(err, &path) && path.Op == "chdir":
		o.Reason = tallyman.SetupFailed
		o.Message = fmt.Sprintf("the folder %s to work in cannot be entered: %v", path.Path, path.Err)
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		o.Reason = tallyman.SetupFailed
		o.Message = fmt.Sprintf("%s was not found: install it, mend PATH, or name its place in the agent's command", program)
	case errors.Is(err, syscall.ENOEXEC):
		o.Reason = tallyman.InvalidSpec
		o.Message = fmt.Sprintf("%s cannot be executed here: it is built for another machine, or is a script without a #! line", program)
	case errors.Is(err, fs.ErrPermission) && isFolder(path):
		o.Reason = tallyman.InvalidSpec
		o.Message = fmt.Sprintf("%s is a folder: name a program in it", program)
	case errors.Is(err, fs.ErrPermission):
		o.Reason = tallyman.InvalidSpec
		o.Message = fmt.Sprintf("%s may not be executed: make it executable (chmod +x)", program)
	case errors.Is(err, syscall.E2BIG):
		o.Reason = tallyman.InvalidSpec
		o.Message = fmt.Sprintf("%s: its arguments and environment are larger than the system allows", program)
	}
	return o
}

// isFolder reports whether the path that an error is about is a folder.
func isFolder(err *fs.PathError) bool {
	if err == nil {
		return false
	}
	info, serr := os.Stat(err.Path)
	return serr == nil && info.IsDir()
}
