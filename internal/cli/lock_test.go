package cli

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func TestADataFolderOnANetworkIsRefused(t *testing.T) {
	was := networkFS
	t.Cleanup(func() { networkFS = was })
	networkFS = func(string) (string, error) { return "NFS", nil }
	err := checkFS("/home/me/data")
	if err == nil || !strings.Contains(err.Error(), "/home/me/data is on NFS") || !strings.Contains(err.Error(), "--data") {
		t.Errorf("got %v", err)
	}
	networkFS = func(string) (string, error) { return "", os.ErrPermission }
	if err := checkFS("/x"); !errors.Is(err, os.ErrPermission) {
		t.Errorf("got %v", err)
	}
	networkFS = was
	if err := checkFS(t.TempDir()); err != nil {
		t.Errorf("a local folder: %v", err)
	}
}

func TestTheLockNamesWhoHoldsIt(t *testing.T) {
	dir := t.TempDir()
	f, err := lockData(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = lockData(dir)
	var held *heldError
	if !errors.As(err, &held) || held.pid != os.Getpid() || held.data != dir {
		t.Errorf("got %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := lockData(dir)
	if err != nil {
		t.Fatalf("after it was given back: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
