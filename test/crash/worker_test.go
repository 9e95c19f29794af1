//go:build faults

package crash_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// workerVerb makes the test binary the agent's program.
const workerVerb = "crash-worker"

// workerLine is the text of the nth line that a worker prints.
func workerLine(n int) string { return fmt.Sprintf("line %d", n) }

// work is the agent: it leaves marks in an outside file, so that work which
// was begun twice, at the same time or at all, is seen. A mark is
// "WHAT RUN ATTEMPT PID NANOSECONDS".
func work(args []string) int {
	flags := flag.NewFlagSet(workerVerb, flag.ContinueOnError)
	ledger := flags.String("ledger", "", "the outside file")
	lines := flags.Int("lines", 3, "how many to print")
	over := flags.Duration("over", 0, "for how long")
	code := flags.Int("code", 0, "exit code")
	tail := flags.Bool("tail", false, "leave a child that outlives this process")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	run, attempt := os.Getenv("TALLYMAN_RUN_ID"), os.Getenv("TALLYMAN_ATTEMPT_NO")
	out, err := os.OpenFile(*ledger, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 2
	}
	mark := func(what string) {
		fmt.Fprintf(out, "%s %s %s %d %d\n", what, run, attempt, os.Getpid(), time.Now().UnixNano())
	}
	alone, err := os.OpenFile(*ledger+"."+run, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return 2
	}
	if syscall.Flock(int(alone.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		mark("overlap") // somebody of another attempt, or of this one, still works
	}
	mark("begin")
	if *tail {
		child := exec.Command("sleep", "120")
		child.ExtraFiles = []*os.File{alone} // it holds the lock as long as it lives
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if child.Start() != nil {
			return 2
		}
	}
	for i := range *lines {
		time.Sleep(*over / time.Duration(*lines))
		fmt.Println(workerLine(i + 1))
	}
	mark("end")
	return *code
}

// mark is one line of the outside file.
type mark struct {
	what, run string
	attempt   int
	pid       int
	at        time.Time
}

func readLedger(path string) ([]mark, error) {
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	var all []mark
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 5 {
			return nil, fmt.Errorf("%s: %q is no mark", path, line)
		}
		attempt, err1 := strconv.Atoi(f[2])
		pid, err2 := strconv.Atoi(f[3])
		ns, err3 := strconv.ParseInt(f[4], 10, 64)
		if err1 != nil || err2 != nil || err3 != nil {
			return nil, fmt.Errorf("%s: %q is no mark", path, line)
		}
		all = append(all, mark{what: f[0], run: f[1], attempt: attempt, pid: pid, at: time.Unix(0, ns)})
	}
	return all, err
}
