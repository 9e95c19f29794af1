package runner

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/mask"
)

// reach is how long a runner in a Pod tries to get a first answer from its
// server, before it says that it cannot.
const reach = 50 * time.Second

// Pod is the runner's process in a Pod, the first one of its container. What
// it knows is on its command line and mounted beside it; it prints the
// transcript, and leaves its last word as the termination message.
func Pod(version string, args []string, stdout, stderr io.Writer) int {
	log := slog.New(slog.NewTextHandler(stderr, nil))
	boot, err := podBootstrap(args, stderr)
	if err != nil {
		log.Error("reading the command line", "err", err)
		return ExitFailed
	}
	if err := hide(); err != nil {
		log.Warn("keeping the agent from looking into its runner", "err", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGPIPE)
	known, err := knownSecrets(tallyman.PodSecrets)
	if err != nil {
		log.Error("reading what must not be told", "err", err)
		return ExitFailed
	}
	r := &run{
		boot: boot, log: log, began: time.Now(), oomKills: oomKills, reach: reach,
		inherited: os.Environ(), secrets: known, transcript: stdout, alone: true,
	}
	err = r.attempt(ctx, version)
	word := r.lastWord(err)
	if werr := os.WriteFile(tallyman.PodLastWord, word.Encode(), 0o644); werr != nil {
		log.Error("leaving the last word", "err", werr)
	}
	switch code := exitCode(err, log); {
	case code != ExitOK:
		return code
	case word.Outcome.Reason != tallyman.Completed:
		return ExitFailed
	default:
		return ExitOK
	}
}

// podBootstrap reads the command line.
func podBootstrap(args []string, stderr io.Writer) (tallyman.Bootstrap, error) {
	b := tallyman.Bootstrap{Dir: tallyman.PodState, Token: filepath.Join(tallyman.PodChannel, "token")}
	flags := flag.NewFlagSet("pod", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&b.Attempt, "attempt", "", "the attempt, RUN-NUMBER")
	flags.StringVar(&b.Server, "server", "", "URL of the server")
	flags.StringVar(&b.Cluster, "cluster", "", "name of this cluster")
	if err := flags.Parse(args); err != nil {
		return b, err
	}
	if _, err := tallyman.ParseAttemptRef(b.Attempt); err != nil {
		return b, err
	}
	if b.Server == "" {
		return b, errors.New("--server is missing")
	}
	ca := filepath.Join(tallyman.PodChannel, "ca.crt")
	if _, err := os.Stat(ca); err == nil {
		b.CA = ca
	} else if !errors.Is(err, fs.ErrNotExist) {
		return b, fmt.Errorf("look for the server's authority: %w", err)
	}
	return b, nil
}

// lastWord is what is known at the end, err being why the attempt could not
// be worked or reported.
func (r *run) lastWord(err error) tallyman.LastWord {
	w := tallyman.LastWord{Attempt: r.boot.Attempt, At: time.Now().UTC()}
	if r.outcome != nil {
		w.Outcome, w.Cursor, w.At = *r.outcome, r.finalCursor, r.ended.UTC()
		w.Undelivered = r.finalCursor - min(r.finalCursor, r.up.delivered())
		return w
	}
	w.Outcome = tallyman.Outcome{Reason: tallyman.SetupFailed, Message: "the runner could not begin"}
	if err != nil {
		w.Outcome.Message = err.Error()
	}
	if errors.Is(err, errUnreached) {
		w.Outcome.Reason = tallyman.ServerUnreachable
	}
	return w
}

// knownSecrets reads what is mounted for masking: a folder for each source, a
// file for each variable. None is fine.
func knownSecrets(dir string) ([]mask.Secret, error) {
	sources, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []mask.Secret
	for _, source := range sources {
		files, err := os.ReadDir(filepath.Join(dir, source.Name()))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if strings.HasPrefix(f.Name(), "..") {
				continue // where a mount keeps its versions
			}
			value, err := os.ReadFile(filepath.Join(dir, source.Name(), f.Name()))
			if err != nil {
				return nil, err
			}
			all = append(all, mask.Secret{Name: f.Name(), Value: string(value)})
		}
	}
	return all, nil
}

// Install copies this program into a folder, for a container that has none. It
// returns the process's exit code.
func Install(args []string, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(stderr, "tallyman-runner install: name one folder")
		return ExitFailed
	}
	if err := install(args[0]); err != nil {
		fmt.Fprintln(stderr, "tallyman-runner install:", err)
		return ExitFailed
	}
	return ExitOK
}

func install(dir string) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	from, err := os.Open(self)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(dir, "tallyman-runner"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o555)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	_, err = io.Copy(to, from)
	return err
}
