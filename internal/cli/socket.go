package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/tallyman-dev/tallyman/internal/auth"
)

// maxSocketPath is what every system takes as a socket's path.
const maxSocketPath = 100

// socketPath is where the server of a data folder listens. A path that is too
// long for a socket is replaced by a short one in a private folder.
func socketPath(data string) string {
	path := filepath.Join(data, "run", "tallyman.sock")
	if len(path) <= maxSocketPath {
		return path
	}
	sum := sha256.Sum256([]byte(data))
	return filepath.Join(os.TempDir(), "tallyman-"+strconv.Itoa(os.Getuid()), hex.EncodeToString(sum[:8])+".sock")
}

// listenSocket listens on the data folder's socket; the lock is ours, so a
// socket that is there is a dead server's.
func listenSocket(path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the socket: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, fmt.Errorf("look at the folder of the socket: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && (int(st.Uid) != os.Getuid() || !info.IsDir()) {
		return nil, fmt.Errorf("the folder of the socket, %s, belongs to somebody else", dir)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove a dead server's socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on the socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("keep the socket private: %w", err), l.Close())
	}
	return ownerListener{l}, nil
}

// acceptPause is how long a socket that is hidden goes on accepting.
const acceptPause = 5 * time.Millisecond

// hideSocket lets nobody come any more, while those who have connected
// already are still accepted: to be cut off without an answer would leave them
// in doubt whether they were heard.
func hideSocket(path string) {
	if os.Remove(path) == nil {
		time.Sleep(acceptPause)
	}
}

// ownerListener hands out the connections of the owner's own processes.
type ownerListener struct{ net.Listener }

func (l ownerListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if isOwner(c) {
			return ownerConn{c}, nil
		}
		slog.Warn("refused a connection of another user on the socket")
		if err := c.Close(); err != nil {
			slog.Debug("closing it", "err", err)
		}
	}
}

func isOwner(c net.Conn) bool {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return false
	}
	uid := -1
	if err := raw.Control(func(fd uintptr) {
		if id, err := peerUID(fd); err == nil {
			uid = id
		}
	}); err != nil {
		return false
	}
	return uid == os.Getuid() || uid == 0
}

// ownerConn is a connection that came over the socket.
type ownerConn struct{ net.Conn }

// connContext marks what comes over the socket as the owner's.
func connContext(ctx context.Context, c net.Conn) context.Context {
	if _, ok := c.(ownerConn); ok {
		return auth.Owner(ctx)
	}
	return ctx
}
