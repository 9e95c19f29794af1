package kube

import (
	"net/http"
	"sync"
	"time"
)

// clock is the cluster's, which its API server tells with every answer. Times
// in a cluster's objects are held against it, never against this machine's: that
// may be another, and may be set while attempts are at work.
type clock struct {
	mu    sync.Mutex
	heard time.Time // by this machine's clock, of which only what passes counts
	told  time.Time // what the cluster's was then, zero: it was not heard yet
}

// setBack is by how much an answer must be behind for the cluster's clock to
// have been set: answers tell whole seconds, rounded down, and take their time.
const setBack = 3 * time.Second

// now is the cluster's time, and this machine's until the cluster was heard.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told.IsZero() {
		return time.Now()
	}
	return c.told.Add(time.Since(c.heard))
}

// hear takes the time that came with an answer. The latest of all is nearest
// to the truth, unless the clock has been set.
func (c *clock) hear(told, heard time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	behind := c.told.Add(heard.Sub(c.heard)).Sub(told)
	if c.told.IsZero() || behind < 0 || behind > setBack {
		c.told, c.heard = told, heard
	}
}

// listening is a transport that hears what each answer tells.
func (c *clock) listening(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		if told, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
			c.hear(told, time.Now())
		}
		return answer, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
