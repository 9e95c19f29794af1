package gateway

import (
	"sync"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// connections remembers which runner is connected, and since when one is
// silent. It is a cache: losing it costs a hello.
type connections struct {
	now   func() time.Time
	start time.Time

	mu  sync.Mutex
	all map[tallyman.AttemptRef]*connection
}

type connection struct {
	epoch   int64
	contact time.Time
	order   *tallyman.StopOrder
	changed chan struct{} // closed when order or epoch change
}

func newConnections(now func() time.Time) *connections {
	return &connections{now: now, start: now(), all: map[tallyman.AttemptRef]*connection{}}
}

func (c *connections) get(ref tallyman.AttemptRef) *connection {
	conn := c.all[ref]
	if conn == nil {
		conn = &connection{contact: c.now(), changed: make(chan struct{})}
		c.all[ref] = conn
	}
	return conn
}

func (conn *connection) notify() {
	close(conn.changed)
	conn.changed = make(chan struct{})
}

// open begins a connection; an older one is told that it is superseded.
func (c *connections) open(ref tallyman.AttemptRef, epoch int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.get(ref)
	conn.epoch, conn.contact = epoch, c.now()
	conn.notify()
}

// touch records a sign of life. Epoch 0 is a call outside the fence: it makes
// no connection where there is none.
func (c *connections) touch(ref tallyman.AttemptRef, epoch int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch == 0 && c.all[ref] == nil {
		return
	}
	conn := c.get(ref)
	conn.contact = c.now()
	if epoch > conn.epoch {
		conn.epoch = epoch
		conn.notify()
	}
}

// order leaves an order for a runner.
func (c *connections) order(ref tallyman.AttemptRef, o tallyman.StopOrder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.get(ref)
	conn.order = &o
	conn.notify()
}

// close forgets a connection.
func (c *connections) close(ref tallyman.AttemptRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.all[ref]; conn != nil {
		delete(c.all, ref)
		conn.notify()
	}
}

// look returns what a follower of orders must know now. The epoch of a
// connection that is closed is -1.
func (c *connections) look(ref tallyman.AttemptRef) (epoch int64, o *tallyman.StopOrder, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.all[ref]
	if conn == nil {
		return -1, nil, nil
	}
	return conn.epoch, conn.order, conn.changed
}

// contact is when a runner was last heard of: silence counts only time in
// which this gateway was up.
func (c *connections) contact(ref tallyman.AttemptRef) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.all[ref]; conn != nil {
		return conn.contact
	}
	return c.start
}
