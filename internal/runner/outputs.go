package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// maxOutputs is how many files the patterns of a run may match.
const maxOutputs = 1000

// findOutputs returns the files below root that a pattern matches and that
// are not older than since. ** crosses folders; links are not followed.
func findOutputs(root *os.Root, pattern string, since time.Time) ([]string, error) {
	var found []string
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			if d != nil && d.IsDir() {
				return fs.SkipDir // what cannot be read was not left for us
			}
			return nil
		}
		if d.IsDir() {
			if name == ".git" || name != "." && !tallyman.MatchBelow(pattern, name) {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || !tallyman.MatchPath(pattern, name) {
			return nil
		}
		info, err := d.Info()
		if err != nil || info.ModTime().Before(since) {
			return nil
		}
		if found = append(found, name); len(found) > maxOutputs {
			return fmt.Errorf("pattern %q matches more than %d files", pattern, maxOutputs)
		}
		return nil
	})
	return found, err
}

// outputs uploads what the run left and judges it. The verdict is nil when
// every declared output is there and valid.
func (r *run) outputs(ctx context.Context, since time.Time) (verdict *order) {
	declared := r.spec.Agent.Outputs
	if len(declared) == 0 {
		return nil
	}
	root, err := os.OpenRoot(r.spec.WorkDir)
	if err != nil {
		return &order{tallyman.NoOutput, fmt.Sprintf("the workspace cannot be read: %v", err)}
	}
	defer root.Close()
	var sent []string
	for _, out := range declared {
		names, err := findOutputs(root, out.Path, since)
		if err != nil {
			verdict = firstOrder(verdict, &order{tallyman.OutputTooLarge, err.Error()})
			continue
		}
		if len(names) == 0 && out.IsRequired() {
			verdict = firstOrder(verdict, &order{tallyman.NoOutput, fmt.Sprintf("no file newer than the attempt matches the required output %q", out.Path)})
		}
		for _, name := range names {
			if slices.Contains(sent, name) {
				continue
			}
			sent = append(sent, name)
			if v := r.upload(ctx, root, name); v != nil {
				verdict = firstOrder(verdict, v)
			}
		}
	}
	return verdict
}

func firstOrder(a, b *order) *order {
	if a != nil {
		return a
	}
	return b
}

// upload sends one file, going on where an interrupted try left off, for the
// drain budget at most when there is no server to take it.
func (r *run) upload(ctx context.Context, root *os.Root, name string) *order {
	f, err := root.Open(name)
	if err != nil {
		return &order{tallyman.OutputInvalid, fmt.Sprintf("output %s cannot be read: %v", name, err)}
	}
	defer f.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return &order{tallyman.OutputInvalid, fmt.Sprintf("output %s cannot be read: %v", name, err)}
	}
	digest := "sha256:" + hex.EncodeToString(sum.Sum(nil))
	began, wait := time.Now(), 50*time.Millisecond
	for {
		err := r.send(ctx, f, name, digest, size)
		switch code := tallyman.CodeOf(err); {
		case err == nil:
			r.rec.event(tallyman.Event{Type: tallyman.EventArtifact, Name: name, Data: data(map[string]any{"size": size, "digest": digest})})
			return nil
		case code == tallyman.Invalid:
			return &order{tallyman.OutputInvalid, fmt.Sprintf("output %s: %v", name, err)}
		case code == tallyman.TooLarge:
			return &order{tallyman.OutputTooLarge, fmt.Sprintf("output %s: %v", name, err)}
		case code != tallyman.Unavailable, ctx.Err() != nil, time.Since(began) >= r.spec.DrainBudget.D():
			return &order{tallyman.BackendError, fmt.Sprintf("output %s could not be kept: %v", name, err)}
		}
		select {
		case <-ctx.Done():
			return &order{tallyman.BackendError, fmt.Sprintf("output %s could not be kept: %v", name, err)}
		case <-time.After(wait):
			wait = min(2*wait, 5*time.Second)
		}
	}
}

func (r *run) send(ctx context.Context, f *os.File, name, digest string, size int64) error {
	where := "artifacts/" + url.PathEscape(name) + "?digest=" + url.QueryEscape(digest) + "&size=" + strconv.FormatInt(size, 10)
	head, err := r.up.request(ctx, http.MethodHead, where, nil)
	if err != nil {
		return err
	}
	resp, err := r.up.http.Do(head)
	if err != nil {
		return tallyman.Errorf(tallyman.Unavailable, "ask for the offset: %w", err)
	}
	resp.Body.Close()
	var offset int64
	if resp.StatusCode == http.StatusOK {
		if offset, err = strconv.ParseInt(resp.Header.Get("Upload-Offset"), 10, 64); err != nil {
			offset = 0
		}
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return fmt.Errorf("go to byte %d: %w", offset, err)
	}
	put, err := r.up.request(ctx, http.MethodPut, where+"&offset="+strconv.FormatInt(offset, 10), io.NopCloser(f))
	if err != nil {
		return err
	}
	put.ContentLength = size - offset
	if put.ContentLength == 0 {
		put.Body = http.NoBody
	}
	resp, err = r.up.http.Do(put)
	if err != nil {
		return tallyman.Errorf(tallyman.Unavailable, "upload: %w", err)
	}
	return errors.Join(statusError(resp), resp.Body.Close())
}
