package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/config"
	"github.com/tallyman-dev/tallyman/internal/render"
)

// Finding is one thing that doctor has looked at.
type Finding struct {
	What  string
	OK    bool
	Found string
	Mend  string // what to do when it is not OK
}

func (c *command) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this installation and say what to mend",
		Long: `Looks at the data folder, its disk and clock, the server, agent files and agent
programs; with --backend kube at the cluster, rights, kinds, Pod security, Secrets,
and while a server runs at whether a Pod reaches it. Exit code 1 when something is
broken.`,
		Example: "  tallyman doctor",
		Args:    args(0, 0, "no arguments"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.doctor(cmd.Context()) },
	}
	c.configFlag(cmd.Flags(), "listen", "where the server listens, as with up")
	c.backendFlags(cmd)
	return cmd
}

func (c *command) doctor(ctx context.Context) error {
	cfg, _, err := c.config()
	if err != nil {
		return err
	}
	all := []Finding{c.checkData(cfg), c.checkSpace(cfg), c.checkClock(cfg)}
	all = append(all, c.checkServer(ctx), c.checkAgents(ctx, cfg), c.checkGit(), c.checkClaude())
	all = append(all, c.checkBackend(ctx, cfg)...)
	broken := false
	for _, f := range all {
		mark := "ok    "
		if !f.OK {
			mark, broken = "BROKEN", true
		}
		fmt.Fprintf(c.out, "%s  %-14s %s\n", mark, f.What, f.Found)
		if !f.OK && f.Mend != "" {
			fmt.Fprintf(c.out, "        %-14s %s\n", "", "mend: "+f.Mend)
		}
	}
	if broken {
		return &exitError{code: ExitFailed}
	}
	return nil
}

func (c *command) checkData(cfg config.Config) Finding {
	f := Finding{What: "data folder", Found: cfg.Data, Mend: "make it writable for you, or name another with --data"}
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		f.Found = err.Error()
		return f
	}
	if err := checkFS(cfg.Data); err != nil {
		f.Found, f.Mend = err.Error(), "name a folder on a local disk with --data"
		return f
	}
	probe := filepath.Join(cfg.Data, ".doctor")
	err := os.WriteFile(probe, []byte("probe"), 0o600)
	if err == nil {
		err = os.Remove(probe)
	}
	if err != nil {
		f.Found = err.Error()
		return f
	}
	f.OK = true
	return f
}

func (c *command) checkSpace(cfg config.Config) Finding {
	f := Finding{What: "disk", Mend: "free some space, or remove old runs: tallyman prune"}
	free, err := freeSpace(cfg.Data)
	if err != nil {
		f.Found = err.Error()
		return f
	}
	least := max(int64(cfg.JournalReserve), leastSpace)
	f.OK, f.Found = free >= least, fmt.Sprintf("%s free; runs are taken down to %s", render.Bytes(free), render.Bytes(least))
	return f
}

// checkClock compares the clock with the data folder's newest file.
func (c *command) checkClock(cfg config.Config) Finding {
	f := Finding{What: "clock", OK: true, Found: time.Now().UTC().Format(time.RFC3339), Mend: "set the clock: times and deadlines depend on it"}
	info, err := os.Stat(filepath.Join(cfg.Data, "control.db"))
	if err == nil && info.ModTime().After(time.Now().Add(time.Minute)) {
		f.OK = false
		f.Found += ", but the data folder was written at " + info.ModTime().UTC().Format(time.RFC3339)
	}
	return f
}

func (c *command) checkServer(ctx context.Context) Finding {
	f := Finding{What: "server", Mend: "see the message; tallyman up starts one"}
	s, err := c.connect(ctx, looks)
	if err != nil {
		f.Found = err.Error()
		return f
	}
	info, err := s.Info(ctx)
	if err != nil {
		f.Found = err.Error()
		return f
	}
	f.OK = true
	switch {
	case info.PID == os.Getpid():
		f.Found = "none runs; every command serves itself"
	case info.Listen == "":
		f.Found = fmt.Sprintf("process %d, on the socket", info.PID)
	default:
		f.Found = fmt.Sprintf("process %d on %s, version %s", info.PID, info.URL, info.Version)
	}
	return f
}

func (c *command) checkAgents(ctx context.Context, cfg config.Config) Finding {
	f := Finding{What: "agent files", Mend: "mend the files that are named"}
	agents, faults, err := c.findAgents(ctx)
	if err = errors.Join(append(faults, err)...); err != nil {
		f.Found = err.Error()
		return f
	}
	agents = slices.DeleteFunc(agents, func(a tallyman.Agent) bool { return tallyman.IsResource(a.Origin) })
	files := 0
	for _, a := range agents {
		if a.Origin != tallyman.BuiltIn {
			files++
		}
	}
	f.OK, f.Found = true, fmt.Sprintf("%d agents, %d of them from files", len(agents), files)
	return f
}

func (c *command) checkGit() Finding {
	path, err := exec.LookPath("git")
	if err != nil {
		return Finding{What: "git", OK: true, Found: "not installed; only workspaces git:URL need it"}
	}
	return Finding{What: "git", OK: true, Found: path}
}

func (c *command) checkClaude() Finding {
	path, err := exec.LookPath("claude")
	if err != nil {
		return Finding{What: "claude", OK: true, Found: "not installed; only agents of harness claude need it"}
	}
	f := Finding{What: "claude", OK: true, Found: path}
	if os.Getuid() == 0 && c.env.get("IS_SANDBOX") != "1" {
		f.Found += "; as root it needs IS_SANDBOX=1"
	}
	return f
}
