package bus_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"comet/internal/bus"
	"comet/internal/bus/bustest"
	"comet/internal/errs"
	"comet/internal/testkit"
)

// authority signs certificates.
type authority struct {
	file string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a test's authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	require.NoError(t, err)
	return authority{file: write(t, "ca.pem", encode("CERTIFICATE", der)), cert: cert, key: key}
}

// issue returns the files of a certificate for 127.0.0.1 and of its key.
func (a authority) issue(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "a test's"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, key.Public(), a.key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return write(t, "cert.pem", encode("CERTIFICATE", der)), write(t, "key.pem", encode("PRIVATE KEY", private))
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// works publishes through the bus and hears it.
func requireWorks(t *testing.T, b *bus.Bus) {
	t.Helper()
	require.NoError(t, b.Check(t.Context()))
	received := receive(t, b, "works")
	require.NoError(t, b.Publish("works", nil))
	testkit.Receive(t, received)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	settings := bustest.Settings{}
	settings.Cert, settings.Key = ours.issue(t)

	t.Run("a server with a certificate of the authority is accepted", func(t *testing.T) {
		t.Parallel()
		server := bustest.Start(t, settings)
		requireWorks(t, start(t, &bus.Options{URL: server.URL(), CAFile: ours.file}))
	})
	t.Run("a server with another certificate is rejected", func(t *testing.T) {
		t.Parallel()
		server := bustest.Start(t, settings)
		var log logBuffer
		b := start(t, &bus.Options{URL: server.URL(), CAFile: theirs.file, Logger: log.logger()})
		require.True(t, errs.Is(b.Check(t.Context()), errs.Unavailable))
		require.Eventually(t, func() bool { return strings.Contains(log.String(), "unknown authority") }, timeout, 1e6)
		require.NoError(t, b.Publish("buffered", nil), "publishers do not wait")
	})
	t.Run("an authority requires TLS", func(t *testing.T) {
		t.Parallel()
		server := bustest.Start(t, bustest.Settings{})
		b := start(t, &bus.Options{URL: server.URL(), CAFile: ours.file})
		require.True(t, errs.Is(b.Check(t.Context()), errs.Unavailable))
	})
	t.Run("the server may require a client certificate", func(t *testing.T) {
		t.Parallel()
		settings := settings
		settings.CA = theirs.file
		server := bustest.Start(t, settings)
		b := start(t, &bus.Options{URL: server.URL(), CAFile: ours.file})
		require.True(t, errs.Is(b.Check(t.Context()), errs.Unavailable))
		cert, key := theirs.issue(t)
		requireWorks(t, start(t, &bus.Options{URL: server.URL(), CAFile: ours.file, CertFile: cert, KeyFile: key}))
	})
}

func TestCredentials(t *testing.T) {
	t.Parallel()

	t.Run("user and password", func(t *testing.T) {
		t.Parallel()
		server := bustest.Start(t, bustest.Settings{User: "comet", Password: "hunter2"})
		var log logBuffer
		url := "nats://comet:hunter2@" + server.Addr()
		b := start(t, &bus.Options{URL: url, Logger: log.logger()})
		requireWorks(t, b)
		server.Kill()
		server.Restart(t)
		waitConnected(t, b)
		require.NotContains(t, log.String(), "hunter2")
	})
	t.Run("wrong credentials are logged and retried", func(t *testing.T) {
		t.Parallel()
		server := bustest.Start(t, bustest.Settings{User: "comet", Password: "another"})
		var log logBuffer
		b := start(t, &bus.Options{URL: "nats://comet:hunter2@" + server.Addr(), Logger: log.logger()})
		require.True(t, errs.Is(b.Check(t.Context()), errs.Unavailable))
		require.Eventually(t, func() bool { return strings.Contains(log.String(), "Authorization Violation") }, timeout, 1e6)
		server.Kill()
		server.Reconfigure(func(s *bustest.Settings) { s.Password = "hunter2" })
		server.Restart(t)
		waitConnected(t, b)
		requireWorks(t, b)
		require.NotContains(t, log.String(), "hunter2")
	})
	t.Run("an nkey", func(t *testing.T) {
		t.Parallel()
		public, seed := newKey(t, nkeys.CreateUser)
		server := bustest.Start(t, bustest.Settings{Nkey: public})
		requireWorks(t, start(t, &bus.Options{URL: server.URL(), Credentials: write(t, "user.nk", seed)}))
		_, other := newKey(t, nkeys.CreateUser)
		b := start(t, &bus.Options{URL: server.URL(), Credentials: write(t, "other.nk", other)})
		require.True(t, errs.Is(b.Check(t.Context()), errs.Unavailable))
	})
	t.Run("a creds file", func(t *testing.T) {
		t.Parallel()
		settings, creds := operated(t)
		server := bustest.Start(t, settings)
		requireWorks(t, start(t, &bus.Options{URL: server.URL(), Credentials: write(t, "user.creds", creds)}))
		_, foreign := operated(t)
		b := start(t, &bus.Options{URL: server.URL(), Credentials: write(t, "foreign.creds", foreign)})
		require.True(t, errs.Is(b.Check(t.Context()), errs.Unavailable))
	})
	t.Run("the error for an invalid file does not contain it", func(t *testing.T) {
		t.Parallel()
		_, err := bus.New(&bus.Options{URL: "nats://a", Credentials: write(t, "x", "SUhunter2")})
		require.ErrorContains(t, err, "neither a .creds file nor an nkey's user seed")
		require.NotContains(t, err.Error(), "hunter2")
	})
}

func newKey(t *testing.T, create func() (nkeys.KeyPair, error)) (public, seed string) {
	t.Helper()
	pair, err := create()
	require.NoError(t, err)
	public, err = pair.PublicKey()
	require.NoError(t, err)
	text, err := pair.Seed()
	require.NoError(t, err)
	return public, string(text)
}

// operated returns the settings of a server with an operator, and the credentials of a user.
func operated(t *testing.T) (settings bustest.Settings, creds string) {
	t.Helper()
	operator, err := nkeys.CreateOperator()
	require.NoError(t, err)
	account, err := nkeys.CreateAccount()
	require.NoError(t, err)
	operatorID, err := operator.PublicKey()
	require.NoError(t, err)
	accountID, err := account.PublicKey()
	require.NoError(t, err)
	userID, userSeed := newKey(t, nkeys.CreateUser)

	settings.Operator, err = jwt.NewOperatorClaims(operatorID).Encode(operator)
	require.NoError(t, err)
	settings.Account, err = jwt.NewAccountClaims(accountID).Encode(operator)
	require.NoError(t, err)
	user, err := jwt.NewUserClaims(userID).Encode(account)
	require.NoError(t, err)
	text, err := jwt.FormatUserConfig(user, []byte(userSeed))
	require.NoError(t, err)
	return settings, string(text)
}
