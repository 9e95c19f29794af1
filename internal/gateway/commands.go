package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// Stop orders a connected runner to end its harness. A runner that is not
// connected learns it from the answer to its next control report.
func (g *Gateway) Stop(ref tallyman.AttemptRef, o tallyman.StopOrder) { g.conns.order(ref, o) }

// Contact is when the runner of an attempt was last heard of, or when this
// gateway began to listen.
func (g *Gateway) Contact(ref tallyman.AttemptRef) time.Time { return g.conns.contact(ref) }

// Forget drops what is remembered of an attempt whose processes are gone.
func (g *Gateway) Forget(ref tallyman.AttemptRef) { g.conns.close(ref) }

// commands streams orders to a runner until another connection takes over.
func (g *Gateway) commands(c call) error {
	epoch, err := epochOf(c.r)
	if err != nil {
		return err
	}
	if _, err := g.control.CheckKey(c.r.Context(), c.ref, c.key); err != nil {
		return err
	}
	out := http.NewResponseController(c.w)
	c.w.Header().Set("Content-Type", "text/event-stream")
	c.w.WriteHeader(http.StatusOK)
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	g.conns.touch(c.ref, epoch)
	var told *tallyman.StopOrder
	say := func(format string, args ...any) bool {
		if _, err := fmt.Fprintf(c.w, format, args...); err != nil {
			return false
		}
		return out.Flush() == nil
	}
	if !say(": connected\n\n") {
		return nil
	}
	for {
		current, order, changed := g.conns.look(c.ref)
		if current != epoch {
			if current < 0 {
				say("event: final\ndata: {}\n\n")
			} else {
				say("event: superseded\ndata: epoch %d\n\n", current)
			}
			return nil
		}
		if order != nil && order != told {
			b, err := json.Marshal(order)
			if err != nil {
				return nil
			}
			if !say("event: stop\ndata: %s\n\n", b) {
				return nil
			}
			told = order
		}
		select {
		case <-c.r.Context().Done():
			return nil
		case <-changed:
		case <-beat.C:
			if !say(": alive\n\n") {
				return nil
			}
		}
	}
}
