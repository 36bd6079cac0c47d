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

// taken reports whether a connection was let in, and hears what it says.
func (h *inn) taken(t *testing.T) bool {
	t.Helper()
	g, _ := h.dialLine(t)
	_ = g.send("nonsense")
	text, err := g.next()
	return err == nil && strings.Contains(text, "|E10|")
}

// TestStrangersFromAfar do not keep others out.
func TestStrangersFromAfar(t *testing.T) {
	t.Parallel()
	plainRule(t, "are eight of one address at most", transport.Options{}, slow(), func(t *testing.T, h *inn) {
		var silent []net.Conn
		for range 8 {
			_, conn := h.dialLine(t)
			silent = append(silent, conn)
		}
		g, _ := h.dialLine(t)
		require.Empty(t, g.over())
		require.NoError(t, silent[0].Close())
		require.Eventually(t, func() bool { return h.taken(t) }, time.Minute, time.Millisecond, "there is room again")
	})
	few := slow()
	few.MaxStrangers = 8
	few.Local = func(from netip.Addr) bool { return from.String() == "127.0.0.1" }
	plainRule(t, "leave a quarter of the room to this machine", transport.Options{}, few, func(t *testing.T, h *inn) {
		for i := range 6 { // of two addresses
			h.dialFrom(t, []string{"127.0.0.2", "127.0.0.3"}[i%2])
		}
		_, err := h.dialFrom(t, "127.0.0.4").Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.True(t, h.taken(t))
	})
	plainRule(t, "have less time", transport.Options{}, transport.ListenerOptions{
		Greeting: time.Hour, FarGreeting: 30 * time.Millisecond, Local: func(netip.Addr) bool { return false },
	}, func(t *testing.T, h *inn) {
		g, _ := h.dialLine(t)
		require.Empty(t, g.over())
	})
}

// slow is a listener to which every address is another machine's, and which waits long.
func slow() transport.ListenerOptions {
	out := elsewhere()
	out.FarGreeting = time.Hour
	return out
}
