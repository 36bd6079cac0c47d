// Package bustest runs NATS servers that tests can stop and start again, empty, at the same address.
package bustest

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit/loopback"
)

// long is how long a test waits for an expected event.
const long = 60 * time.Second

// Settings configures a server; the zero value accepts every client without TLS.
type Settings struct {
	// User and Password are required if set.
	User, Password string
	// Nkey is the public key of the only user.
	Nkey string
	// Operator is a file with an operator's JWT, Account the JWT of one account.
	Operator, Account string
	// Cert and Key enable TLS; with CA the server requires client certificates.
	Cert, Key, CA string
	// MaxPayload is the largest message in bytes, default NATS' own 1 MiB.
	MaxPayload int
}

// Server is a NATS server that does not outlive its test.
type Server struct {
	settings Settings
	port     int
	nats     *natsserver.Server
}

// Start runs a server on a free loopback port.
func Start(t testing.TB, settings Settings) *Server {
	t.Helper()
	s := &Server{settings: settings, port: int(netip.MustParseAddrPort(loopback.Address(t)).Port())}
	s.Restart(t)
	t.Cleanup(s.Kill)
	return s
}

// URL returns the server's URL without a user; it does not change.
func (s *Server) URL() string { return "nats://" + s.Addr() }

// Addr returns the URL's host:port.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Kill ends the server and its connections, and loses its state. It may be repeated.
func (s *Server) Kill() {
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
}

// Reconfigure changes the settings of the next start.
func (s *Server) Reconfigure(change func(*Settings)) { change(&s.settings) }

// Restart starts the server, which must not be running, at the same address, without earlier state.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	var err error
	s.nats, err = natsserver.NewServer(s.options(t))
	require.NoError(t, err)
	if s.settings.Account != "" {
		claims, err := jwt.DecodeAccountClaims(s.settings.Account)
		require.NoError(t, err)
		require.NoError(t, s.nats.AccountResolver().Store(claims.Subject, s.settings.Account))
	}
	s.nats.Start()
	require.True(t, s.nats.ReadyForConnections(long), "the server does not start")
}

func (s *Server) options(t testing.TB) *natsserver.Options {
	t.Helper()
	set := s.settings
	opts := &natsserver.Options{
		Host: "127.0.0.1", Port: s.port, NoSigs: true, NoLog: true,
		Username: set.User, Password: set.Password, MaxPayload: int32(set.MaxPayload),
	}
	if set.Nkey != "" {
		opts.Nkeys = []*natsserver.NkeyUser{{Nkey: set.Nkey}}
	}
	if set.Operator != "" {
		claims, err := jwt.DecodeOperatorClaims(set.Operator)
		require.NoError(t, err)
		opts.TrustedOperators = []*jwt.OperatorClaims{claims}
		opts.AccountResolver = &natsserver.MemAccResolver{}
	}
	if set.Cert != "" {
		var err error
		opts.TLSConfig, err = natsserver.GenTLSConfig(&natsserver.TLSConfigOpts{
			CertFile: set.Cert, KeyFile: set.Key, CaFile: set.CA, Verify: set.CA != "", MinVersion: tls.VersionTLS12,
		})
		require.NoError(t, err)
		opts.TLSTimeout = long.Seconds()
	}
	return opts
}
