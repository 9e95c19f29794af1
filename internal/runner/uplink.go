package runner

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/journal"
)

const (
	heartbeat  = 10 * time.Second // at the latest; sooner where the lease is short
	maxBatch   = 4 << 20          // bytes of events in one call, unless one event is larger
	maxDeltas  = 256 << 10        // bytes of text that waits for a watcher
	callPeriod = time.Minute
)

// uplink carries a journal to a gateway. It reads the journal itself, so that
// nothing but what is durable leaves, and a lost connection loses nothing.
type uplink struct {
	attempt string
	base    string
	reach   time.Duration // how long hello bears it that nobody answers; 0: as long as it may
	token   string        // file; what a hello is sent with until there is a key
	cluster string
	process string
	version string
	http    *http.Client
	log     *slog.Logger

	journal *journal.Writer
	dir     string
	header  journal.Header

	orders chan tallyman.StopOrder // capacity 1
	final  chan struct{}           // closed once the server says that the attempt is final

	mu       sync.Mutex
	key      string
	epoch    int64
	lease    time.Duration // how long the server bears silence; 0: it did not say
	contact  time.Time
	facts    []tallyman.Fact // not yet taken by control
	inFlight int             // of them, how many are on their way
	deltas   []tallyman.Delta
	deltaLen int
	sent     uint64        // the last cursor that History has
	wake     chan struct{} // capacity 1: facts or deltas are there
	delta    chan struct{} // capacity 1
	moved    chan struct{} // capacity 1: something was taken
	isFinal  bool
}

func newUplink(b tallyman.Bootstrap, version, process string, log *slog.Logger) (*uplink, error) {
	u := &uplink{
		attempt: b.Attempt, key: b.Key, token: b.Token, cluster: b.Cluster, version: version, process: process, log: log,
		base:   "http://tallyman/runner/v1/attempts/" + b.Attempt + "/",
		orders: make(chan tallyman.StopOrder, 1), final: make(chan struct{}),
		wake: make(chan struct{}, 1), delta: make(chan struct{}, 1), moved: make(chan struct{}, 1),
		contact: time.Now(),
	}
	transport := &http.Transport{
		IdleConnTimeout:    250 * time.Millisecond, // an idle connection would cost the server a goroutine
		MaxIdleConns:       2,
		DisableCompression: true,
		WriteBufferSize:    64 << 10,
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	transport.DialContext = dialer.DialContext
	if b.Server == "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", b.Socket)
		}
	} else {
		u.base = strings.TrimSuffix(b.Server, "/") + "/runner/v1/attempts/" + b.Attempt + "/"
		transport.IdleConnTimeout = 30 * time.Second // a handshake costs more
		roots, err := authorities(b.CA)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig = &tls.Config{
			RootCAs: roots, MinVersion: tls.VersionTLS12,
			ClientSessionCache: tls.NewLRUClientSessionCache(1), // the streams beside the first resume its session
		}
	}
	u.http = &http.Client{Transport: transport}
	return u, nil
}

// authorities reads who vouches for the server; nil: the system's.
func authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the server's authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("the server's authority: %s holds no certificate", file)
	}
	return pool, nil
}

// hello introduces the runner, again and again until it is answered or ctx
// ends.
func (u *uplink) hello(ctx context.Context) (tallyman.Welcome, error) {
	wait := 10 * time.Millisecond
	for {
		w, err := u.helloOnce(ctx)
		if err == nil || errors.Is(err, errFinal) {
			return w, err
		}
		switch tallyman.CodeOf(err) {
		case tallyman.Unavailable, tallyman.Internal:
		default:
			return w, err
		}
		if errors.Is(err, errBusy) {
			u.touch() // somebody is there
		} else if u.reach > 0 && u.silence() > u.reach {
			return w, fmt.Errorf("%w for %v: %w", errUnreached, u.reach, err)
		}
		u.log.DebugContext(ctx, "hello was not answered", "err", err)
		select {
		case <-ctx.Done():
			return w, errors.Join(ctx.Err(), err)
		case <-time.After(wait):
			wait = min(2*wait, time.Second)
		}
	}
}

func (u *uplink) helloOnce(ctx context.Context) (tallyman.Welcome, error) {
	var w tallyman.Welcome
	h := tallyman.Hello{JournalID: u.header.Journal, LastCursor: u.journal.Durable(), Version: u.version, Process: u.process}
	body, err := json.Marshal(h)
	if err != nil {
		return w, fmt.Errorf("encode hello: %w", err)
	}
	if err := u.call(ctx, http.MethodPost, "hello", bytes.NewReader(body), &w); err != nil {
		return w, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if w.AttemptKey != "" {
		u.key = w.AttemptKey
	}
	u.epoch, u.lease = w.Epoch, time.Duration(w.LeaseSeconds)*time.Second
	return w, nil
}

func (u *uplink) touch() {
	u.mu.Lock()
	u.contact = time.Now()
	u.mu.Unlock()
}

// silence is how long no server has answered.
func (u *uplink) silence() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return time.Since(u.contact)
}

// fact tells control something that is durable, or about to be.
func (u *uplink) fact(f tallyman.Fact) {
	u.mu.Lock()
	if n := len(u.facts); n > u.inFlight && f.Kind == tallyman.FactUsage && u.facts[n-1].Kind == tallyman.FactUsage {
		u.facts[n-1] = f // totals: the newer one says it all
	} else {
		u.facts = append(u.facts, f)
	}
	u.mu.Unlock()
	poke(u.wake)
}

// continues reports whether a delta goes on where another ends.
func continues(a, b tallyman.Delta) bool {
	a.Delta, b.Delta = "", ""
	return a == b
}

// provisional offers a text delta to whoever watches now.
func (u *uplink) provisional(d tallyman.Delta) {
	u.mu.Lock()
	if n := len(u.deltas); n > 0 && continues(u.deltas[n-1], d) {
		u.deltas[n-1].Delta += d.Delta
	} else {
		u.deltas = append(u.deltas, d)
	}
	if u.deltaLen += len(d.Delta); u.deltaLen > maxDeltas {
		u.deltas, u.deltaLen = nil, 0 // nobody takes them; the whole text follows
	}
	u.mu.Unlock()
	poke(u.delta)
}

// run keeps the journal flowing until ctx ends. A connection that is lost is
// made anew with a hello. It returns when the server refuses the runner, or
// will never take what comes next. To be superseded is no refusal: a hello
// whose answer was lost, and which the server took later than the next one,
// does that. Another hello tells.
func (u *uplink) run(ctx context.Context) error {
	wait := 10 * time.Millisecond
	for {
		began := time.Now()
		err := u.session(ctx)
		if ctx.Err() != nil {
			return nil
		}
		switch code := tallyman.CodeOf(err); {
		case errors.Is(err, errFinal):
			u.closeState()
			continue
		case code == tallyman.Unauthorized, code == tallyman.NotFound, code == tallyman.Conflict, code == tallyman.Invalid, code == tallyman.TooLarge:
			return err
		}
		u.log.DebugContext(ctx, "connection lost", "err", err)
		if time.Since(began) > 5*time.Second {
			wait = 10 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
			wait = min(2*wait, time.Second)
		}
		if u.stateClosed() {
			continue
		}
		if _, err := u.hello(ctx); err != nil && ctx.Err() == nil {
			if errors.Is(err, errFinal) {
				u.closeState()
				continue
			}
			return err
		}
	}
}

func (u *uplink) closeState() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.isFinal {
		u.isFinal = true
		close(u.final)
		poke(u.moved)
	}
}

func (u *uplink) stateClosed() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.isFinal
}

// session runs the three streams of one connection until one of them gets no
// answer, or one that is final.
func (u *uplink) session(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	start := func(f func(context.Context) error) {
		all.Go(func() {
			if err := f(ctx); err != nil {
				cancel(err)
			}
		})
	}
	start(u.pushEvents)
	if !u.stateClosed() {
		start(u.pushFacts)
		start(func(ctx context.Context) error { return patiently(ctx, u.takeOrders) })
	}
	all.Wait()
	return context.Cause(ctx)
}

// takeOrders follows the server's orders.
func (u *uplink) takeOrders(ctx context.Context) error {
	req, err := u.request(ctx, http.MethodGet, "commands?epoch="+u.epochText(), nil)
	if err != nil {
		return err
	}
	resp, err := u.http.Do(req)
	if err != nil {
		return tallyman.Errorf(tallyman.Unavailable, "follow commands: %w", err)
	}
	defer resp.Body.Close()
	if err := statusError(resp); err != nil {
		return err
	}
	var name string
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		u.touch()
		line := in.Text()
		if v, ok := strings.CutPrefix(line, "event: "); ok {
			name = v
			continue
		}
		payload, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		switch name {
		case "superseded":
			return tallyman.Errorf(tallyman.Stale, "another connection took over: %s", payload)
		case "final":
			return errFinal
		case "stop":
			var o tallyman.StopOrder
			if err := json.Unmarshal([]byte(payload), &o); err != nil {
				return tallyman.Errorf(tallyman.Unavailable, "read an order: %w", err)
			}
			u.order(o)
		}
	}
	return tallyman.Errorf(tallyman.Unavailable, "the stream of commands ended: %w", errors.Join(in.Err(), io.ErrUnexpectedEOF))
}

func (u *uplink) order(o tallyman.StopOrder) {
	select {
	case u.orders <- o:
	default: // one is there already
	}
}

func (u *uplink) epochText() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return strconv.FormatInt(u.epoch, 10)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
