package runner

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipeSize is how far the harness's standard output may be ahead of the
// journal.
const pipeSize = 1 << 20

// widen makes a pipe larger than its default of 64 KiB, where the system
// allows it: fewer switches between writer and reader.
func widen(f *os.File) {
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize)
	})
}
