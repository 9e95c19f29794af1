package cli

import (
	"slices"

	"golang.org/x/sys/unix"
)

// networkKinds are file systems on which locks and SQLite cannot be relied on.
var networkKinds = []string{"nfs", "smbfs", "afpfs", "webdav", "ftp"}

// networkFS names the network file system that a folder is on, "" when it is
// on none; a variable for tests.
var networkFS = func(path string) (string, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return "", err
	}
	name := unix.ByteSliceToString(s.Fstypename[:])
	if slices.Contains(networkKinds, name) {
		return name, nil
	}
	return "", nil
}

// peerUID is the user at the other end of a socket.
func peerUID(fd uintptr) (int, error) {
	cred, err := unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}

// getTermios asks a terminal for its settings; what is no terminal refuses.
const getTermios = unix.TIOCGETA
