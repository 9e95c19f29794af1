//go:build faults

package fault

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestTheNthPassKills(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := newPlan(RunnerWelcomed+":2,"+LocalForked+":1", log)
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	p.kill = func() { killed++ }
	for i, want := range []int{0, 1, 1} {
		p.pass(RunnerWelcomed)
		p.pass(RunnerEnding)
		if killed != want {
			t.Errorf("after pass %d: killed %d times", i+1, killed)
		}
	}
	got, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	want := ""
	for _, how := range []string{"", " killed", ""} {
		want += fmt.Sprintf("%d %s%s\n%d %s\n", os.Getpid(), RunnerWelcomed, how, os.Getpid(), RunnerEnding)
	}
	if string(got) != want {
		t.Errorf("the log is\n%s", got)
	}
}

func TestAFaultThatCannotHappenIsRefused(t *testing.T) {
	for _, spec := range []string{"runner.wellcomed:1", RunnerWelcomed, RunnerWelcomed + ":0", RunnerWelcomed + ":x"} {
		if _, err := newPlan(spec, ""); err == nil {
			t.Errorf("%q was taken", spec)
		}
	}
}
