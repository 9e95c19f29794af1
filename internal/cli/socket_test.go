package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tallyman-dev/tallyman/internal/auth"
)

// shortDir is a folder whose name leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tms-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// whoServes serves on a listener and says of each call whether it is the owner's.
func whoServes(t *testing.T, l net.Listener) {
	t.Helper()
	s := &http.Server{ConnContext: connContext, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := "anybody"
		if auth.IsOwner(r.Context()) {
			who = "the owner"
		}
		_, _ = io.WriteString(w, who)
	})}
	go func() { _ = s.Serve(l) }() // it ends by Close
	t.Cleanup(func() { _ = s.Close() })
}

// who asks over a network's address.
func who(t *testing.T, network, address string) (string, error) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}}
	resp, err := c.Get("http://tallyman/")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func TestTheSocketIsTheOwnersAndTCPIsNot(t *testing.T) {
	path := filepath.Join(shortDir(t), "run", "tallyman.sock")
	l, err := listenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	whoServes(t, l)
	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, %v", name, info.Mode(), err)
		}
	}
	if got, err := who(t, "unix", path); got != "the owner" || err != nil {
		t.Errorf("over the socket calls %q, %v", got, err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	whoServes(t, tcp)
	if got, err := who(t, "tcp", tcp.Addr().String()); got != "anybody" || err != nil {
		t.Errorf("over TCP calls %q, %v", got, err)
	}
	// A socket alone does not make an owner: the listener must have asked.
	plain, err := net.Listen("unix", filepath.Join(filepath.Dir(path), "plain.sock"))
	if err != nil {
		t.Fatal(err)
	}
	whoServes(t, plain)
	if got, err := who(t, "unix", plain.Addr().String()); got != "anybody" || err != nil {
		t.Errorf("over another socket calls %q, %v", got, err)
	}
}

// asNobody makes TestAnotherUserIsNotServed the other user.
const asNobody = "TALLYMAN_TEST_NOBODY"

func TestAnotherUserIsNotServed(t *testing.T) {
	if path := os.Getenv(asNobody); path != "" {
		got, err := who(t, "unix", path)
		t.Logf("as uid %d: %q, %v", os.Getuid(), got, err)
		if err == nil {
			t.Fatal("served")
		}
		return
	}
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	dir := shortDir(t)
	l, err := listenSocket(filepath.Join(dir, "tallyman.sock"))
	if err != nil {
		t.Fatal(err)
	}
	whoServes(t, l)
	// Even where the file system lets everybody in.
	for _, name := range []string{dir, l.Addr().String()} {
		if err := os.Chmod(name, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Skip(err)
	}
	program := filepath.Join(dir, "cli.test") // where nobody may read it
	if err := os.WriteFile(program, self, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=TestAnotherUserIsNotServed", "-test.v")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), asNobody+"="+l.Addr().String(), "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "as uid 65534") {
		t.Errorf("another user: %v\n%s", err, out)
	}
	if got, err := who(t, "unix", l.Addr().String()); got != "the owner" {
		t.Errorf("the owner after it: %q, %v", got, err)
	}
}

func TestASocketThatADeadServerLeftIsReplaced(t *testing.T) {
	path := filepath.Join(shortDir(t), "tallyman.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := listenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	whoServes(t, l)
	if got, err := who(t, "unix", path); got != "the owner" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestALongDataFolderHasAShortSocket(t *testing.T) {
	short := "/data"
	if got := socketPath(short); got != "/data/run/tallyman.sock" {
		t.Errorf("got %s", got)
	}
	one, two := socketPath("/"+strings.Repeat("x", 200)), socketPath("/"+strings.Repeat("y", 200))
	if len(one) > maxSocketPath || one == two {
		t.Errorf("got %s and %s", one, two)
	}
	file := filepath.Join(shortDir(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenSocket(filepath.Join(file, "s")); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("in a file: %v", err)
	}
}
