package app_test

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Types of DNS questions (RFC 1035 §3.2.2, RFC 3596).
const (
	typeA    = 1
	typeAAAA = 28
)

// resolve makes these names, and no others, resolve to the addresses until the test ends.
func resolve(t *testing.T, names map[string]string) {
	t.Helper()
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for buf := make([]byte, 1500); ; {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(answerTo(buf[:n], names), from)
		}
	}()
	preferGo, dial := net.DefaultResolver.PreferGo, net.DefaultResolver.Dial
	net.DefaultResolver.PreferGo = true
	net.DefaultResolver.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp4", server.LocalAddr().String())
	}
	t.Cleanup(func() {
		net.DefaultResolver.PreferGo, net.DefaultResolver.Dial = preferGo, dial
		_ = server.Close()
		<-done
	})
}

// answerTo returns the DNS response to a query (RFC 1035 §4): the address, no record if the name
// has an address of the other family, or NXDOMAIN.
func answerTo(query []byte, names map[string]string) []byte {
	var labels []string
	end := 12 // after the header
	for query[end] != 0 {
		labels = append(labels, string(query[end+1:end+1+int(query[end])]))
		end += 1 + int(query[end])
	}
	end += 5 // the root, the type and the class
	out := append([]byte{}, query[:end]...)
	out[2], out[3] = 0x81, 0x80
	copy(out[4:12], []byte{0, 1, 0, 0, 0, 0, 0, 0}) // one question
	text, ok := names[strings.ToLower(strings.Join(labels, "."))]
	if !ok {
		out[3] |= 3 // NXDOMAIN
		return out
	}
	addr := netip.MustParseAddr(text)
	kind := byte(typeA)
	if addr.Is6() {
		kind = typeAAAA
	}
	if query[end-3] != kind {
		return out
	}
	out[7] = 1                                             // one answer
	out = append(out, 0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 0) // the queried name, the type, IN, no caching
	out = append(out, 0, byte(len(addr.AsSlice())))
	return append(out, addr.AsSlice()...)
}
