package runner

import (
	"context"
	"fmt"
	"os"
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

// members returns the living processes of an attempt: the descendants of root
// (0: none) and everything that carries the mark; never root or this process.
// Where root is this process, its zombies are reaped, but for keep.
func members(attempt string, root, keep int) ([]int, error) {
	all, err := table()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	if root == self {
		reapZombies(all, keep)
	}
	parent := make(map[int]int, len(all))
	for _, p := range all {
		parent[p.pid] = p.parent
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

// reapZombies waits for the children of this process that have ended, but for
// keep.
func reapZombies(all []process, keep int) {
	self := os.Getpid()
	for _, p := range all {
		if p.zombie && p.parent == self && p.pid != keep {
			var status unix.WaitStatus
			_, _ = unix.Wait4(p.pid, &status, unix.WNOHANG, nil) // gone already is as good
		}
	}
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
		if os.Getpid() == 1 {
			_ = unix.Kill(-1, unix.SIGKILL) // all of the container at once, before it can fork again
		}
		select {
		case <-ctx.Done():
			return len(seen), fmt.Errorf("attempt %s: %d processes are still there after KILL, first %d", attempt, len(found), found[0])
		case <-time.After(wait):
			wait = min(2*wait, 50*time.Millisecond)
		}
	}
}
