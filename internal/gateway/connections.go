package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net"
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
	journal string
	key     [sha256.Size]byte // the hash of the attempt's key
	contact time.Time
	order   *tallyman.StopOrder
	stream  net.Conn // where orders go, nil while nobody takes them
}

func newConnections(now func() time.Time) *connections {
	return &connections{now: now, start: now(), all: map[tallyman.AttemptRef]*connection{}}
}

func (c *connections) get(ref tallyman.AttemptRef) *connection {
	conn := c.all[ref]
	if conn == nil {
		conn = &connection{contact: c.now()}
		c.all[ref] = conn
	}
	return conn
}

// sendPatience is how long a runner may take to make room for a few bytes.
const sendPatience = time.Second

func send(stream net.Conn, text string) error {
	if err := stream.SetWriteDeadline(time.Now().Add(sendPatience)); err != nil {
		return err
	}
	_, err := io.WriteString(stream, text)
	return err
}

// say writes to the stream, and drops it when that fails.
func (conn *connection) say(text string) {
	if conn.stream != nil && send(conn.stream, text) != nil {
		conn.hangUp("")
	}
}

// hangUp closes the stream after a last word.
func (conn *connection) hangUp(last string) {
	if conn.stream == nil {
		return
	}
	if last != "" {
		_ = send(conn.stream, last) // it is closed either way, and the runner asks again
	}
	_ = conn.stream.Close()
	conn.stream = nil
}

func (conn *connection) sayOrder() {
	if conn.order == nil || conn.stream == nil {
		return
	}
	if b, err := json.Marshal(conn.order); err == nil {
		conn.say("event: stop\ndata: " + string(b) + "\n\n")
	}
}

const finalWord = "event: final\ndata: {}\n\n"

func supersededWord(epoch int64) string {
	return fmt.Sprintf("event: superseded\ndata: epoch %d\n\n", epoch)
}

// unknownWord is for a connection that this gateway has not heard of, or has
// forgotten: only a hello tells whether the attempt is final.
const unknownWord = "event: superseded\ndata: no hello of this connection\n\n"

// open begins a connection; an older one is told that it is superseded. Of
// two hellos at the same time the newer counts, whichever comes here first.
func (c *connections) open(ref tallyman.AttemptRef, epoch int64, journal, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.get(ref)
	if epoch < conn.epoch {
		return
	}
	if epoch != conn.epoch {
		conn.hangUp(supersededWord(epoch))
	}
	conn.epoch, conn.contact = epoch, c.now()
	conn.journal, conn.key = journal, sha256.Sum256([]byte(key))
}

// check returns the journal of a connection whose key it is, without asking
// anybody: hello has asked.
func (c *connections) check(ref tallyman.AttemptRef, key string) (journal string, ok bool) {
	sum := sha256.Sum256([]byte(key))
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.all[ref]
	if conn == nil || conn.journal == "" || subtle.ConstantTimeCompare(sum[:], conn.key[:]) != 1 {
		return "", false
	}
	return conn.journal, true
}

// attach takes a stream for the orders of a connection. One that is not of
// the newest epoch, or of no connection, is told so and closed.
func (c *connections) attach(ref tallyman.AttemptRef, epoch int64, stream net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.all[ref]
	if conn == nil || conn.epoch != epoch {
		other := &connection{stream: stream}
		word := unknownWord
		if conn != nil {
			word = supersededWord(conn.epoch)
		}
		other.hangUp(word)
		return
	}
	conn.hangUp("")
	conn.stream, conn.contact = stream, c.now()
	conn.sayOrder()
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
		conn.hangUp(supersededWord(epoch))
		conn.epoch = epoch
	}
}

// order leaves an order for a runner, and sends it when it listens.
func (c *connections) order(ref tallyman.AttemptRef, o tallyman.StopOrder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.get(ref)
	conn.order = &o
	conn.sayOrder()
}

// close forgets a connection.
func (c *connections) close(ref tallyman.AttemptRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.all[ref]; conn != nil {
		conn.hangUp(finalWord)
		delete(c.all, ref)
	}
}

// beat tells every runner that the server lives, and drops the streams of
// those that are gone.
func (c *connections) beat() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.all {
		conn.say(": alive\n\n")
	}
}

// closeStreams closes every stream; the runners say hello to the next server.
func (c *connections) closeStreams() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.all {
		conn.hangUp("")
	}
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
