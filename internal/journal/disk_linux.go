package journal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncFile makes the content and the size of f durable. EINTR is no verdict
// on the data; every other error is.
func syncFile(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
