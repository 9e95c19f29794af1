package runner

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Mark is the variable in the environment of everything that an attempt
// starts; its value is the attempt's name.
const Mark = "TALLYMAN_ATTEMPT"

// process is one line of the process table.
type process struct {
	pid, parent int
	zombie      bool
}

// becomeSubreaper makes orphans of the harness children of this process, so
// that they stay in its tree.
func becomeSubreaper() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// table reads the process table. A process that ends meanwhile is left out.
func table() ([]process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("read the process table: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("read the process table: %w", err)
	}
	var all []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		// pid (comm) state ppid …; comm may hold anything, parentheses too.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 2 {
			continue
		}
		parent, err := strconv.Atoi(string(fields[1]))
		if err != nil {
			continue
		}
		all = append(all, process{pid: pid, parent: parent, zombie: fields[0][0] == 'Z' || fields[0][0] == 'X'})
	}
	return all, nil
}

// marked reports whether a process carries the mark of the attempt.
func marked(pid int, attempt string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	want := []byte(Mark + "=" + attempt)
	for len(env) > 0 {
		var entry []byte
		entry, env, _ = bytes.Cut(env, []byte{0})
		if bytes.Equal(entry, want) {
			return true
		}
	}
	return false
}

// members returns the living processes of an attempt: the descendants of root
// (0: none) and everything that carries the mark; never root or this process.
// It reaps children of this process that are zombies, but for keep.
func members(attempt string, root, keep int) ([]int, error) {
	all, err := table()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	parent := make(map[int]int, len(all))
	for _, p := range all {
		parent[p.pid] = p.parent
		if p.zombie && p.parent == self && root == self && p.pid != keep {
			var status unix.WaitStatus
			_, _ = unix.Wait4(p.pid, &status, unix.WNOHANG, nil) // gone already is as good
		}
	}
	below := func(pid int) bool {
		for hops := 0; root != 0 && pid > 1 && hops < 1000; hops++ {
			if pid = parent[pid]; pid == root {
				return true
			}
		}
		return false
	}
	var found []int
	for _, p := range all {
		if p.zombie || p.pid == self || p.pid == root {
			continue
		}
		if below(p.pid) || marked(p.pid, attempt) {
			found = append(found, p.pid)
		}
	}
	return found, nil
}

// KillAll kills every process of an attempt until none is left: what carries
// its mark and, when root is given, what descends from root. It returns how
// many it had to kill, and an error when some are left at the end of ctx.
func KillAll(ctx context.Context, attempt string, root int) (killed int, err error) {
	return killTree(ctx, attempt, root, 0)
}

func killTree(ctx context.Context, attempt string, root, keep int) (int, error) {
	seen := map[int]bool{}
	wait := time.Millisecond
	for {
		found, err := members(attempt, root, keep)
		if err != nil {
			return len(seen), err
		}
		if len(found) == 0 {
			return len(seen), nil
		}
		for _, pid := range found {
			seen[pid] = true
			_ = unix.Kill(pid, unix.SIGKILL) // gone already is as good
		}
		select {
		case <-ctx.Done():
			return len(seen), fmt.Errorf("attempt %s: %d processes are still there after KILL, first %d", attempt, len(found), found[0])
		case <-time.After(wait):
			wait = min(2*wait, 50*time.Millisecond)
		}
	}
}

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
		var file string
		switch {
		case string(parts[0]) == "0" && len(parts[1]) == 0:
			file = "/sys/fs/cgroup" + string(parts[2]) + "/memory.events"
		case bytes.Contains(parts[1], []byte("memory")):
			file = "/sys/fs/cgroup/memory" + string(parts[2]) + "/memory.oom_control"
		default:
			continue
		}
		if n, ok := counter(file, "oom_kill"); ok {
			return n, true
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
