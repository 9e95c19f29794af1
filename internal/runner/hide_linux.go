package runner

import "golang.org/x/sys/unix"

// hide keeps other processes of the same user from reading this one's memory
// and files. It is hygiene, no wall.
func hide() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
