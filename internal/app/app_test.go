package app_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/app"
	"comet/internal/config"
	"comet/store/storetest"
)

// These tests check for leaked goroutines, so they do not run in parallel.

// configured returns the configuration of a server on a free port with a fresh database.
func configured(t *testing.T, database string) config.Config {
	t.Helper()
	cfg, db := config.Default(), storetest.Migrated(t, database)
	cfg.Listen, cfg.Data, cfg.DatabaseURL = "127.0.0.1:0", db.Dir, db.DatabaseURL
	return cfg
}

// withoutLeaks runs a test on every database and checks that its goroutines end.
func withoutLeaks(t *testing.T, rule string, fn func(t *testing.T, cfg config.Config)) {
	t.Helper()
	for _, name := range storetest.Databases() {
		t.Run(rule+"/"+name, func(t *testing.T) {
			cfg := configured(t, name)
			before := goleak.IgnoreCurrent()
			fn(t, cfg)
			goleak.VerifyNone(t, before)
		})
	}
}

func started(t *testing.T, cfg config.Config) *app.App {
	t.Helper()
	a, err := app.New(t.Context(), cfg, nil)
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	return a
}

// answers returns the status of a GET on a new connection.
func answers(t *testing.T, url string) int {
	t.Helper()
	status, _ := read(t, url)
	return status
}

func read(t *testing.T, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

func TestApp(t *testing.T) {
	withoutLeaks(t, "serves until Stop, which may be called twice", func(t *testing.T, cfg config.Config) {
		a := started(t, cfg)
		url := a.URL()
		eventually(t, func() bool { return answers(t, url+"/readyz") == http.StatusOK }, "the server is ready")
		require.NoError(t, a.Start(t.Context()), "a second start does nothing")
		require.Equal(t, http.StatusOK, answers(t, url+"/healthz"))
		require.NoError(t, a.Stop(t.Context()))
		require.NoError(t, a.Stop(t.Context()))
		_, err := http.Get(url + "/healthz")
		require.Error(t, err)
		require.NoError(t, started(t, cfg).Stop(t.Context()), "the next server starts")
	})

	withoutLeaks(t, "stops without a start", func(t *testing.T, cfg config.Config) {
		a, err := app.New(t.Context(), cfg, nil)
		require.NoError(t, err)
		require.NoError(t, a.Stop(t.Context()))
		require.NoError(t, started(t, cfg).Stop(t.Context()))
	})

	withoutLeaks(t, "a failed start releases everything", func(t *testing.T, cfg config.Config) {
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { require.NoError(t, taken.Close()) }()
		put(t, filepath.Join(cfg.Data, "notes"), "") // New tries the addresses itself if there are no data yet
		onTaken := cfg
		onTaken.Listen = taken.Addr().String()
		a, err := app.New(t.Context(), onTaken, nil)
		require.NoError(t, err)
		require.ErrorContains(t, a.Start(t.Context()), "--listen")
		require.NoError(t, a.Stop(t.Context()))
		require.NoFileExists(t, filepath.Join(cfg.Data, "admin.token"), "the start that succeeds prints the token")
		require.NoError(t, started(t, cfg).Stop(t.Context()))
	})

	withoutLeaks(t, "a data directory is locked", func(t *testing.T, cfg config.Config) {
		a := started(t, cfg)
		_, err := app.New(t.Context(), cfg, nil)
		require.ErrorContains(t, err, "stop it first")
		require.Equal(t, http.StatusOK, answers(t, a.URL()+"/healthz"), "the first server is unaffected")
		require.NoError(t, a.Stop(t.Context()))
	})

	withoutLeaks(t, "a failed first start can be repeated", func(t *testing.T, cfg config.Config) {
		token := filepath.Join(cfg.Data, "admin.token")
		require.NoError(t, os.Mkdir(token, 0o700)) // the path is taken
		failed, err := app.New(t.Context(), cfg, nil)
		require.NoError(t, err)
		require.ErrorContains(t, failed.Start(t.Context()), token)
		require.NoError(t, failed.Stop(t.Context()))
		require.NoError(t, os.Remove(token))
		a := started(t, cfg)
		require.Equal(t, http.StatusOK, newClient(t, a.URL(), adminToken(t, cfg.Data)).status(t, "/api/v1/tokens"))
		http.DefaultClient.CloseIdleConnections()
		require.NoError(t, a.Stop(t.Context()))
	})

	withoutLeaks(t, "Run ends with its context", func(t *testing.T, cfg config.Config) {
		ctx, cancel := context.WithCancel(t.Context())
		var out output
		ended := make(chan error, 1)
		go func() { ended <- app.Run(ctx, cfg, &app.Options{Out: &out}) }()
		eventually(t, func() bool { return strings.Contains(out.String(), "Try:") }, "the address is printed")
		cancel()
		require.NoError(t, <-ended)
	})

	withoutLeaks(t, "Run with an ended context ends at once", func(t *testing.T, cfg config.Config) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, app.Run(ctx, cfg, nil), context.Canceled)
	})
}
