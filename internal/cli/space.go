package cli

import (
	"context"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/history"
	"github.com/tallyman-dev/tallyman/internal/render"
)

const (
	// leastSpace is what the control store needs to record how runs end, in
	// bytes: below it no events are taken.
	leastSpace = 4 << 20
	spacePause = 2 * time.Second
)

// roomy is the history on a disk that must keep room for outcomes.
type roomy struct {
	*history.History
	data string
}

// Append refuses events while the disk is full; who brings them tries again.
func (h roomy) Append(ctx context.Context, journal string, from uint64, lines [][]byte) (uint64, error) {
	if free, err := freeSpace(h.data); err == nil && free < leastSpace {
		return 0, tallyman.Errorf(tallyman.Unavailable, "the disk of the data folder %s has %s free: events are taken when there is room again", h.data, render.Bytes(free))
	}
	return h.History.Append(ctx, journal, from, lines)
}

// watchSpace says, once each time, that the disk of the data folder is full:
// until there is room no end of a run can be recorded, so those who wait for
// one go on waiting.
func (s *server) watchSpace(ctx context.Context) error {
	tick := time.NewTicker(spacePause)
	defer tick.Stop()
	for full := false; ; {
		free, err := freeSpace(s.cfg.Data)
		switch {
		case err != nil:
			s.log.WarnContext(ctx, "looking for free space", "data", s.cfg.Data, "err", err)
		case free < leastSpace && !full:
			s.log.WarnContext(ctx, "the disk of the data folder is full: nothing can be recorded until there is room again",
				"data", s.cfg.Data, "free", render.Bytes(free))
		}
		full = err == nil && free < leastSpace
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
