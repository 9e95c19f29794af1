package journal

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// createSegment makes a segment with a durable header. Under its name it is
// never seen with less.
func createSegment(dir string, h Header, first uint64, o Options) (f *os.File, seed uint32, off int64, err error) {
	frame, seed, err := encodeHeader(h, first)
	if err != nil {
		return nil, 0, 0, err
	}
	path := segmentPath(dir, first)
	if err := o.Fault("create"); err != nil {
		return nil, 0, 0, err
	}
	f, err = os.OpenFile(path+newSuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, 0, 0, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := writeSync(f, frame, 0, o); err != nil {
		return nil, 0, 0, err
	}
	if err := o.Fault("rename"); err != nil {
		return nil, 0, 0, err
	}
	if err := os.Rename(path+newSuffix, path); err != nil {
		return nil, 0, 0, err
	}
	if err := syncDir(dir, o); err != nil {
		return nil, 0, 0, err
	}
	return f, seed, int64(len(frame)), nil
}

// writeSync writes b at off and makes it durable.
func writeSync(f *os.File, b []byte, off int64, o Options) error {
	if err := o.Fault("write"); err != nil {
		return err
	}
	if _, err := f.WriteAt(b, off); err != nil {
		return err
	}
	if err := o.Fault("sync"); err != nil {
		return err
	}
	return syncFile(f)
}

// rewrite writes what is between two offsets once more and makes it durable.
func rewrite(f *os.File, from, to int64, o Options) error {
	if err := o.Fault("write"); err != nil {
		return err
	}
	buf := make([]byte, min(to-from, 1<<20))
	for from < to {
		n, err := f.ReadAt(buf[:min(to-from, int64(len(buf)))], from)
		if err != nil && err != io.EOF {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		if _, err := f.WriteAt(buf[:n], from); err != nil {
			return err
		}
		from += int64(n)
	}
	if err := o.Fault("sync"); err != nil {
		return err
	}
	return syncFile(f)
}

// syncDir makes the names in dir durable.
func syncDir(dir string, o Options) error {
	if err := o.Fault("syncdir"); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// removeUnfinished removes segments that never got their name.
func removeUnfinished(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), segmentSuffix+newSuffix) {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// freeSpace returns how many bytes an unprivileged process may still write to
// the file system of dir.
func freeSpace(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
