package blob_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/blob"
)

func open(t *testing.T, dir string) *blob.Folder {
	t.Helper()
	f, err := blob.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func digestOf(s string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(s))) }

func put(t *testing.T, f *blob.Folder, s string) string {
	t.Helper()
	digest, size, err := f.Put(t.Context(), strings.NewReader(s))
	if err != nil || digest != digestOf(s) || size != int64(len(s)) {
		t.Fatalf("Put: %s, %d, %v", digest, size, err)
	}
	return digest
}

func read(t *testing.T, f *blob.Folder, digest string) string {
	t.Helper()
	r, size, err := f.Open(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil || int64(len(b)) != size {
		t.Fatalf("read %d bytes of %d: %v", len(b), size, err)
	}
	return string(b)
}

// files returns every file below dir.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func wantCode(t *testing.T, err error, want tallyman.Code) {
	t.Helper()
	if tallyman.CodeOf(err) != want {
		t.Errorf("error %v has code %q, want %q", err, tallyman.CodeOf(err), want)
	}
}

func TestABlobComesBackByItsDigest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "blobs")
	f := open(t, dir)
	for _, s := range []string{"", "a", strings.Repeat("long\x00", 100_000)} {
		digest := put(t, f, s)
		put(t, f, s)
		if got := read(t, f, digest); got != s {
			t.Errorf("%d bytes came back as %d", len(s), len(got))
		}
	}
	if n := len(files(t, dir)); n != 3 {
		t.Errorf("%d files for 3 blobs", n)
	}
	f = open(t, dir)
	if got := read(t, f, digestOf("a")); got != "a" {
		t.Errorf("after opening again: %q", got)
	}
	r, _, err := f.Open(t.Context(), digestOf("a"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Seek(1, io.SeekStart); err != nil {
		t.Error(err)
	}
}

func TestOnlyDigestsAreTaken(t *testing.T) {
	f := open(t, t.TempDir())
	ctx := t.Context()
	sum := strings.TrimPrefix(digestOf("a"), "sha256:")
	for _, bad := range []string{"", "sha256:", sum, "sha256:" + sum[1:], "sha256:" + sum + "0", "sha256:" + strings.ToUpper(sum),
		"sha512:" + sum, "sha256:../" + sum[3:], "sha256:" + sum[:63] + "/", "sha256:" + sum[:63] + "\x00", "sha256:/" + sum[1:]} {
		_, _, openErr := f.Open(ctx, bad)
		_, _, offsetErr := f.Offset(ctx, bad)
		_, _, resumeErr := f.Resume(ctx, bad, 1, 0, strings.NewReader("a"))
		for what, err := range map[string]error{"Open": openErr, "Offset": offsetErr, "Resume": resumeErr, "Delete": f.Delete(ctx, bad)} {
			if tallyman.CodeOf(err) != tallyman.Invalid {
				t.Errorf("%s(%q): %v, want Invalid", what, bad, err)
			}
		}
	}
}

func TestALinkOutOfTheFolderIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	digest := put(t, f, "a")
	name := files(t, dir)[0]
	if err := errors.Join(os.Remove(name), os.Symlink(secret, name)); err != nil {
		t.Fatal(err)
	}
	if r, _, err := f.Open(t.Context(), digest); err == nil {
		r.Close()
		t.Error("the link was followed")
	}
}

func TestWhatCannotBeReadIsNotStored(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	broken := errors.New("connection lost")
	_, _, err := f.Put(t.Context(), io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) {
		t.Errorf("Put: %v, want the reader's error", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := f.Put(ctx, strings.NewReader("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("Put: %v, want context.Canceled", err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDeletingIsSafeToRepeat(t *testing.T) {
	f := open(t, t.TempDir())
	digest := put(t, f, "a")
	for range 2 {
		if err := f.Delete(t.Context(), digest); err != nil {
			t.Error(err)
		}
	}
	_, _, err := f.Open(t.Context(), digest)
	wantCode(t, err, tallyman.NotFound)
}

func TestListNamesEveryBlobAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	var want []string
	for n := range 50 {
		want = append(want, put(t, f, fmt.Sprint(n)))
	}
	slices.Sort(want)
	if _, _, err := f.Resume(t.Context(), digestOf("partial"), 7, 0, strings.NewReader("par")); err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(dir, "sha256", "elsewhere")
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "sha256", "README"), nil, 0o600),
		os.Mkdir(elsewhere, 0o700),
		os.WriteFile(filepath.Join(elsewhere, strings.TrimPrefix(digestOf("a"), "sha256:")), nil, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := f.List(t.Context(), func(digest string, size int64, mtime time.Time) error {
		if size != int64(len(read(t, f, digest))) || time.Since(mtime) > time.Minute {
			t.Errorf("%s has %d bytes from %s", digest, size, mtime)
		}
		got = append(got, digest)
		return f.Delete(t.Context(), digest)
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("listed %d of %d, %v", len(got), len(want), err)
	}
	stop := errors.New("enough")
	put(t, f, "x")
	if err := f.List(t.Context(), func(string, int64, time.Time) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("List: %v, want fn's error", err)
	}
}

func TestABlobThatIsPutAgainIsYoung(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	put(t, f, "a")
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(files(t, dir)[0], old, old); err != nil {
		t.Fatal(err)
	}
	put(t, f, "a")
	err := f.List(t.Context(), func(_ string, _ int64, mtime time.Time) error {
		if time.Since(mtime) > time.Minute {
			t.Errorf("mtime is %s", mtime)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAnUploadGoesOnWhereItStopped(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	const whole = "0123456789"
	digest := digestOf(whole)
	check := func(wantHave int64, wantDone bool) {
		t.Helper()
		have, done, err := f.Offset(t.Context(), digest)
		if err != nil || have != wantHave || done != wantDone {
			t.Errorf("Offset: %d, %v, %v, want %d, %v", have, done, err, wantHave, wantDone)
		}
	}
	check(0, false)
	lost := errors.New("connection lost")
	have, done, err := f.Resume(t.Context(), digest, 10, 0, io.MultiReader(strings.NewReader("0123"), iotest.ErrReader(lost)))
	if have != 4 || done || !errors.Is(err, lost) {
		t.Errorf("a lost connection: %d, %v, %v", have, done, err)
	}
	f = open(t, dir) // a restart
	check(4, false)
	have, done, err = f.Resume(t.Context(), digest, 10, 6, strings.NewReader("6789"))
	if wantCode(t, err, tallyman.Conflict); have != 4 || done {
		t.Errorf("a gap: %d, %v", have, done)
	}
	if have, done, err = f.Resume(t.Context(), digest, 10, 2, strings.NewReader("2345")); have != 6 || done || err != nil {
		t.Errorf("an earlier offset: %d, %v, %v", have, done, err)
	}
	check(6, false)
	if have, done, err = f.Resume(t.Context(), digest, 10, 1, strings.NewReader("12")); have != 3 || done || err != nil {
		t.Errorf("an earlier offset: %d, %v, %v", have, done, err)
	}
	check(3, false)
	if have, done, err = f.Resume(t.Context(), digest, 10, 3, strings.NewReader("345")); have != 6 || done || err != nil {
		t.Errorf("going on there: %d, %v, %v", have, done, err)
	}
	if have, done, err = f.Resume(t.Context(), digest, 10, 6, strings.NewReader("6789")); have != 10 || !done || err != nil {
		t.Errorf("the rest: %d, %v, %v", have, done, err)
	}
	check(10, true)
	if got := read(t, f, digest); got != whole {
		t.Errorf("the blob is %q", got)
	}
	if have, done, err = f.Resume(t.Context(), digest, 10, 0, iotest.ErrReader(lost)); have != 10 || !done || err != nil {
		t.Errorf("again: %d, %v, %v", have, done, err)
	}
	if n := len(files(t, dir)); n != 1 {
		t.Errorf("%d files for one blob", n)
	}
}

func TestAnEmptyBlobCanBeUploaded(t *testing.T) {
	f := open(t, t.TempDir())
	if have, done, err := f.Resume(t.Context(), digestOf(""), 0, 0, strings.NewReader("")); have != 0 || !done || err != nil {
		t.Errorf("Resume: %d, %v, %v", have, done, err)
	}
}

func TestWrongBytesAreRefusedAndDropped(t *testing.T) {
	for name, tc := range map[string]struct {
		size int64
		body string
		why  string
	}{
		"other bytes": {10, "012345678x", "digest"},
		"too many":    {10, "0123456789x", "longer"},
		"wrong size":  {4, "0123", "digest"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f := open(t, dir)
			digest := digestOf("0123456789")
			have, done, err := f.Resume(t.Context(), digest, tc.size, 0, strings.NewReader(tc.body))
			if wantCode(t, err, tallyman.Invalid); have != 0 || done || err == nil || !strings.Contains(err.Error(), tc.why) {
				t.Errorf("Resume: %d, %v, %v", have, done, err)
			}
			if left := files(t, dir); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	f := open(t, t.TempDir())
	for _, bad := range [][2]int64{{-1, 0}, {1, -1}, {1, 2}} {
		_, _, err := f.Resume(t.Context(), digestOf("a"), bad[0], bad[1], strings.NewReader("a"))
		wantCode(t, err, tallyman.Invalid)
	}
}

func TestTwoUploadsOfOneBlobDoNotMix(t *testing.T) {
	f := open(t, t.TempDir())
	r, w := io.Pipe()
	first := make(chan error, 1)
	go func() {
		_, done, err := f.Resume(context.Background(), digestOf("0123"), 4, 0, r)
		if err == nil && !done {
			err = errors.New("not done")
		}
		first <- err
	}()
	if _, err := w.Write([]byte("01")); err != nil { // the first is at work
		t.Fatal(err)
	}
	_, _, err := f.Resume(t.Context(), digestOf("0123"), 4, 0, strings.NewReader("0123"))
	wantCode(t, err, tallyman.Unavailable)
	if _, err := w.Write([]byte("23")); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func TestManyPutsAtOnce(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	var wg sync.WaitGroup
	for n := range 40 {
		wg.Go(func() {
			body := bytes.Repeat([]byte{byte(n % 10)}, 10_000)
			if _, _, err := f.Put(t.Context(), bytes.NewReader(body)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(files(t, dir)); n != 10 {
		t.Errorf("%d files for 10 blobs", n)
	}
}

func TestOpeningClearsWhatACrashLeft(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	for name, age := range map[string]time.Duration{"tmp/x": 0, "partial/young": time.Hour, "partial/old": 30 * 24 * time.Hour} {
		file := filepath.Join(dir, name)
		when := time.Now().Add(-age)
		if err := errors.Join(os.WriteFile(file, []byte("x"), 0o600), os.Chtimes(file, when, when)); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir)
	if left := files(t, dir); len(left) != 1 || filepath.Base(left[0]) != "young" {
		t.Errorf("left behind: %v", left)
	}
}

func TestAFolderThatCannotBeWrittenIsNamed(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write everywhere")
	}
	dir := t.TempDir()
	f := open(t, dir)
	if err := os.Chmod(filepath.Join(dir, "tmp"), 0o500); err != nil {
		t.Fatal(err)
	}
	_, _, err := f.Put(t.Context(), strings.NewReader("x"))
	wantCode(t, err, tallyman.Unavailable)
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "writable") {
		t.Errorf("Put: %v, want the folder and what to do", err)
	}
}

func TestAFileInTheWayIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "blobs")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := blob.Open(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("Open: %v, want an error that names the file", err)
	}
}

func TestABlobThatAnUploadFindsIsYoung(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	digest := put(t, f, "a")
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(files(t, dir)[0], old, old); err != nil {
		t.Fatal(err)
	}
	if _, done, err := f.Offset(t.Context(), digest); err != nil || !done {
		t.Fatalf("done %v, %v", done, err)
	}
	err := f.List(t.Context(), func(_ string, _ int64, mtime time.Time) error {
		if time.Since(mtime) > time.Minute {
			t.Errorf("mtime is %s", mtime)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAnOldBlobIsDeletedUnlessSomebodyIsAboutToNameIt(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	for range 300 {
		digest := put(t, f, "a blob")
		old := time.Now().Add(-2 * time.Hour)
		if err := os.Chtimes(files(t, dir)[0], old, old); err != nil {
			t.Fatal(err)
		}
		var deleted bool
		var deleteErr error
		var deleting sync.WaitGroup
		deleting.Go(func() { deleted, deleteErr = f.DeleteOlder(t.Context(), digest, time.Hour) })
		have, found, err := f.Offset(t.Context(), digest)
		deleting.Wait()
		if err != nil || deleteErr != nil {
			t.Fatal(err, deleteErr)
		}
		if found == deleted {
			t.Fatalf("an upload found it: %v (%d bytes); it was deleted: %v", found, have, deleted)
		}
	}
	if deleted, err := f.DeleteOlder(t.Context(), digestOf("nothing"), 0); deleted || err != nil {
		t.Errorf("what is not there: %v, %v", deleted, err)
	}
}
