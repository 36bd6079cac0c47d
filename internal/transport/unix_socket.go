package transport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"comet/internal/httpkit"
)

// UnixPath returns the path of a Unix socket in an address such as unix:/run/comet/agents.sock.
func UnixPath(address string) (path string, ok bool) { return strings.CutPrefix(address, "unix:") }

// listenUnix listens on a Unix socket with the given mode. It replaces a socket without a listener.
func listenUnix(ctx context.Context, path string, mode fs.FileMode) (net.Listener, error) {
	if limit := len(syscall.RawSockaddrUnix{}.Path) - 1; len(path) > limit {
		return nil, fmt.Errorf("the path of the socket %s has %d bytes, and this system allows %d", path, len(path), limit)
	}
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s exists and is not a socket", path)
	case err == nil:
		conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err == nil {
			return nil, errors.Join(fmt.Errorf("another process listens on the socket %s", path), conn.Close())
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("the socket %s exists; remove the file if no process uses it: %w", path, err)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path) // Close removes the file
	if err != nil {
		return nil, err
	}
	// A process that connects before this call is also identified by its user id.
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// unixOrigin returns the origin of a connection to a Unix socket. It is trusted if the operating system
// reports that the process at the other end belongs to the user of this process or to root.
func unixOrigin(conn *net.UnixConn) origin {
	from := origin{prefix: httpkit.AddressPrefix(netip.IPv6Loopback()), name: "an unknown user"}
	raw, err := conn.SyscallConn()
	if err != nil {
		return from
	}
	_ = raw.Control(func(fd uintptr) {
		if uid, err := peerUser(int(fd)); err == nil {
			from.name, from.trusted = fmt.Sprintf("user %d", uid), uid == 0 || int(uid) == os.Geteuid()
		}
	})
	return from
}
