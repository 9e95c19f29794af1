package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// Offset says how much of a blob is there: all of it, or the bytes of an
// upload that can go on from have. A blob that is there becomes young again.
func (f *Folder) Offset(ctx context.Context, digest string) (have int64, done bool, err error) {
	name, err := blobPath(digest)
	if err != nil {
		return 0, false, err
	}
	if err := ctx.Err(); err != nil {
		return 0, false, err
	}
	// Who asks is about to name it: nobody may prune it meanwhile.
	f.mu.Lock()
	now := time.Now()
	err = f.root.Chtimes(name, now, now)
	f.mu.Unlock()
	done = err == nil
	if errors.Is(err, fs.ErrNotExist) {
		name, err = partialPath(digest), nil
	}
	if err != nil {
		return 0, false, explain("keep", f.full(name), err)
	}
	info, err := f.root.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, explain("read", f.full(name), err)
	}
	return info.Size(), done, nil
}

// Resume goes on with the upload of a blob of that size: r gives the bytes
// from offset on, all of the rest or a part of it. have is what is kept, also
// when r fails, and is on the disk. When it is all, it is held against the
// digest: done, or Invalid and the upload is dropped. More bytes than size
// are Invalid too. An offset past have is a Conflict, one before it begins
// again there. Another upload of the same blob at the same time is
// Unavailable. Of a blob that is there already, nothing is read.
func (f *Folder) Resume(ctx context.Context, digest string, size, offset int64, r io.Reader) (have int64, done bool, err error) {
	if size < 0 || offset < 0 || offset > size {
		return 0, false, tallyman.Errorf(tallyman.Invalid, "an upload cannot go on at byte %d of %d", offset, size)
	}
	if _, err := blobPath(digest); err != nil {
		return 0, false, err
	}
	if !f.begin(digest) {
		return 0, false, tallyman.Errorf(tallyman.Unavailable, "blob %s is being uploaded already", digest)
	}
	defer f.end(digest)
	have, done, err = f.Offset(ctx, digest)
	if err != nil || done {
		return have, done, err
	}
	if offset > have {
		return have, false, tallyman.Errorf(tallyman.Conflict, "blob %s goes on at byte %d, not %d", digest, have, offset)
	}
	have, err = f.extend(ctx, digest, size, offset, r)
	if err != nil || have < size {
		return have, false, err
	}
	if err := f.verify(ctx, digest); err != nil {
		return 0, false, err
	}
	return have, true, f.adopt(partialPath(digest), digest)
}

// extend writes r to the partial file from offset on and returns its size,
// which is on the disk.
func (f *Folder) extend(ctx context.Context, digest string, size, offset int64, r io.Reader) (have int64, err error) {
	name := partialPath(digest)
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return 0, explain("write", f.full(name), err)
	}
	err = file.Truncate(offset)
	if err == nil {
		_, err = file.Seek(offset, io.SeekStart)
	}
	if err != nil {
		return 0, errors.Join(explain("write", f.full(name), err), file.Close())
	}
	n, err := f.copy(ctx, file, name, io.Discard, io.LimitReader(r, size-offset+1))
	have = offset + n
	if have > size {
		return 0, errors.Join(f.drop(digest, "it is longer than the %d bytes that it should have", size), file.Close())
	}
	return have, errors.Join(err, f.finish(file, name))
}

// verify holds a complete upload against its digest and drops it when it is
// something else.
func (f *Folder) verify(ctx context.Context, digest string) error {
	name := partialPath(digest)
	file, err := f.root.Open(name)
	if err != nil {
		return explain("read", f.full(name), err)
	}
	defer file.Close() // nothing was written
	hash := sha256.New()
	buf := make([]byte, 256<<10)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := file.Read(buf)
		hash.Write(buf[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			return explain("read", f.full(name), err)
		}
	}
	if got := scheme + hex.EncodeToString(hash.Sum(nil)); got != digest {
		return f.drop(digest, "its bytes have the digest %s", got)
	}
	return nil
}

// drop removes a partial upload and says why.
func (f *Folder) drop(digest, why string, args ...any) error {
	name := partialPath(digest)
	if err := f.root.Remove(name); err != nil {
		return explain("remove", f.full(name), err)
	}
	return tallyman.Errorf(tallyman.Invalid, "blob %s was refused: "+why, append([]any{digest}, args...)...)
}

func (f *Folder) begin(digest string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.uploading[digest] {
		return false
	}
	f.uploading[digest] = true
	return true
}

func (f *Folder) end(digest string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.uploading, digest)
}
