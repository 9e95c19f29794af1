//go:build linux

package contract_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// What the lean runner may take: a fat process 1 is what the kernel kills
// first under a small memory limit.
const (
	maxRunnerSize = 8_000_000 // bytes, stripped
	maxRunnerRSS  = 15_000    // kB, with an idle child
)

func TestTheRunnerIsSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tallyman-runner")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./cmd/tallyman-runner")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > maxRunnerSize {
		t.Errorf("the stripped runner has %d bytes, more than %d", info.Size(), maxRunnerSize)
	}
}

func TestTheRunnerNeedsLittleMemory(t *testing.T) {
	p := newPlace(t)
	run := p.detach("exec", "--", "sleep", "60")
	p.eventually("the agent runs", func() bool { return p.show(run.ID).State == "running" })
	status, err := os.ReadFile("/proc/" + strconv.Itoa(p.runner()) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		t.Fatalf("no VmRSS in %s", status)
	}
	kb, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	if kb > maxRunnerRSS {
		t.Errorf("the runner has %d kB resident with an idle child, more than %d", kb, maxRunnerRSS)
	}
	t.Logf("%d kB", kb)
	p.ok("stop", run.ID)
}
