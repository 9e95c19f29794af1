package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/render"
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

// checkSpace refuses new work when the disk is nearly full: what runs needs
// the rest to say how it ended.
func checkSpace(data string, reserve int64) error {
	free, err := freeSpace(data)
	if err != nil {
		return fmt.Errorf("look for free space in %s: %w", data, err)
	}
	if reserve > 0 && free < reserve {
		return tallyman.Errorf(tallyman.Unavailable, "the disk of the data folder %s has %s free; below %s (journal-reserve) no run is taken: free some space, or remove old runs with tallyman prune",
			data, render.Bytes(free), render.Bytes(reserve))
	}
	return nil
}

// freeSpace is how many bytes of a folder's disk are free for us; a variable
// for tests.
var freeSpace = func(path string) (int64, error) {
	var s unix.Statfs_t
	err := unix.Statfs(path, &s)
	return int64(s.Bavail) * int64(s.Bsize), err
}

// checkFS refuses a data folder on a network file system.
func checkFS(data string) error {
	name, err := networkFS(data)
	if err != nil {
		return fmt.Errorf("look at the file system of %s: %w", data, err)
	}
	if name != "" {
		return fmt.Errorf("the data folder %s is on %s: its locks cannot be relied on, so the data would not be safe; name a folder on a local disk with --data", data, name)
	}
	return nil
}
