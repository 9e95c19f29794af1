package cli

import (
	"context"
	"time"

	"github.com/tallyman-dev/tallyman/internal/render"
)

const (
	// leastSpace is what the stores need to record anything, in bytes.
	leastSpace = 2 << 20
	spacePause = 2 * time.Second
)

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
