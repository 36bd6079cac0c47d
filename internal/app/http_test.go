package app

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/config"
	"comet/internal/errs"
)

func TestLocalURL(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"127.0.0.1:8080":   "http://127.0.0.1:8080",
		"192.168.1.7:8080": "http://192.168.1.7:8080",
		"[::1]:8080":       "http://[::1]:8080",
		":8080":            "http://127.0.0.1:8080", // as it can be configured
		"0.0.0.0:8080":     "http://127.0.0.1:8080", // as Go names an IPv4 listener on every address
		"[::]:8080":        "http://127.0.0.1:8080", // and one for both families
	} {
		require.Equal(t, want, LocalURL(address, false))
		require.Equal(t, strings.Replace(want, "http", "https", 1), LocalURL(address, true))
	}
}

func TestAFailureToAcceptConnectionsIsAWarning(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := newHTTPServer(config.Config{}, "--listen", "127.0.0.1:0", slog.New(slog.NewTextHandler(&out, nil)), http.NotFoundHandler())
	s.srv.ErrorLog.Print("http: TLS handshake error from 192.0.2.1:80: EOF")
	require.Empty(t, out.String(), "one client cannot fill the log")
	s.srv.ErrorLog.Print("http: Accept error: accept tcp 127.0.0.1:80: accept4: too many open files; retrying in 5ms")
	require.Contains(t, out.String(), "level=WARN")
	require.Contains(t, out.String(), "too many open files")
}

func TestConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	cfg := config.Config{Listen: "127.0.0.1:0"}
	cfg.HTTP.MaxConnections = 1
	s := newHTTPServer(cfg, "--listen", "127.0.0.1:0", slog.New(slog.DiscardHandler), http.NotFoundHandler())
	require.NoError(t, s.Start(t.Context()))
	t.Cleanup(func() { _ = s.srv.Close() })
	first, err := net.Dial("tcp", s.listener.Addr().String())
	require.NoError(t, err)
	_, err = first.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	require.NoError(t, err)
	_, err = first.Read(make([]byte, 1))
	require.NoError(t, err)
	second := make(chan error, 1)
	go func() {
		res, err := http.Get(s.url())
		if err == nil {
			err = res.Body.Close()
		}
		second <- err
	}()
	require.Empty(t, second)
	require.NoError(t, first.Close())
	require.NoError(t, <-second, "it waited")
}

func TestADiskThatCannotBeWrittenIsUnavailable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, checkDisk(dir)(t.Context()))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	require.True(t, errs.Is(checkDisk(filepath.Join(dir, "missing"))(t.Context()), errs.Unavailable))
}
