package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/catalog"
	"github.com/tallyman-dev/tallyman/internal/config"
)

// idleGrace is how long a server in the background waits with nothing to do.
const idleGrace = 3 * time.Second

// upOptions are the flags of up that do not configure.
type upOptions struct {
	stopRuns   bool
	background bool // socket only, and end when idle
	quiet      bool // without a login link
	moves      bool // its backend was named: a folder of another becomes its own
}

func (c *command) upCommand() *cobra.Command { return c.upLike(upOptions{}) }

// upLike is up, with the options that are no flags.
func (c *command) upLike(o upOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Serve the API and the dashboard, and work the queue",
		Long: `Serves the data folder until it is told to end: the API under /api/v1, the
dashboard at /, metrics at /metrics, health at /healthz and /readyz. It prints a
link that logs one browser in.

TERM and Ctrl-C leave running agents at work; the next server takes them over.
With --stop-runs they are stopped first.`,
		Example: `  tallyman up
  tallyman up --listen 127.0.0.1:8080 --max-running 4
  tallyman up --stop-runs`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.up(cmd.Context(), o) },
	}
	c.configFlag(cmd.Flags(), "listen", "one address, host:port (default 127.0.0.1:7333); beyond loopback with TLS (--advertise https://…, --tls-cert), or with --insecure-listen")
	c.configFlag(cmd.Flags(), "max-running", "most attempts at once (default 16)")
	c.configFlag(cmd.Flags(), "log-format", "text or json")
	c.backendFlags(cmd)
	cmd.Flags().BoolVar(&o.stopRuns, "stop-runs", false, "on the way out stop running agents and wait for them")
	cmd.Flags().BoolVar(&o.background, "background", false, "socket only, and end when nothing is queued or running")
	cobra.CheckErr(cmd.Flags().MarkHidden("background"))
	return cmd
}

// serverCommand is up in a cluster, for a program that has one compiled in.
func (c *command) serverCommand() *cobra.Command {
	cmd := c.upLike(upOptions{quiet: true})
	cmd.Use = "server"
	cmd.Short = "Serve from within a cluster: up, with the account of its Pod"
	cmd.Long = `Is up with other defaults: attempts run in the cluster that this Pod is in, by
its ServiceAccount and in its namespace, and the server listens on 0.0.0.0:7333.
What it is told by flags, TALLYMAN_* and --config counts as with up. It prints no
login link, since others read its log: tallyman-server config --login-link in its
Pod makes one, and tallyman-server config --token prints the token. With
--token-file that is read from there, else made in the data folder.`
	cmd.Example = `  tallyman-server server --runner-image registry.example/tallyman:1 --advertise https://tallyman.agents.svc:7333
  kubectl exec tallyman-0 -- /tallyman-server config --token`
	up := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		c.defaults = map[string]string{"backend": "kube", "listen": "0.0.0.0:7333", "namespace": podNamespace()}
		return up(cmd, given)
	}
	return cmd
}

// podNamespace is the namespace of the Pod that this runs in, "" elsewhere.
func podNamespace() string {
	b, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// backendFlags adds the flags of a server that listens beyond this machine, or
// runs its attempts there.
func (c *command) backendFlags(cmd *cobra.Command) {
	for _, k := range config.Keys() {
		if k.Cluster && len(c.program.Backends) > 0 || slices.Contains(beyond, k.Name) {
			c.keyFlag(cmd.Flags(), k)
		}
	}
}

// beyond are the keys of a server that listens beyond this machine, or runs
// its attempts there.
var beyond = []string{"backend", "advertise", "tls-cert", "tls-key", "insecure-listen"}

func (c *command) up(ctx context.Context, o upOptions) error {
	cfg, origins, err := c.config()
	if err != nil {
		return err
	}
	o.moves = !o.background && (origins["backend"] != "default" || c.defaults["backend"] != "")
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	s, err := c.openUp(ctx, cfg, o)
	if s == nil || err != nil {
		return err
	}
	switch {
	case o.quiet:
		fmt.Fprintf(c.out, "tallyman %s serves %s at %s\n", c.program.Version, cfg.Data, s.url())
	case !o.background:
		fmt.Fprintf(c.out, "tallyman %s serves %s\n  dashboard  %s/login?code=%s  (works once, for 15 minutes)\n  API        %s/api/v1  (token in %s/token)\n",
			c.program.Version, cfg.Data, s.url(), s.auth.LoginCode(), s.url(), cfg.Data)
	}
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- s.run(serving) }()
	<-s.ready
	var idle atomic.Bool
	if o.background {
		go s.endWhenIdle(serving, func() { idle.Store(true); cancel() })
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	left, err := s.leave(context.WithoutCancel(ctx), o)
	end()
	err = errors.Join(err, <-ended)
	if idle.Load() && s.left {
		// Somebody has submitted at the last moment.
		return errors.Join(err, (&session{c: c, cfg: cfg}).background())
	}
	if left > 0 {
		fmt.Fprintf(c.errOut, "%d running agents go on without a server; the next one takes them over (to stop them: tallyman up --stop-runs, or tallyman stop RUN)\n", left)
	}
	return err
}

// openUp opens the server, nil in the background where somebody serves
// already, which is all that is wanted.
func (c *command) openUp(ctx context.Context, cfg config.Config, o upOptions) (*server, error) {
	so := serverOptions{
		cfg: cfg, program: c.program, role: admits, moves: o.moves, env: c.env,
		agents: catalog.Resolve(here(), cfg.Agents, c.env.get), log: c.logger(cfg, slog.LevelInfo),
	}
	if o.quiet {
		so.token = cfg.TokenFile
	}
	if o.background {
		// Who has started this one may be about to leave.
		s, err := openPatiently(ctx, so, startPatience)
		if held := new(heldError); errors.As(err, &held) {
			return nil, nil
		}
		return s, err
	}
	var err error
	if so.listen, err = cfg.ListenAddress(ctx, net.DefaultResolver.LookupNetIP); err != nil {
		return nil, err
	}
	return openPatiently(ctx, so, lockPatience)
}

// leave stops what is at work where that was asked for, else it returns how
// many agents go on.
func (s *server) leave(ctx context.Context, o upOptions) (left int, err error) {
	if o.stopRuns {
		return 0, s.stopRuns(ctx)
	}
	active, err := s.house.store.ActiveAttempts(ctx)
	if err != nil {
		return 0, nil // they go on all the same
	}
	return len(active), nil
}

// lockPatience is how long up waits for a short command, a tallyman ls, that
// serves the data folder just now.
const lockPatience = 2 * time.Second

func openPatiently(ctx context.Context, o serverOptions, patience time.Duration) (*server, error) {
	for until := time.Now().Add(patience); ; {
		s, err := openServer(ctx, o)
		var held *heldError
		if !errors.As(err, &held) || time.Now().After(until) {
			return s, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// endWhenIdle ends a server in the background that has had nothing to do for
// a while.
func (s *server) endWhenIdle(ctx context.Context, end func()) {
	since := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
		idle, err := s.idle(ctx)
		if err != nil || !idle {
			since = time.Now()
		}
		if time.Since(since) >= idleGrace {
			end()
			return
		}
	}
}

// stopRuns asks everything that is at work to end and waits for it.
func (s *server) stopRuns(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Grace.D()+30*time.Second)
	defer cancel()
	for {
		active, err := s.house.store.ActiveAttempts(ctx)
		if err != nil {
			return err
		}
		if len(active) == 0 {
			return nil
		}
		for _, a := range active {
			if a.Run.StopRequestedAt == nil && !a.Run.State.Terminal() {
				if _, err := s.house.service.Stop(ctx, a.Run.ID, tallyman.ReasonStopped, "tallyman up --stop-runs"); err != nil {
					return err
				}
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d running agents did not end in time", len(active))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// settlePatience is how long an embedded server waits for attempts that have
// ended to give their slots back.
const settlePatience = time.Second

// awaitEnding waits while all that is active has ended but has not given its
// slot back, until ctx ends.
func (s *server) awaitEnding(ctx context.Context) {
	for {
		active, err := s.house.store.ActiveAttempts(ctx)
		if err != nil || len(active) == 0 || slices.ContainsFunc(active, atWork) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func atWork(a tallyman.Active) bool { return a.Attempt.EndedAt == nil }

// unfinished reports whether something is queued or at work. It is asked when
// nothing can be submitted any more.
func (s *server) unfinished(ctx context.Context) bool {
	queued, err := s.house.store.Queue(ctx, 1)
	if err != nil || len(queued) > 0 {
		return err == nil
	}
	active, err := s.house.store.ActiveAttempts(ctx)
	return err == nil && slices.ContainsFunc(active, atWork)
}
