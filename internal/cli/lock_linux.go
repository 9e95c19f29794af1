package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// heldError says that another process serves the data folder.
type heldError struct {
	data string
	pid  int
}

func (e *heldError) Error() string {
	return fmt.Sprintf("the data folder %s is served by process %d already: use it (every command does so by itself), stop it, or name another folder with --data", e.data, e.pid)
}

// lockData makes this process the server of a data folder, *heldError when
// another one is.
func lockData(data string) (*os.File, error) {
	path := filepath.Join(data, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the data folder: %w; is the folder writable for you?", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		held := &heldError{data: data}
		if b, rerr := os.ReadFile(path); rerr == nil {
			held.pid, _ = strconv.Atoi(strings.TrimSpace(string(b))) // 0 while it is being written
		}
		return nil, errors.Join(held, f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", path, err), f.Close())
	}
	if _, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", path, err), f.Close())
	}
	return f, nil
}

// networkFS are file systems on which locks and SQLite cannot be relied on.
var networkFS = map[int64]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB", 0x5346414f: "AFS",
	0x73757245: "Coda", 0x00c36400: "Ceph", 0x0bd00bd0: "Lustre", 0x47504653: "GPFS",
}

// statfs is the system's, but for tests.
var statfs = func(path string) (int64, error) {
	var s unix.Statfs_t
	err := unix.Statfs(path, &s)
	return int64(s.Type) & 0xffffffff, err
}

// checkFS refuses a data folder on a network file system.
func checkFS(data string) error {
	kind, err := statfs(data)
	if err != nil {
		return fmt.Errorf("look at the file system of %s: %w", data, err)
	}
	if name, ok := networkFS[kind]; ok {
		return fmt.Errorf("the data folder %s is on %s: its locks cannot be relied on, so the data would not be safe; name a folder on a local disk with --data", data, name)
	}
	return nil
}

// peerUID is the user at the other end of a socket.
func peerUID(fd uintptr) (int, error) {
	cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}
