package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/auth"
	"github.com/tallyman-dev/tallyman/internal/blob"
	"github.com/tallyman-dev/tallyman/internal/catalog"
	"github.com/tallyman-dev/tallyman/internal/config"
	"github.com/tallyman-dev/tallyman/internal/database"
	"github.com/tallyman-dev/tallyman/internal/database/sqlite"
	"github.com/tallyman-dev/tallyman/internal/executor"
	"github.com/tallyman-dev/tallyman/internal/gateway"
	"github.com/tallyman-dev/tallyman/internal/harness"
	"github.com/tallyman-dev/tallyman/internal/history"
	"github.com/tallyman-dev/tallyman/internal/local"
	"github.com/tallyman-dev/tallyman/internal/price"
	"github.com/tallyman-dev/tallyman/internal/rest"
	"github.com/tallyman-dev/tallyman/internal/scheduler"
	"github.com/tallyman-dev/tallyman/internal/service"
	"github.com/tallyman-dev/tallyman/internal/store"
	"github.com/tallyman-dev/tallyman/internal/telemetry"
	"github.com/tallyman-dev/tallyman/internal/web"
)

// server is the one process that serves a data folder.
type server struct {
	cfg     config.Config
	version string
	log     *slog.Logger

	lock    *os.File
	closers []func() error
	house   *house
	auth    *auth.Auth
	spaces  []string // of the cluster whose agents it has
	exec    *executor.Executor
	sched   *scheduler.Scheduler
	role    role
	foreign string // the backend whose data folder this is, where it is not ours
	backend Backend
	local   *local.Backend // the backend, where it is that one
	agents  Loop           // keeps those of resources, nil without such
	gateway *gateway.Gateway
	metrics *telemetry.Metrics
	http    *http.Server
	sockets []net.Listener
	listen  string // the TCP address, "" without one
	scheme  string // what is spoken there
	ready   chan struct{}
	left    bool // once run has returned: something is queued or at work
}

// serverOptions say what kind of server is opened.
type serverOptions struct {
	cfg     config.Config
	program Program
	listen  string // TCP address, "" for the socket only
	role    role
	moves   bool     // it may make a folder of another backend its own
	agents  []string // where agents are looked for
	token   string   // file with the token, "": DATA/token
	prices  []byte   // replaces entries of the built-in price table
	log     *slog.Logger
	env     environ
}

// openServer takes the data folder's lock, *heldError when somebody has it,
// and puts the rooms together. Nothing runs until run is called.
func openServer(ctx context.Context, o serverOptions) (_ *server, err error) {
	data := o.cfg.Data
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, fmt.Errorf("make the data folder: %w; name another with --data", err)
	}
	if err := checkFS(data); err != nil {
		return nil, err
	}
	s := &server{cfg: o.cfg, spaces: watched(o.cfg, o.program), version: o.program.Version, log: o.log, ready: make(chan struct{})}
	if s.lock, err = lockData(data); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.lock.Close)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if o.prices, err = readPrices(o.cfg.Prices); err != nil {
		return nil, err
	}
	st, err := s.openStores(ctx)
	if err != nil {
		return nil, err
	}
	if s.foreign, err = s.claim(ctx, o); err != nil {
		return nil, err
	}
	if s.house.blobs, err = blob.Open(filepath.Join(data, "blobs")); err != nil {
		return nil, err
	}
	if s.auth, err = auth.Open(cmp.Or(o.token, filepath.Join(data, "token"))); err != nil {
		return nil, err
	}
	if s.backend, err = s.makeBackend(o); err != nil {
		return nil, err
	}
	s.join(o, st)
	if err := s.watchResources(o); err != nil {
		return nil, err
	}
	if err := s.listenAll(o); err != nil {
		return nil, err
	}
	if err := s.record(o); err != nil {
		return nil, err
	}
	return s, nil
}

// openStores opens control and history, each a file of its own.
func (s *server) openStores(ctx context.Context) (*store.Store, error) {
	s.house = &house{log: s.log, attempts: filepath.Join(s.cfg.Data, "attempts")}
	control, err := sqlite.Open(ctx, filepath.Join(s.cfg.Data, "control.db"))
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, control.Close)
	if s.house.store, err = store.Open(ctx, control.Writer, control.Reader, database.SQLite); err != nil {
		return nil, err
	}
	events, err := sqlite.Open(ctx, filepath.Join(s.cfg.Data, "history.db"))
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, events.Close)
	if s.house.history, err = history.Open(ctx, events.Writer, events.Reader, database.SQLite); err != nil {
		return nil, err
	}
	return s.house.store, nil
}

// join puts the rooms together.
func (s *server) join(o serverOptions, st *store.Store) {
	h := s.house
	s.metrics = telemetry.New()
	h.agents = catalog.New(o.agents, catalog.Builtin(harness.DemoSteps()), s.log)
	h.backend, h.local = s.backend, s.local
	h.service = service.New(service.Options{
		Store: st, Agents: h.agents, Backend: s.backend, Blobs: h.blobs,
		Checks: service.Checks{Validate: catalog.Validate, Harness: harness.Check, Schema: catalog.CheckSchema, Steps: catalog.ScriptSteps, PromptLimit: harness.PromptLimit,
			Space: func() error { return checkSpace(s.cfg.Data, int64(s.cfg.JournalReserve)) }},
		Timing: service.Timing{
			Grace: o.cfg.Grace, ResultGrace: o.cfg.ResultGrace,
			OrphanBudget: o.cfg.OrphanBudget, DrainBudget: o.cfg.DrainBudget,
		},
		Namespaces: s.spaces, Prices: o.prices,
		NewID: func() string { return ulid.Make().String() },
		Ended: s.metrics.Ended,
		Log:   s.log,
	})
	h.transcript = service.NewTranscript(h.service, h.history)
	s.gateway = gateway.New(h.service, roomy{h.history, s.cfg.Data}, h.blobs, int64(o.cfg.MaxArtifact), s.log)
	s.trust()
	s.exec = executor.New(s.backend, st, h.service, s.gateway, roomy{h.history, s.cfg.Data}, executor.Patience{
		Stop: o.cfg.Grace.D() + 20*time.Second, Start: o.cfg.StartTimeout.D(), Lost: o.cfg.LostTimeout.D(),
		Drain: o.cfg.DrainBudget.D(), Quiet: gateway.Lease,
	}, s.log)
	var one sync.Mutex // passes follow each other
	h.settle = func(ctx context.Context) error {
		one.Lock()
		defer one.Unlock()
		return s.exec.Settle(ctx)
	}
	s.role = o.role
	if o.role == admits || s.foreign != "" {
		h.settle = func(context.Context) error { return nil } // the executor runs, or would know nothing
	}
	if o.role == admits {
		s.sched = scheduler.New(queue{st}, h.service, o.cfg.MaxRunning, s.cfg.Backend, s.log)
	}
	mux := http.NewServeMux()
	s.gateway.Routes(mux)
	rest.Routes(mux, h, s.info, s.auth, s.log)
	s.metrics.Routes(mux, telemetry.Sources{Counts: pages{h}.Counts, Load: queue{st}.Load, Queue: st.Queue, Ready: s.checkReady, Version: s.version, MaxRunning: o.cfg.MaxRunning})
	mux.Handle("/", web.New(pages{h}, web.Options{Version: s.version, Log: s.log, Token: s.auth.CSRF, Check: s.auth.CheckCSRF}))
	s.http = &http.Server{
		Handler:           s.auth.Require(mux, "/healthz", "/readyz", "/runner/v1/", "/assets/"),
		ConnContext:       connContext,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// runnerCommand is the lean runner where it lies beside this program, else
// this program itself.
func runnerCommand() []string {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	lean := filepath.Join(filepath.Dir(self), "tallyman-runner")
	if info, err := os.Stat(lean); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
		return []string{lean, "runner"}
	}
	return []string{self, "runner"}
}

// readPrices reads the file that replaces entries of the price table, and
// refuses one that a runner could not use.
func readPrices(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the prices: %w", err)
	}
	if _, err := price.Load(b); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

func (s *server) listenAll(o serverOptions) error {
	l, err := listenSocket(socketPath(s.cfg.Data))
	if err != nil {
		return err
	}
	s.sockets = append(s.sockets, l)
	if o.listen == "" {
		return nil
	}
	tcp, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w; name another address with --listen", o.listen, err)
	}
	speaks, err := s.tlsConfig()
	if err != nil {
		return errors.Join(err, tcp.Close())
	}
	s.listen, s.scheme = tcp.Addr().String(), "http"
	if speaks != nil {
		tcp, s.scheme = tls.NewListener(tcp, speaks), "https"
	}
	s.sockets = append(s.sockets, tcp)
	return nil
}

func (s *server) info() tallyman.Info {
	return tallyman.Info{Version: s.version, Data: s.cfg.Data, Listen: s.listen, URL: s.url(), MaxRunning: s.cfg.MaxRunning, PID: os.Getpid(), Namespaces: s.spaces}
}

// checkReady reports why the server cannot do its work.
func (s *server) checkReady(ctx context.Context) error {
	_, err := s.house.store.Counts(ctx)
	return err
}

// answerGrace is how long requests may still take when the server ends.
const answerGrace = 250 * time.Millisecond

// run serves until ctx ends or a part fails. Attempts go on.
func (s *server) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Requests that are being answered when the end comes are answered; what
	// follows is cut after a moment.
	answering, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	s.http.BaseContext = func(net.Listener) context.Context { return answering }
	var parts sync.WaitGroup
	start := func(name string, run func(context.Context) error) {
		parts.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	start("backend "+s.cfg.Backend, s.backend.Run)
	start("gateway", s.gateway.Run)
	if s.agents != nil {
		start("agents of resources", s.agents.Run)
	}
	if s.role != looks {
		start("executor", s.exec.Run)
	}
	if s.role == admits {
		start("scheduler", s.sched.Run)
	}
	start("disk", s.watchSpace)
	if s.foreign == "" {
		start("sweeper", func(ctx context.Context) error {
			return s.house.sweep(ctx, s.cfg.Retention.Age.D(), int64(s.cfg.Retention.Size), time.Hour)
		})
	}
	for _, l := range s.sockets {
		start("listener "+l.Addr().String(), func(context.Context) error {
			if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	close(s.ready)
	<-ctx.Done()
	err := context.Cause(ctx)
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	defer time.AfterFunc(answerGrace, cut).Stop()
	hideSocket(socketPath(s.cfg.Data))
	ending, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer done()
	if e := s.http.Shutdown(ending); e != nil {
		e = s.http.Close()
		err = errors.Join(err, e)
	}
	parts.Wait()
	s.left = s.unfinished(context.WithoutCancel(ctx))
	return errors.Join(err, s.close())
}

// close gives everything back, the lock last.
func (s *server) close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(errs...)
}

// idle reports whether nothing is queued or at work.
func (s *server) idle(ctx context.Context) (bool, error) {
	queued, err := s.house.store.Queue(ctx, 1)
	if err != nil || len(queued) > 0 {
		return false, err
	}
	active, err := s.house.store.ActiveAttempts(ctx)
	return len(active) == 0, err
}

// url is where the server is reached over TCP, "" when it is not.
func (s *server) url() string {
	if s.listen == "" {
		return ""
	}
	if s.cfg.Advertise != "" {
		return strings.TrimSuffix(s.cfg.Advertise, "/")
	}
	return s.scheme + "://" + s.listen
}
