//go:build deploy

package deploy_test

import (
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

var all = flag.Bool("all", false, "build all programs for arm64 too, which may take many minutes")

// The image's programs are static and of their machine. Without -all only the
// runner is built for arm64, since the others compile Kubernetes' client there.
func TestPrograms(t *testing.T) {
	out := t.TempDir()
	three := []string{"tallyman", "tallyman-runner", "tallyman-server"}
	for _, p := range []struct {
		platform string
		machine  elf.Machine
		programs []string
	}{
		{"linux/amd64", elf.EM_X86_64, three},
		{"linux/arm64", elf.EM_AARCH64, three},
	} {
		args := []string{out, p.platform}
		if p.machine == elf.EM_AARCH64 && !*all {
			p.programs = []string{"tallyman-runner"}
			args = append(args, "./cmd/tallyman-runner")
		}
		cmd := exec.Command("../../deploy/build.sh", args...)
		cmd.Env = append(os.Environ(), "VERSION=9.8.7")
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		built, err := os.ReadDir(filepath.Join(out, p.platform))
		if err != nil || len(built) != len(p.programs) {
			t.Errorf("%s: %d programs, want %q (%v)", p.platform, len(built), p.programs, err)
		}
		for _, name := range p.programs {
			if err := static(filepath.Join(out, p.platform, name), p.machine); err != nil {
				t.Errorf("%s: %s: %v", p.platform, name, err)
			}
		}
	}
	dockerfile, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range three {
		if !strings.Contains(string(dockerfile), " /out/"+name+" ") {
			t.Errorf("the image has no %s", name)
		}
	}
	if runtime.GOOS+"/"+runtime.GOARCH == "linux/amd64" {
		b, err := exec.Command(filepath.Join(out, "linux/amd64/tallyman"), "version").CombinedOutput()
		if err != nil || !strings.Contains(string(b), "9.8.7") {
			t.Errorf("its version is %q (%v)", b, err)
		}
		if err := static("/bin/sh", elf.EM_X86_64); err == nil || !strings.Contains(err.Error(), "PT_INTERP") {
			t.Errorf("/bin/sh, which is not static: %v", err)
		}
	}
}

// static says why a file is no static program of a machine.
func static(path string, machine elf.Machine) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if f.Machine != machine || f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return fmt.Errorf("%v of %v, want a program of %v", f.Type, f.Machine, machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("it names an interpreter (PT_INTERP)")
		}
	}
	if libraries, err := f.ImportedLibraries(); err != nil || len(libraries) > 0 {
		return fmt.Errorf("it needs %q (%v)", libraries, err)
	}
	return nil
}
