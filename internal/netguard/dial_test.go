package netguard

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
)

// listen returns a server on loopback and how many connections it has taken.
func listen(t *testing.T) (port string, accepted *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	accepted = new(atomic.Int64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	_, port, err = net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port, accepted
}

func dial(t *testing.T, g *Guard, network, address string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := g.DialContext(ctx, network, address)
	if err == nil {
		require.NoError(t, c.Close())
	}
	return err
}

func TestDialRefusesBeforeTheFirstPacket(t *testing.T) {
	t.Parallel()
	port, accepted := listen(t)
	g := New(nil)
	for _, host := range []string{
		"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0", "[::]", "", "localhost", "[::127.0.0.1]",
		"[64:ff9b::127.0.0.1]", "[2002:7f00:1::]", "[fe80::1%lo]", "169.254.169.254",
	} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, errs.AddressRefused, errs.CodeOf(dial(t, g, "tcp", host+":"+port)))
		})
	}
	// Whether these are addresses, or unknown names, depends on the machine's
	// resolver to say; either way there is no connection.
	for _, host := range []string{"127.1", "0x7f000001", "2130706433", "0177.0.0.1", "127.0.0.1.", "127.000.000.001", "localhost."} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			require.Error(t, dial(t, g, "tcp", host+":"+port))
		})
	}
	t.Cleanup(func() { require.Zero(t, accepted.Load()) })
}

func TestDialAllows(t *testing.T) {
	t.Parallel()
	port, _ := listen(t)
	g := New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
	for _, host := range []string{"127.0.0.1", "[::ffff:127.0.0.1]", "localhost"} {
		require.NoError(t, dial(t, g, "tcp", host+":"+port), host)
	}
	require.NoError(t, dial(t, g, "tcp4", "127.0.0.1:"+port))
	require.Equal(t, errs.AddressRefused, errs.CodeOf(dial(t, g, "tcp6", "[::1]:"+port)))
}

func TestDialIsForTCPOnly(t *testing.T) {
	t.Parallel()
	g := New([]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")})
	for _, network := range []string{"udp", "unix", "ip4:icmp", ""} {
		require.Equal(t, errs.AddressRefused, errs.CodeOf(dial(t, g, network, "127.0.0.1:1")), network)
	}
}

// TestANameIsJudgedByTheAddressThatIsConnectedTo rebinds a name: it is harmless when
// it is looked up first and means this machine from then on.
func TestANameIsJudgedByTheAddressThatIsConnectedTo(t *testing.T) {
	t.Parallel()
	port, accepted := listen(t)
	g := New(nil)
	answers := []netip.Addr{netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("127.0.0.1")}
	g.dialer.Resolver = resolver(t, func(asked int) netip.Addr { return answers[min(asked, 1)] })

	require.NoError(t, g.CheckHost("rebind.example"))
	first, err := g.dialer.Resolver.LookupNetIP(t.Context(), "ip4", "rebind.example")
	require.NoError(t, err)
	require.NoError(t, g.Check(first[0]))
	err = dial(t, g, "tcp4", "rebind.example:"+port)
	require.Equal(t, errs.AddressRefused, errs.CodeOf(err))
	require.Equal(t, `"rebind.example" resolves to a loopback address; comet connects to it only if webhooks.allow_networks permits it`, errs.From(err).Detail,
		"which does not tell the address")
	require.Zero(t, accepted.Load())

	g.allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	require.NoError(t, dial(t, g, "tcp4", "rebind.example:"+port), "it is the address that was refused")
}

// TestSpellingsThroughHTTP proves it for the hosts that net/http rewrites by itself.
func TestSpellingsThroughHTTP(t *testing.T) {
	t.Parallel()
	port, accepted := listen(t)
	transport := &http.Transport{DialContext: New(nil).DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	for _, host := range []string{"127.0.0.1", "[::ffff:7f00:1]", "①②⑦.⓪.⓪.①", "127。0。0。1", "LOCALHOST", "[::1%25lo]"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+host+":"+port+"/", nil)
		require.NoError(t, err, host)
		resp, err := transport.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		require.Equal(t, errs.AddressRefused, errs.CodeOf(err), "%s: %v", host, err)
	}
	require.Zero(t, accepted.Load())
}

// resolver asks a name server of the test's own, which answers every question for an
// IPv4 address with what next returns; it receives the number of earlier calls.
func resolver(t *testing.T, next func(asked int) netip.Addr) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		asked := 0
		for buf := make([]byte, 512); ; {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(answer(buf[:n], next(asked)), from)
			asked++
		}
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp4", server.LocalAddr().String())
	}}
}

// answer is a response of DNS (RFC 1035 §4) with one A record.
func answer(query []byte, addr netip.Addr) []byte {
	end := 12 // behind the header
	for query[end] != 0 {
		end += 1 + int(query[end])
	}
	end += 5 // the root, the type and the class
	out := append([]byte{}, query[:end]...)
	out[2], out[3] = 0x81, 0x80               // a response, without error
	copy(out[4:12], []byte{0, 1, 0, 1, 0, 0}) // one question, one answer
	clear(out[10:12])
	out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4) // the name asked for, A, IN, no caching
	ip := addr.As4()
	return append(out, ip[:]...)
}
