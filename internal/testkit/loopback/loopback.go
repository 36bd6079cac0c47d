// Package loopback finds addresses for servers that tests stop and start again.
package loopback

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Address returns a free address whose port the system does not assign to other sockets, so that it is
// still free when a server starts there again.
func Address(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(20_000+rand.IntN(10_000)))
		if l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address); err == nil {
			require.NoError(t, l.Close())
			return address
		}
	}
	require.FailNow(t, "no port is free")
	return ""
}
