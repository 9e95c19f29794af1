// Package blob keeps large things in a folder by what they are: the name of a
// blob is the SHA-256 of its bytes. A blob is whole and on the disk, or not
// there.
//
// In the folder, sha256/ab/abcd… are the blobs, partial/ the uploads that are
// not complete, tmp/ what is being written. One process uses a folder.
package blob

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tallyman-dev/tallyman"
)

const (
	blobs    = "sha256"
	partials = "partial"
	temps    = "tmp"
	scheme   = "sha256:"
)

// keepPartial is how long an upload that does not go on is kept.
const keepPartial = 7 * 24 * time.Hour

// Folder is a folder of blobs. Its methods may be called at the same time.
type Folder struct {
	dir  string
	root *os.Root

	mu        sync.Mutex      // held to make a blob young, and to delete one for its age
	uploading map[string]bool // partial uploads that are being written, by digest; under mu
}

// Open opens the folder and makes it, mode 0700, where there is none. What a
// crash left half written is cleared away.
func Open(dir string) (*Folder, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open blob folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, explain("open blob folder", dir, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, explain("open blob folder", dir, err)
	}
	f := &Folder{dir: dir, root: root, uploading: map[string]bool{}}
	for _, sub := range []string{blobs, partials, temps} {
		if err := root.MkdirAll(sub, 0o700); err != nil {
			return nil, errors.Join(explain("make", f.full(sub), err), root.Close())
		}
	}
	if err := errors.Join(f.sweep(temps, 0), f.sweep(partials, keepPartial)); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return f, nil
}

// Close lets go of the folder.
func (f *Folder) Close() error { return f.root.Close() }

// sweep removes the files of a folder that have not been written for so long.
func (f *Folder) sweep(dir string, unused time.Duration) error {
	entries, err := fs.ReadDir(f.root.FS(), dir)
	if err != nil {
		return explain("read", f.full(dir), err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < unused {
			continue // gone, or young
		}
		name := path.Join(dir, e.Name())
		if err := f.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return explain("remove", f.full(name), err)
		}
	}
	return nil
}

// Put stores what r gives and returns its name and size. Bytes that are there
// already are stored once. When it returns nil the blob is on the disk.
func (f *Folder) Put(ctx context.Context, r io.Reader) (digest string, size int64, err error) {
	temp := path.Join(temps, rand.Text())
	file, err := f.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", 0, explain("write", f.full(temp), err)
	}
	defer func() {
		if err != nil {
			_ = f.root.Remove(temp) // the first error is the one to tell
		}
	}()
	hash := sha256.New()
	size, err = f.copy(ctx, file, temp, hash, r)
	if err != nil {
		return "", 0, errors.Join(err, file.Close())
	}
	if err := f.finish(file, temp); err != nil {
		return "", 0, err
	}
	digest = scheme + hex.EncodeToString(hash.Sum(nil))
	return digest, size, f.adopt(temp, digest)
}

// copy writes what r gives to the file and to the hash. An error of r is
// returned as it is, one of the file names it.
func (f *Folder) copy(ctx context.Context, file *os.File, name string, hash io.Writer, r io.Reader) (size int64, err error) {
	buf := make([]byte, 64<<10)
	for {
		if err := ctx.Err(); err != nil {
			return size, err
		}
		n, rerr := r.Read(buf)
		if n > 0 {
			wrote, err := file.Write(buf[:n])
			size += int64(wrote)
			if err != nil {
				return size, explain("write", f.full(name), err)
			}
			hash.Write(buf[:n])
		}
		if rerr == io.EOF {
			return size, nil
		}
		if rerr != nil {
			return size, rerr
		}
	}
}

// finish brings a file to the disk and closes it.
func (f *Folder) finish(file *os.File, name string) error {
	err := file.Sync()
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return explain("write", f.full(name), err)
	}
	return nil
}

// adopt gives a complete file the name of its blob. A blob that is there
// already becomes young again, so that nobody prunes it as unused meanwhile.
func (f *Folder) adopt(from, digest string) error {
	to, err := blobPath(digest)
	if err != nil {
		return err
	}
	if err := f.root.MkdirAll(path.Dir(to), 0o700); err != nil {
		return explain("make", f.full(path.Dir(to)), err)
	}
	f.mu.Lock()
	err = f.root.Rename(from, to)
	f.mu.Unlock()
	if err != nil {
		return explain("write", f.full(to), err)
	}
	for _, dir := range []string{path.Dir(to), blobs} {
		if err := f.syncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// syncDir makes the names in a folder durable.
func (f *Folder) syncDir(dir string) error {
	d, err := f.root.Open(dir)
	if err != nil {
		return explain("open", f.full(dir), err)
	}
	return f.finish(d, dir)
}

// Open returns a blob to be read, and its size. NotFound when there is none;
// a digest that is not one is Invalid. Close what it returns.
func (f *Folder) Open(ctx context.Context, digest string) (io.ReadSeekCloser, int64, error) {
	name, err := blobPath(digest)
	if err != nil {
		return nil, 0, err
	}
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	file, err := f.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, tallyman.Errorf(tallyman.NotFound, "no blob %s", digest)
	}
	if err != nil {
		return nil, 0, explain("read", f.full(name), err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(explain("read", f.full(name), err), file.Close())
	}
	return file, info.Size(), nil
}

// Delete deletes a blob and what was uploaded of it. One that is not there is
// no error.
func (f *Folder) Delete(ctx context.Context, digest string) error {
	name, err := blobPath(digest)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, name := range []string{name, partialPath(digest)} {
		if err := f.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return explain("delete", f.full(name), err)
		}
	}
	return nil
}

// DeleteOlder deletes a blob unless it was put, or found by an upload, less
// than an age ago, and reports whether it did. One that is not there is no
// error.
func (f *Folder) DeleteOlder(ctx context.Context, digest string, age time.Duration) (deleted bool, err error) {
	name, err := blobPath(digest)
	if err != nil {
		return false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := f.root.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && time.Since(info.ModTime()) < age {
		return false, nil
	}
	if err != nil {
		return false, explain("read", f.full(name), err)
	}
	return true, f.Delete(ctx, digest)
}

// List calls fn with every blob, in the order of their digests. mtime is when
// it was put the last time. fn may delete. List stops at fn's first error and
// returns it. Files that are not blobs are passed over.
func (f *Folder) List(ctx context.Context, fn func(digest string, size int64, mtime time.Time) error) error {
	return fs.WalkDir(f.root.FS(), blobs, func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return explain("read", f.full(name), err)
		}
		if err := ctx.Err(); err != nil || !e.Type().IsRegular() {
			return err
		}
		digest := scheme + path.Base(name)
		if at, err := blobPath(digest); err != nil || at != name {
			return nil
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return explain("read", f.full(name), err)
		}
		return fn(digest, info.Size(), info.ModTime())
	})
}

// blobPath is where the blob is. Nothing but a digest gets a path.
func blobPath(digest string) (string, error) {
	sum, ok := strings.CutPrefix(digest, scheme)
	if !ok || len(sum) != 2*sha256.Size || strings.Trim(sum, "0123456789abcdef") != "" {
		return "", tallyman.Errorf(tallyman.Invalid, "%.100q is not a digest: it is written sha256: and 64 lowercase hex digits", digest)
	}
	return path.Join(blobs, sum[:2], sum), nil
}

func partialPath(digest string) string {
	return path.Join(partials, strings.TrimPrefix(digest, scheme))
}

func (f *Folder) full(name string) string { return filepath.Join(f.dir, filepath.FromSlash(name)) }

// explain names the file that an operation went wrong with and, where it is
// known, says what to do.
func explain(op, file string, err error) error {
	var inner *fs.PathError
	if errors.As(err, &inner) {
		err = inner.Err // it names the file from within the folder
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		err = link.Err
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return tallyman.Errorf(tallyman.Unavailable, "%s %s: %w: free some space, or prune old runs", op, file, err)
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return tallyman.Errorf(tallyman.Unavailable, "%s %s: %w: make the folder writable for uid %d, or use another data folder", op, file, err, os.Getuid())
	default:
		return fmt.Errorf("%s %s: %w", op, file, err)
	}
}
