package runner

import (
	"bytes"
	"os"
	"strconv"
)

// oomKills reads how many processes the kernel has killed for memory in this
// process's control group; false where there is no such counter.
func oomKills() (int, bool) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(groups) {
		parts := bytes.SplitN(bytes.TrimSpace(line), []byte(":"), 3)
		if len(parts) != 3 {
			continue
		}
		var root, file string
		switch {
		case string(parts[0]) == "0" && len(parts[1]) == 0:
			root, file = "/sys/fs/cgroup", "/memory.events"
		case bytes.Contains(parts[1], []byte("memory")):
			root, file = "/sys/fs/cgroup/memory", "/memory.oom_control"
		default:
			continue
		}
		// In a container the group's own folder may be mounted as the root.
		for _, path := range []string{root + string(parts[2]) + file, root + file} {
			if n, ok := counter(path, "oom_kill"); ok {
				return n, true
			}
		}
	}
	return 0, false
}

func counter(file, name string) (int, bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(b) {
		if f := bytes.Fields(line); len(f) == 2 && string(f[0]) == name {
			n, err := strconv.Atoi(string(f[1]))
			return n, err == nil
		}
	}
	return 0, false
}
