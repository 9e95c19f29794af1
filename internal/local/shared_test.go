package local_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/local"
)

func TestASharedWorkspaceGoesWithItsRun(t *testing.T) {
	dir := t.TempDir()
	b := local.New(local.Options{Dir: dir, Lookup: os.LookupEnv})
	if err := b.RemoveShared(runID); err != nil {
		t.Errorf("a run without one: %v", err)
	}
	spec, err := b.Spec(t.Context(), "", tallyman.RunnerSpec{RunID: runID, Attempt: 2, Agent: tallyman.AgentSpec{Workspace: tallyman.Workspace{Keep: true}}})
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := local.SharedOf(filepath.Base(spec.WorkDir)); !ok || id != runID {
		t.Errorf("%s is said to be of run %q, %v", spec.WorkDir, id, ok)
	}
	stays := filepath.Join(dir, runID+"-1")
	for _, folder := range []string{filepath.Join(spec.WorkDir, "src"), stays} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.RemoveShared(runID); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(spec.WorkDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the workspace is still there: %v", err)
	}
	for _, odd := range []string{"", "..", "../" + runID, runID + "-1"} {
		if err := b.RemoveShared(odd); tallyman.CodeOf(err) != tallyman.Invalid {
			t.Errorf("run %q: %v", odd, err)
		}
	}
	for _, name := range []string{runID + "-1", runID, "-work", "x-work", runID + "-work.old"} {
		if id, ok := local.SharedOf(name); ok {
			t.Errorf("%s is said to be the workspace of %s", name, id)
		}
	}
	if _, err := os.Stat(stays); err != nil {
		t.Errorf("the attempt's folder: %v", err)
	}
}
