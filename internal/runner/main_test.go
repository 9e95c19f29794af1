package runner

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// TestMain is the agents and runners of the tests, too: it does what its
// first argument says.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "family":
			os.Exit(family(os.Args[2]))
		case "sleep":
			time.Sleep(10 * time.Minute)
			os.Exit(0)
		case "orphan":
			os.Exit(leave(os.Args[2], os.Environ()))
		case "runner":
			os.Exit(Main("test", os.Stderr))
		}
	}
	os.Exit(m.Run())
}

// family is an agent that leaves behind everything that a tree may: a child in
// a session of its own, and daemons whose parents have gone, with their
// environment and without. All of them hold its standard output. It writes
// their pids into a folder.
func family(dir string) int {
	for _, args := range [][]string{{"sleep"}, {"orphan", dir + "/daemon"}} {
		if err := spawn(dir+"/session", os.Environ(), args...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if err := spawn(dir+"/ignored", []string{}, "orphan", dir+"/nameless"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, name := range []string{"daemon", "nameless"} {
		for range 1000 {
			if _, err := os.Stat(dir + "/" + name); err == nil {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	fmt.Println("the agent ends, its family stays")
	return 0
}

// leave starts a process and leaves it without a parent.
func leave(pidFile string, env []string) int {
	if err := spawn(pidFile, env, "sleep"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// spawn starts this program in a session of its own and writes its pid.
func spawn(pidFile string, env []string, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	return os.WriteFile(pidFile, []byte(strconv.Itoa(cmd.Process.Pid)), 0o600)
}
