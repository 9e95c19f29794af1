//go:build linux

package contract_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// processes returns the command lines, by pid, of the living processes that
// have this place's folder in their arguments or environment.
func (p *place) processes() map[int]string {
	return scan(p.t, func(args, env []byte) bool {
		return bytes.Contains(args, []byte(p.dir)) || bytes.Contains(env, []byte(p.dir))
	})
}

// scan returns the command lines, by pid, of the living processes that match.
func scan(t *testing.T, match func(args, env []byte) bool) map[int]string {
	found := map[int]string{}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil || pid == os.Getpid() {
			continue
		}
		// A process that is gone, or a zombie, has neither.
		args, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(d, "environ"))
		args = bytes.TrimSpace(bytes.ReplaceAll(args, []byte{0}, []byte{' '}))
		if match(args, env) {
			found[pid] = string(args)
		}
	}
	return found
}

// count is how many processes of the place have words in their command line.
func (p *place) count(words string) int {
	n := 0
	for _, args := range p.processes() {
		if strings.Contains(args, words) {
			n++
		}
	}
	return n
}

// runner returns the process of the only runner that is at work, 0 without
// one.
func (p *place) runner() int {
	for pid, args := range p.processes() {
		if strings.HasSuffix(args, "tallyman-runner runner") {
			return pid
		}
	}
	return 0
}

// leave ends a server in the background, and checks that nothing else is left.
func (p *place) leave() {
	if p.t.Failed() {
		p.tell()
	}
	var left map[int]string
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		left = p.processes()
		for pid, args := range left {
			if strings.Contains(args, "tallyman up --background") {
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
		}
		if len(left) == 0 || p.t.Failed() {
			break
		}
	}
	for pid, args := range left {
		if !p.t.Failed() {
			p.t.Errorf("process %d is left: %.200s", pid, args)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err := os.RemoveAll(p.dir); err != nil && !p.t.Failed() {
		p.t.Errorf("clean up: %v", err)
	}
}
