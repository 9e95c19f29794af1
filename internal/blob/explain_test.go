package blob

import (
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/tallyman-dev/tallyman"
)

func TestErrorsNameTheFileAndSayWhatToDo(t *testing.T) {
	const file = "/data/blobs/tmp/x"
	for name, tc := range map[string]struct {
		err  error
		code tallyman.Code
		hint string
	}{
		"a full disk":        {&fs.PathError{Op: "write", Path: "tmp/x", Err: syscall.ENOSPC}, tallyman.Unavailable, "prune"},
		"a full quota":       {&fs.PathError{Op: "write", Path: "tmp/x", Err: syscall.EDQUOT}, tallyman.Unavailable, "free some space"},
		"a read-only disk":   {&os.LinkError{Op: "rename", Old: "a", New: "b", Err: syscall.EROFS}, tallyman.Unavailable, "writable"},
		"a forbidden folder": {&fs.PathError{Op: "open", Path: "tmp/x", Err: syscall.EACCES}, tallyman.Unavailable, "writable for uid"},
		"a broken disk":      {&fs.PathError{Op: "open", Path: "tmp/x", Err: syscall.EIO}, tallyman.Internal, "input/output error"},
	} {
		err := explain("write", file, tc.err)
		if tallyman.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.hint) || strings.Count(err.Error(), "tmp/x") != 1 ||
			!strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v (%s)", name, err, tallyman.CodeOf(err))
		}
	}
}
