package gateway

import (
	"context"
	"errors"
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

// Run sends heartbeats on the streams of orders until ctx ends, then closes
// them. One goroutine serves all of them.
func (g *Gateway) Run(ctx context.Context) error {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			g.conns.closeStreams()
			return nil
		case <-beat.C:
			g.conns.beat()
		}
	}
}

const streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n: connected\n\n"

// commands opens the stream of orders. The connection is taken from the HTTP
// server, which would keep two goroutines and their stacks for each; what
// goes out is written by whoever has an order, and by Run.
func (g *Gateway) commands(c call) error {
	epoch, err := epochOf(c.r)
	if err != nil {
		return err
	}
	if _, err := g.check(c); err != nil {
		return err
	}
	stream, _, err := http.NewResponseController(c.w).Hijack()
	if err != nil {
		return fmt.Errorf("take the connection over: %w", err)
	}
	if err := send(stream, streamHead); err != nil {
		return g.dropped(stream.Close())
	}
	g.conns.attach(c.ref, epoch, stream)
	return nil
}

// dropped logs what cannot be answered any more: the connection is ours.
func (g *Gateway) dropped(err error) error {
	if err != nil && !errors.Is(err, context.Canceled) {
		g.log.Debug("a runner's stream of orders", "err", err)
	}
	return nil
}
