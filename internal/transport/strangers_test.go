package transport_test

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/transport"
)

// accepts reports whether a connection was let in, and hears what it says.
func (h *v5Fixture) accepts(t *testing.T) bool {
	t.Helper()
	g, _ := h.dialTCP(t)
	_ = g.send("nonsense")
	text, err := g.read()
	return err == nil && strings.Contains(text, "|E10|")
}

// TestStrangersFromAfar do not keep others out.
func TestStrangersFromAfar(t *testing.T) {
	t.Parallel()
	runV5Case(t, "are eight of one address at most", transport.Options{}, allRemoteSlow(), func(t *testing.T, h *v5Fixture) {
		var silent []net.Conn
		for range 8 {
			_, conn := h.dialTCP(t)
			silent = append(silent, conn)
		}
		g, _ := h.dialTCP(t)
		require.Empty(t, g.readUntilClosed())
		require.NoError(t, silent[0].Close())
		require.Eventually(t, func() bool { return h.accepts(t) }, time.Minute, time.Millisecond, "there is room again")
	})
	few := allRemoteSlow()
	few.MaxUnauthenticated = 8
	few.IsLocal = func(from netip.Addr) bool { return from.String() == "127.0.0.1" }
	runV5Case(t, "leave a quarter of the room to this machine", transport.Options{}, few, func(t *testing.T, h *v5Fixture) {
		for i := range 6 { // of two addresses
			h.dialFrom(t, []string{"127.0.0.2", "127.0.0.3"}[i%2])
		}
		_, err := h.dialFrom(t, "127.0.0.4").Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.True(t, h.accepts(t))
	})
	runV5Case(t, "have less time", transport.Options{}, transport.TCPOptions{
		HandshakeTimeout: time.Hour, RemoteHandshakeTimeout: 30 * time.Millisecond, IsLocal: func(netip.Addr) bool { return false },
	}, func(t *testing.T, h *v5Fixture) {
		g, _ := h.dialTCP(t)
		require.Empty(t, g.readUntilClosed())
	})
}

// allRemoteSlow is a listener to which every address is another machine's, and which waits long.
func allRemoteSlow() transport.TCPOptions {
	out := allRemote()
	out.RemoteHandshakeTimeout = time.Hour
	return out
}
