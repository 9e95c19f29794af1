package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman/internal/fakemodel"
)

func (c *command) fakemodelCommand() *cobra.Command {
	var listen, file string
	cmd := &cobra.Command{
		Use:   "fakemodel",
		Short: "Serve a scripted model, to try an installation without spending tokens",
		Long: `Speaks the wire formats of Anthropic Messages, OpenAI Responses and Gemini, and
answers from a script, or without one with what the prompt asks for. Point an
agent at it: ANTHROPIC_BASE_URL=http://ADDRESS ANTHROPIC_API_KEY=any.`,
		Example: `  tallyman fakemodel
  tallyman fakemodel --listen 127.0.0.1:8787 --script answers.yaml`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.fakemodel(cmd.Context(), listen, file) },
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8787", "address, host:port")
	cmd.Flags().StringVar(&file, "script", "", "file with what to answer, YAML or JSON")
	return cmd
}

func (c *command) fakemodel(ctx context.Context, listen, file string) error {
	if _, port, err := net.SplitHostPort(listen); err != nil || port == "" {
		return usageError("--listen %q is no address; %s", listen, writeItLike("listen"))
	}
	var script fakemodel.Script
	if file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return usageError("read the script: %w", err)
		}
		if script, err = fakemodel.ParseScript(b); err != nil {
			return usageError("%s: %w", file, err)
		}
	}
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w; name another address with --listen", listen, err)
	}
	cfg, _, err := c.config()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	srv := &http.Server{Handler: fakemodel.New(script, c.logger(cfg, slog.LevelInfo)), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintf(c.out, "the scripted model listens on http://%s\n", l.Addr())
	context.AfterFunc(ctx, func() {
		if err := srv.Close(); err != nil {
			fmt.Fprintln(c.errOut, "tallyman: closing:", err)
		}
	})
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
