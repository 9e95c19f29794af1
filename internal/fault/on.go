//go:build faults

package fault

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Point passes the named point: it is logged, and may be the end of this
// process. What the environment says wrong is told on standard error and
// ends the process too: a test must not run without its fault.
func Point(name string) { ofProcess().pass(name) }

// plan is what the environment asks of this process.
type plan struct {
	mu   sync.Mutex
	left map[string]int // passes that are left until a point kills
	log  *os.File       // nil: nobody asked
	kill func()
}

// ofProcess reads the environment once: passes are counted per process.
var ofProcess = sync.OnceValue(func() *plan {
	p, err := newPlan(os.Getenv("TALLYMAN_FAULT"), os.Getenv("TALLYMAN_FAULT_LOG"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "tallyman:", err)
		os.Exit(2)
	}
	return p
})

func newPlan(spec, log string) (*plan, error) {
	p := &plan{left: map[string]int{}, kill: killSelf}
	for one := range strings.SplitSeq(spec, ",") {
		if one == "" {
			continue
		}
		name, count, _ := strings.Cut(one, ":")
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 || !known(name) {
			return nil, fmt.Errorf("TALLYMAN_FAULT: %q is not NAME:N with a known name and N from 1", one)
		}
		p.left[name] = n
	}
	if log == "" {
		return p, nil
	}
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("TALLYMAN_FAULT_LOG: %w", err)
	}
	p.log = f
	return p, nil
}

func known(name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

func (p *plan) pass(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left, planned := p.left[name]
	fires := planned && left == 1
	if planned {
		p.left[name] = left - 1
	}
	if p.log != nil {
		how := ""
		if fires {
			how = " killed"
		}
		fmt.Fprintf(p.log, "%d %s%s\n", os.Getpid(), name, how)
	}
	if fires {
		p.kill()
	}
}

// killSelf ends this process as the kernel would. It does not return.
func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until the signal has come
}
