package app_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/config"
	"comet/internal/testkit/loopback"
)

// writeCertificate writes a self-signed certificate for this machine and its key. The modification time
// of the files depends on the serial number.
func writeCertificate(t *testing.T, files config.TLS, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "comet"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for path, block := range map[string]*pem.Block{files.CertFile: {Type: "CERTIFICATE", Bytes: der}, files.KeyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if path != "" {
			require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
			require.NoError(t, os.Chtimes(path, time.Time{}, time.Unix(1_700_000_000+serial, 0)))
		}
	}
}

// withCertificate sets a new certificate in the data directory.
func withCertificate(t *testing.T, cfg *config.Config) {
	t.Helper()
	cfg.TLS = config.TLS{CertFile: filepath.Join(t.TempDir(), "tls.crt"), KeyFile: filepath.Join(t.TempDir(), "tls.key")}
	writeCertificate(t, cfg.TLS, 1)
}

// tlsClient returns a client that trusts the current certificate of a file.
func tlsClient(t *testing.T, caFile string, version uint16) *http.Client {
	t.Helper()
	text, err := os.ReadFile(caFile)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(text))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS10, MaxVersion: version}} //nolint:gosec // old versions must be refused
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: long}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	cfg := configured(t, "sqlite")
	withCertificate(t, &cfg)
	var out output
	a, err := app.New(t.Context(), cfg, &app.Options{Out: &out})
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	defer func() { require.NoError(t, a.Stop(context.Background())) }()
	require.True(t, strings.HasPrefix(a.URL(), "https://127.0.0.1:"), a.URL())
	serial := func(client *http.Client) int64 {
		t.Helper()
		resp, err := client.Get(a.URL() + "/healthz")
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body) // so that the connection is used again
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, "HTTP/1.1", resp.Proto)
		return resp.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	first := tlsClient(t, cfg.TLS.CertFile, 0)
	require.EqualValues(t, 1, serial(first))
	require.EqualValues(t, 1, serial(tlsClient(t, cfg.TLS.CertFile, tls.VersionTLS12)))
	_, err = tlsClient(t, cfg.TLS.CertFile, tls.VersionTLS11).Get(a.URL())
	require.ErrorContains(t, err, "protocol version")
	resp, err := http.Get(strings.Replace(a.URL(), "https", "http", 1) + "/healthz")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusBadRequest, resp.StatusCode, "without TLS")

	// While only the certificate is replaced, the previous pair stays in use.
	former := tlsClient(t, cfg.TLS.CertFile, 0)
	writeCertificate(t, config.TLS{CertFile: cfg.TLS.CertFile}, 2)
	require.EqualValues(t, 1, serial(former))
	key, err := os.Stat(cfg.TLS.KeyFile)
	require.NoError(t, err)
	cert, err := os.Stat(cfg.TLS.CertFile)
	require.NoError(t, err)
	writeCertificate(t, cfg.TLS, 3)
	for path, before := range map[string]fs.FileInfo{cfg.TLS.CertFile: cert, cfg.TLS.KeyFile: key} {
		require.NoError(t, os.Chtimes(path, time.Time{}, before.ModTime())) // like permissions, this shows no change
	}
	require.EqualValues(t, 3, serial(tlsClient(t, cfg.TLS.CertFile, 0)))
	require.NoError(t, os.Remove(cfg.TLS.CertFile))
	require.EqualValues(t, 1, serial(first), "its connection is still open")
}

func TestTLSFiles(t *testing.T) {
	t.Parallel()
	cfg := configured(t, "sqlite")
	withCertificate(t, &cfg)
	other := cfg.TLS
	other.CertFile = filepath.Join(t.TempDir(), "other.crt")
	writeCertificate(t, config.TLS{CertFile: other.CertFile}, 2)
	for want, files := range map[string]config.TLS{
		"private key does not match public key": other,
		"no such file":                          {CertFile: filepath.Join(t.TempDir(), "none"), KeyFile: cfg.TLS.KeyFile},
		"failed to find any PEM data":           {CertFile: os.DevNull, KeyFile: cfg.TLS.KeyFile},
	} {
		cfg := configured(t, "sqlite")
		cfg.Data, cfg.TLS = filepath.Join(t.TempDir(), "data"), files
		_, err := app.New(t.Context(), cfg, nil)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "--tls-cert and --tls-key")
		require.NoDirExists(t, cfg.Data)
	}
}

// TestMetricsListener: the metrics are on a listener of their own, without authentication, and no longer
// on the other one.
func TestMetricsListener(t *testing.T) {
	t.Parallel()
	cfg := configured(t, "sqlite")
	cfg.MetricsListen = loopback.Address(t)
	a := started(t, cfg)
	defer func() { require.NoError(t, a.Stop(context.Background())) }()
	metrics := "http://" + cfg.MetricsListen
	eventually(t, func() bool { return answers(t, metrics+"/readyz") == http.StatusOK }, "the server is ready")
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		require.Equal(t, http.StatusOK, answers(t, metrics+path), path)
	}
	for _, path := range []string{"/", "/api/v1/agents", "/docs", "/debug/pprof/"} {
		require.Equal(t, http.StatusNotFound, answers(t, metrics+path), path)
	}
	require.Equal(t, http.StatusNotFound, newClient(t, a.URL(), adminToken(t, cfg.Data)).status(t, "/metrics"))
	require.Equal(t, http.StatusOK, answers(t, a.URL()+"/readyz"))
	next := configured(t, "sqlite")
	next.MetricsListen = cfg.MetricsListen
	put(t, filepath.Join(next.Data, "notes"), "") // New tries the addresses itself if there are no data yet
	requireNoStart(t, next, "--metrics-listen")
}
