package runner

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// becomeSubreaper has no meaning here: orphans of the harness go to launchd
// and are found by their mark.
func becomeSubreaper() error { return nil }

const zombie = 5 // SZOMB

// table reads the process table.
func table() ([]process, error) {
	list, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, fmt.Errorf("read the process table: %w", err)
	}
	all := make([]process, 0, len(list))
	for _, p := range list {
		all = append(all, process{pid: int(p.Proc.P_pid), parent: int(p.Eproc.Ppid), zombie: p.Proc.P_stat == zombie})
	}
	return all, nil
}

// marked reports whether a process carries the mark of the attempt. Of other
// users' processes nothing is known.
func marked(pid int, attempt string) bool {
	area, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil || len(area) < 4 {
		return false
	}
	// argc, the program's path, NULs, argc arguments, then the environment.
	argc := int(binary.LittleEndian.Uint32(area))
	rest := area[4:]
	if i := bytes.IndexByte(rest, 0); i >= 0 {
		rest = bytes.TrimLeft(rest[i:], "\x00")
	}
	want := []byte(Mark + "=" + attempt)
	for n := 0; len(rest) > 0; n++ {
		var entry []byte
		entry, rest, _ = bytes.Cut(rest, []byte{0})
		if n >= argc && bytes.Equal(entry, want) {
			return true
		}
	}
	return false
}

// oomKills has no counter to read here.
func oomKills() (int, bool) { return 0, false }
