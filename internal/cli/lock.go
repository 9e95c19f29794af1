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
