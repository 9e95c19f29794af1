package kube

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// line is the way to the API server, as the last request has found it. What is
// in memory is what was true when it was still there.
type line struct{ down atomic.Pointer[error] }

// err says why the API server does not answer, nil while it does.
func (l *line) err() error {
	if err := l.down.Load(); err != nil {
		return *err
	}
	return nil
}

// watched is a transport by whose requests the line is known.
func (l *line) watched(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		switch {
		case err == nil:
			l.down.Store(nil)
		case !errors.Is(r.Context().Err(), context.Canceled): // else nobody waited for it
			l.down.Store(&err)
		}
		return answer, err
	})
}

const (
	probePeriod   = time.Second
	probePatience = 5 * time.Second
)

// probe asks an API server that does not answer until it does: the informers
// do so more and more rarely.
func (b *Backend) probe(ctx context.Context) {
	t := time.NewTicker(probePeriod)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if b.line.err() == nil {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, probePatience)
		_ = b.core.RESTClient().Get().AbsPath("/version").Do(asking).Error() // any answer is one
		cancel()
		if b.line.err() == nil {
			b.tell()
		}
	}
}
