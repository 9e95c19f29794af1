//go:build faults

// Package crash_test kills the real programs, at random moments and at named
// points, and then compares what was acknowledged outside with what is true
// inside.
//
// Promises, and who holds them here (all of them after every seed and every
// point; see verify_test.go, and checks_test.go for proof that each can fail):
//
//	an acknowledged submit exists exactly once         acknowledgedOnce
//	no run is lost and none is stuck                   settle
//	work starts at most once per attempt, and never
//	twice at the same time                             startedOnce
//	another attempt follows only a runner that was
//	killed                                             retriedForCause
//	no success without the work being done             truthful
//	an acknowledged stop before the end never succeeds stopsCount
//	events are a gap-free sequence, the same for who
//	followed and for who reads later                   transcript, followedAll
//	nothing survives, no slot is leaked                nothingLeft
//
// go test -tags faults ./test/crash/... -seeds 30; -seed N plays one again.
package crash_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var (
	seeds = flag.Int("seeds", 5, "how many seeds to play, from 1")
	seed  = flag.Uint64("seed", 0, "play this seed alone")
)

// bin holds the programs under test, built with fault points.
var bin string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerVerb {
		os.Exit(work(os.Args[2:]))
	}
	flag.Parse()
	code, err := prepared(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func prepared(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "tallyman-crash-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	bin = filepath.Join(dir, "bin")
	build := exec.Command("go", "build", "-tags", "faults", "-o", bin+"/", "../../cmd/tallyman", "../../cmd/tallyman-runner")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build: %w\n%s", err, out)
	}
	return m.Run(), nil
}
