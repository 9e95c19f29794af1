package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/client"
	"github.com/tallyman-dev/tallyman/internal/auth"
	"github.com/tallyman-dev/tallyman/internal/catalog"
	"github.com/tallyman-dev/tallyman/internal/config"
)

// startPatience is how long a server that holds the lock may take to listen.
const startPatience = 10 * time.Second

// session is this process's way to a server: a URL, the socket of the one
// that serves the data folder, or itself when nobody does.
type session struct {
	*client.Client
	c    *command
	cfg  config.Config
	role role

	local bool           // over the socket
	probe *client.Client // over the socket, without becoming the server

	mu     sync.Mutex // held while a server is looked for, and at the end
	closed bool
	served bool // somebody else has
	server *server
	cancel context.CancelFunc
	ended  chan error
}

// role is what a process does for a data folder that nobody else serves.
type role int

// The roles: see the truth and start nothing; look after what runs, too;
// start what is queued, too, for who waits for it.
const (
	looks role = iota
	drives
	admits
)

// followRole is the role of who reads, and may wait for more to read.
func followRole(follow bool) role {
	if follow {
		return admits
	}
	return looks
}

// connect finds a server, or becomes it in a role.
func (c *command) connect(ctx context.Context, r role) (*session, error) {
	cfg, _, err := c.config()
	if err != nil {
		return nil, err
	}
	s := &session{c: c, cfg: cfg, role: r}
	c.session = s
	if cfg.Server != "" {
		token, err := c.tokenFor(cfg)
		if err != nil {
			return nil, &exitError{ExitUsage, err}
		}
		if s.Client, err = client.New(cfg.Server, token); err != nil || cfg.ServerCA == "" {
			return s, err
		}
		pem, err := os.ReadFile(cfg.ServerCA)
		if err != nil {
			return nil, usageError("read who vouches for the server: %w", err)
		}
		return s, s.Client.TrustOnly(pem)
	}
	s.useSocket(s.ensure)
	return s, s.ensure(ctx)
}

// useSocket talks to the server of the data folder, whoever that is; absent
// makes sure that there is one when the one that was there has gone.
func (s *session) useSocket(absent func(context.Context) error) {
	s.local = true
	path := socketPath(s.cfg.Data)
	s.probe, s.Client = client.NewSocket(path), client.NewSocket(path)
	s.Client.OnAbsent(absent)
}

// somebody asks, by a connection of its own, whether a server is there. A
// connection that was kept would be answered by one that is leaving.
func (s *session) somebody(ctx context.Context) error {
	s.probe.Close()
	_, err := s.probe.Info(ctx)
	return err
}

// tokenFor reads the token for a server: the file that is named, or on
// loopback the data folder's.
func (c *command) tokenFor(cfg config.Config) (string, error) {
	if cfg.TokenFile != "" {
		return auth.ReadToken(cfg.TokenFile)
	}
	u, err := url.Parse(cfg.Server)
	if err != nil {
		return "", fmt.Errorf("server %q: %w", cfg.Server, err)
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
		return auth.ReadToken(filepath.Join(cfg.Data, "token"))
	}
	return "", fmt.Errorf("server %s: name the file with its token: --token-file", cfg.Server)
}

// ensure makes sure that somebody serves the data folder: who holds the lock
// already, or this process.
func (s *session) ensure(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.local || s.server != nil || s.closed {
		return nil
	}
	var held *heldError
	for until := time.Now().Add(startPatience); ; {
		err := s.embed(ctx)
		if err == nil {
			return nil
		}
		foreign := errors.Is(err, errForeign)
		if !foreign && !errors.As(err, &held) {
			return err
		}
		answers := s.somebody(ctx)
		switch over := time.Now().After(until); {
		case answers == nil:
			s.served = true
			return nil
		case foreign && (over || !s.served): // one that has served may come back at once
			return err
		case !foreign && (over || tallyman.CodeOf(answers) != tallyman.Unavailable):
			return fmt.Errorf("%w; but it does not answer: %w", held, answers)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// embed becomes the server of the data folder, on its socket.
func (s *session) embed(ctx context.Context) error {
	if s.role != looks {
		if err := s.c.program.mayServe(s.cfg); err != nil {
			return err
		}
	}
	srv, err := openServer(ctx, serverOptions{
		cfg: s.cfg, program: s.c.program, role: s.role, env: s.c.env,
		agents: catalog.Resolve(here(), s.cfg.Agents, s.c.env.get),
		log:    s.c.logger(s.cfg, slog.LevelWarn),
	})
	if err != nil {
		return err
	}
	switch {
	case srv.foreign != "":
		fmt.Fprintf(s.c.errOut, "tallyman: the server of this data folder, with --backend %s, is not running: this is what it has recorded\n", srv.foreign)
	case s.role == looks:
		// Who only looks sees the truth: what has ended meanwhile is settled.
		if err := srv.exec.Settle(ctx); err != nil {
			srv.log.WarnContext(ctx, "settling what has ended", "err", err)
		}
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.server, s.cancel, s.ended = srv, cancel, make(chan error, 1)
	go func() { s.ended <- srv.run(running) }()
	<-srv.ready
	return nil
}

// close ends an embedded server. What is queued or at work and not waited for
// gets a server in the background.
func (s *session) close() error {
	for _, c := range []*client.Client{s.Client, s.probe} {
		if c != nil {
			c.Close()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.server == nil {
		return nil
	}
	if s.role != looks {
		waiting, cancel := context.WithTimeout(context.Background(), settlePatience)
		s.server.awaitEnding(waiting)
		cancel()
	}
	s.cancel()
	err := <-s.ended
	srv := s.server
	s.server = nil
	if srv.left && (s.role == admits || srv.house.asked.Load()) {
		err = errors.Join(err, s.background())
	}
	return err
}

// abandon prepares for leaving at once, without an end: when this process is
// the server, one in the background takes over as soon as it is gone.
func (s *session) abandon() error {
	s.mu.Lock()
	embedded := s.server != nil
	s.mu.Unlock()
	if !embedded {
		return nil
	}
	return s.background()
}

// background starts a server that ends when nothing is queued or at work.
func (s *session) background() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	path := filepath.Join(s.cfg.Data, "server.log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of the server in the background: %w", err)
	}
	defer log.Close()
	given := []string{"up", "--background"}
	for name, value := range s.c.flags {
		if name != "data" {
			given = append(given, "--"+name, value)
		}
	}
	cmd := exec.Command(self, append(given, "--data", s.cfg.Data)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a server in the background: %w", err)
	}
	return cmd.Process.Release()
}

// detached makes sure that a server is there that outlives this process.
func (s *session) detached(ctx context.Context) error {
	if !s.local {
		return nil
	}
	if err := s.somebody(ctx); err == nil {
		return nil
	}
	if err := os.MkdirAll(s.cfg.Data, 0o700); err != nil {
		return fmt.Errorf("make the data folder: %w; name another with --data", err)
	}
	if err := s.c.program.mayServe(s.cfg); err != nil {
		return err
	}
	if err := s.background(); err != nil {
		return err
	}
	for until := time.Now().Add(startPatience); ; {
		err := s.somebody(ctx)
		if err == nil {
			return nil
		}
		if time.Now().After(until) {
			return tallyman.Errorf(tallyman.Unavailable, "the server in the background does not answer; %s may say why: %w", filepath.Join(s.cfg.Data, "server.log"), err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
