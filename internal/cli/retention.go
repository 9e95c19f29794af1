package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/local"
	"github.com/tallyman-dev/tallyman/internal/store"
)

// removePatience is how long removing a run waits for its slot.
const removePatience = 3 * time.Second

// Delete removes an ended run with its events, folders and blobs.
func (h *house) Delete(ctx context.Context, id string) error {
	run, err := h.store.Run(ctx, id)
	if err != nil {
		return err
	}
	attempts, err := h.store.Attempts(ctx, run.ID)
	if err != nil {
		return err
	}
	// A run that has just ended may hold its slot for a moment.
	for until := time.Now().Add(removePatience); ; time.Sleep(10 * time.Millisecond) {
		err = h.service.Delete(ctx, run.ID, func(ctx context.Context, journals []string) error { return h.history.Delete(ctx, journals...) })
		if err == nil {
			break
		}
		if tallyman.CodeOf(err) != tallyman.Conflict || !run.State.Terminal() || time.Now().After(until) {
			return err
		}
		if err := h.settle(ctx); err != nil {
			return err
		}
	}
	var errs []error
	if h.local != nil {
		errs = append(errs, h.local.RemoveShared(run.ID))
	}
	for _, a := range attempts {
		errs = append(errs, h.backend.Remove(ctx, a.Ref()))
	}
	return errors.Join(errs...)
}

// Prune removes runs that ended longer ago than an age, then the blobs that
// nothing names any more.
func (h *house) Prune(ctx context.Context, p tallyman.PruneRequest) (r tallyman.PruneResult, err error) {
	before := time.Now().Add(-p.Age.D())
	var ids []string
	err = h.store.InTx(ctx, func(tx *store.Tx) error {
		var err error
		ids, err = tx.RunIDsEndedBefore(before, 100_000)
		return err
	})
	if err != nil {
		return r, err
	}
	r.Runs = len(ids)
	if p.DryRun {
		return r, nil
	}
	for _, id := range ids {
		if err := h.Delete(ctx, id); err != nil && tallyman.CodeOf(err) != tallyman.NotFound {
			return r, fmt.Errorf("prune run %s: %w", id, err)
		}
	}
	err = h.store.InTx(ctx, func(tx *store.Tx) error {
		_, err := tx.PruneKeys(time.Now().Add(-30 * 24 * time.Hour))
		return err
	})
	if err != nil {
		return r, err
	}
	r.Blobs, r.Bytes, err = h.sweepBlobs(ctx)
	return r, err
}

// sweepBlobs deletes the blobs that nothing names and that are older than an
// hour: a younger one may be about to be named.
func (h *house) sweepBlobs(ctx context.Context) (n int, bytes int64, err error) {
	err = h.blobs.List(ctx, func(digest string, size int64, at time.Time) error {
		if time.Since(at) < time.Hour {
			return nil
		}
		used, err := h.store.BlobInUse(ctx, digest)
		if err != nil || used {
			return err
		}
		deleted, err := h.blobs.DeleteOlder(ctx, digest, time.Hour)
		if deleted && err == nil {
			n, bytes = n+1, bytes+size
		}
		return err
	})
	return n, bytes, err
}

// keepFolders is how long an attempt's folder stays after its end.
const keepFolders = 24 * time.Hour

// sweepFolders removes the folders of attempts whose events are all kept
// elsewhere, a day after they were touched last.
func (h *house) sweepFolders(ctx context.Context) error {
	if h.local == nil {
		return nil
	}
	entries, err := os.ReadDir(h.attempts)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if id, ok := local.SharedOf(e.Name()); ok {
			errs = append(errs, h.sweepShared(ctx, id))
			continue
		}
		ref, err := tallyman.ParseAttemptRef(e.Name())
		if err != nil {
			continue
		}
		info, err := os.Stat(filepath.Join(h.attempts, e.Name(), "lock"))
		if err != nil || time.Since(info.ModTime()) < keepFolders {
			continue
		}
		a, err := h.store.Attempt(ctx, ref)
		switch {
		case tallyman.CodeOf(err) == tallyman.NotFound:
		case err != nil:
			return err
		case !a.Gone || a.Owed || a.EndedAt == nil || time.Since(*a.EndedAt) < keepFolders:
			continue
		case a.Journal != "":
			next, err := h.history.Next(ctx, a.Journal)
			if err != nil {
				return err
			}
			if next <= a.FinalCursor {
				continue
			}
		}
		errs = append(errs, h.backend.Remove(ctx, ref))
	}
	return errors.Join(errs...)
}

// sweepShared removes the workspace that the attempts of a run shared, a day
// after the run's end.
func (h *house) sweepShared(ctx context.Context, id string) error {
	run, err := h.store.Run(ctx, id)
	switch {
	case tallyman.CodeOf(err) == tallyman.NotFound:
	case err != nil:
		return err
	case run.EndedAt == nil || time.Since(*run.EndedAt) < keepFolders:
		return nil
	}
	return h.local.RemoveShared(id)
}

// shrink removes the oldest ended runs until what is kept of runs, events
// compressed and blobs, is no larger than size. Blobs younger than an hour
// cannot be freed yet and do not count. It removes one run at a time, and
// stops when that frees nothing.
func (h *house) shrink(ctx context.Context, size int64) error {
	before := int64(math.MaxInt64)
	for ctx.Err() == nil {
		events, _, err := h.history.Total(ctx)
		if err != nil {
			return err
		}
		kept := events.Stored
		err = h.blobs.List(ctx, func(_ string, n int64, at time.Time) error {
			if time.Since(at) >= time.Hour {
				kept += n
			}
			return nil
		})
		if err != nil || kept <= size || kept >= before {
			return err
		}
		before = kept
		var ids []string
		err = h.store.InTx(ctx, func(tx *store.Tx) error {
			var err error
			ids, err = tx.RunIDsEndedBefore(time.Now().Add(-time.Hour), 1) // a younger one keeps its blobs
			return err
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			if err := h.Delete(ctx, id); err != nil {
				return err
			}
		}
		if _, _, err := h.sweepBlobs(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// sweep removes what has grown old or too large, again and again.
func (h *house) sweep(ctx context.Context, age time.Duration, size int64, every time.Duration) error {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		if err := h.sweepFolders(ctx); err != nil && ctx.Err() == nil {
			h.log.WarnContext(ctx, "removing old folders", "err", err)
		}
		if size > 0 {
			if err := h.shrink(ctx, size); err != nil && ctx.Err() == nil {
				h.log.WarnContext(ctx, "keeping within retention.size", "err", err)
			}
		}
		if age <= 0 {
			continue
		}
		if _, err := h.Prune(ctx, tallyman.PruneRequest{Age: tallyman.Duration(age)}); err != nil && ctx.Err() == nil {
			h.log.WarnContext(ctx, "pruning", "err", err)
		}
	}
}
