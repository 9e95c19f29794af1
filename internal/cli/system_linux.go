package cli

import "golang.org/x/sys/unix"

// networkKinds are file systems on which locks and SQLite cannot be relied on.
var networkKinds = map[int64]string{
	unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "CIFS", unix.SMB2_SUPER_MAGIC: "SMB",
	unix.AFS_SUPER_MAGIC: "AFS", unix.AFS_FS_MAGIC: "AFS", unix.CODA_SUPER_MAGIC: "Coda", unix.CEPH_SUPER_MAGIC: "Ceph", unix.V9FS_MAGIC: "9P",
	0x0bd00bd0: "Lustre", 0x47504653: "GPFS", // neither is part of the kernel
}

// networkFS names the network file system that a folder is on, "" when it is
// on none; a variable for tests.
var networkFS = func(path string) (string, error) {
	var s unix.Statfs_t
	err := unix.Statfs(path, &s)
	return networkKinds[int64(s.Type)&0xffffffff], err
}

// peerUID is the user at the other end of a socket.
func peerUID(fd uintptr) (int, error) {
	cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}

// getTermios asks a terminal for its settings; what is no terminal refuses.
const getTermios = unix.TCGETS
