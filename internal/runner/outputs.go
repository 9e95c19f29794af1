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
		if err != nil || older(info.ModTime(), since) {
			return nil
		}
		if found = append(found, name); len(found) > maxOutputs {
			return fmt.Errorf("pattern %q matches more than %d files", pattern, maxOutputs)
		}
		return nil
	})
	return found, err
}

// clockSlack is how far the clock that stamps files may be behind ours.
const clockSlack = 10 * time.Millisecond

// older reports whether a file was changed before a moment. Some file systems
// keep whole seconds only.
func older(changed, since time.Time) bool {
	if changed.Nanosecond() == 0 {
		return changed.Before(since.Truncate(time.Second))
	}
	return changed.Before(since.Add(-clockSlack))
}

// outputs uploads what the run left and judges it. The verdict is nil when
// every declared output is there and valid. All uploads together may take the
// drain budget, and end when the server takes nothing more of this attempt.
func (r *run) outputs(ctx context.Context, lost <-chan struct{}, since time.Time) (verdict *order) {
	declared := r.spec.Agent.Outputs
	if len(declared) == 0 {
		return nil
	}
	root, err := os.OpenRoot(r.spec.WorkDir)
	if err != nil {
		return &order{tallyman.NoOutput, fmt.Sprintf("the workspace cannot be read: %v", err)}
	}
	defer root.Close()
	ctx, stop := r.uploading(ctx, lost)
	defer stop()
	kept := map[string]error{} // by name; nil: the server has it
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
			err, tried := kept[name]
			if !tried {
				err = r.upload(ctx, root, name)
				kept[name] = err
			}
			verdict = firstOrder(verdict, r.unkept(name, err, out.IsRequired(), tried))
		}
	}
	return verdict
}

// uploading is a context for all uploads of an attempt; its cause says why
// they had to end.
func (r *run) uploading(ctx context.Context, lost <-chan struct{}) (context.Context, context.CancelFunc) {
	budget := r.spec.DrainBudget.D()
	ctx, stop := context.WithTimeoutCause(ctx, budget, fmt.Errorf("the server did not take it within %s", budget))
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-ctx.Done():
		case <-lost:
			cancel(errors.New("the server refuses the runner"))
		case <-r.up.final:
			cancel(errFinal)
		}
	}()
	return ctx, func() { cancel(nil); stop() }
}

// unkept judges an output that the server does not have. A file that it
// refuses is bad. One that could not be brought there is no reason to let the
// agent do its work again: it is missing where it must not, and a notice
// tells it otherwise, once.
func (r *run) unkept(name string, err error, required, told bool) *order {
	switch code := tallyman.CodeOf(err); {
	case err == nil:
		return nil
	case code == tallyman.Invalid:
		return &order{tallyman.OutputInvalid, fmt.Sprintf("output %s: %v", name, err)}
	case code == tallyman.TooLarge:
		return &order{tallyman.OutputTooLarge, fmt.Sprintf("output %s: %v", name, err)}
	}
	text := fmt.Sprintf("output %s is there, but could not be kept: %v", name, err)
	if required {
		return &order{tallyman.NoOutput, text}
	}
	if !told {
		r.rec.event(tallyman.Event{Type: tallyman.EventNotice, Name: "output", Text: text})
	}
	return nil
}

func firstOrder(a, b *order) *order {
	if a != nil {
		return a
	}
	return b
}

// upload sends one file, going on where an interrupted try left off, until
// ctx ends. An error is Invalid when the file cannot be read or is refused,
// TooLarge when it is refused for its size.
func (r *run) upload(ctx context.Context, root *os.Root, name string) error {
	f, err := root.Open(name)
	if err != nil {
		return tallyman.Errorf(tallyman.Invalid, "it cannot be read: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return tallyman.Errorf(tallyman.Invalid, "it cannot be read: %w", err)
	}
	digest := "sha256:" + hex.EncodeToString(sum.Sum(nil))
	for wait := shortest; ctx.Err() == nil; pause(ctx, &wait) {
		e := r.send(ctx, f, r.rec.mask.String(name), digest, size)
		if e == nil {
			r.rec.event(tallyman.Event{Type: tallyman.EventArtifact, Name: name, Data: data(map[string]any{"size": size, "digest": digest})})
			return nil
		}
		if tallyman.CodeOf(e) != tallyman.Unavailable {
			return e
		}
		if err == nil || ctx.Err() == nil {
			err = e // what was said before the end says more than the end
		}
	}
	if err == nil {
		return tallyman.Errorf(tallyman.Unavailable, "%w", context.Cause(ctx))
	}
	return tallyman.Errorf(tallyman.Unavailable, "%w; the last try: %w", context.Cause(ctx), err)
}

// send does one try, for a call's time at most: the next goes on from there.
func (r *run) send(ctx context.Context, f *os.File, name, digest string, size int64) error {
	ctx, cancel := context.WithTimeout(ctx, callPeriod)
	defer cancel()
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
	// A try that was cut may still read for a moment: no two share a place.
	rest := io.NewSectionReader(f, offset, size-offset)
	put, err := r.up.request(ctx, http.MethodPut, where+"&offset="+strconv.FormatInt(offset, 10), rest)
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
