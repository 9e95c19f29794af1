package auth_test

import (
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tallyman-dev/tallyman/internal/auth"
)

// smallDisk makes files end after so many bytes until the test's end.
func smallDisk(t *testing.T, size uint64) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ) // so that a write fails instead
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
			t.Error(err)
		}
		signal.Reset(syscall.SIGXFSZ)
	})
}

func TestATokenIsWrittenWholeOrNotAtAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	t.Run("the disk is full", func(t *testing.T) {
		smallDisk(t, 5)
		if _, err := auth.Open(path); !errors.Is(err, syscall.EFBIG) {
			t.Errorf("got %v", err)
		}
	})
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
	if _, err := auth.ReadToken(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("half a token: %v", err)
	}
	if _, err := auth.Open(path); err != nil {
		t.Errorf("when there is room again: %v", err)
	}
}
