package app_test

import (
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/config"
	"comet/internal/testkit/loopback"
)

// TestDebugListener checks for leaked goroutines, so it does not run in parallel.
func TestDebugListener(t *testing.T) {
	withoutLeaks(t, "serves profiles and metrics to admins only", func(t *testing.T, cfg config.Config) {
		cfg.DebugListen, cfg.HTTP.DrainDelay = loopback.Address(t), 0
		a := started(t, cfg)
		public := newClient(t, a.URL(), adminToken(t, cfg.Data))
		debug := newClient(t, "http://"+cfg.DebugListen, public.Token)
		agent := newClient(t, debug.URL, public.registerInfra(t, "infra-1", "job"))
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=2", "/metrics"} {
			require.Equal(t, http.StatusOK, debug.status(t, path), path)
			require.Equal(t, http.StatusUnauthorized, answers(t, debug.URL+path), path)
			require.Equal(t, http.StatusForbidden, agent.status(t, path), path)
		}
		require.Equal(t, http.StatusNotFound, public.status(t, "/debug/pprof/"))
		http.DefaultClient.CloseIdleConnections()
		require.NoError(t, a.Stop(t.Context()))
		_, err := http.Get(debug.URL + "/metrics")
		require.Error(t, err)
	})

	withoutLeaks(t, "an address that is taken is named by its flag", func(t *testing.T, cfg config.Config) {
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { require.NoError(t, taken.Close()) }()
		put(t, filepath.Join(cfg.Data, "notes"), "") // New tries the addresses itself if there are no data yet
		cfg.DebugListen = taken.Addr().String()
		a, err := app.New(t.Context(), cfg, nil)
		require.NoError(t, err)
		require.ErrorContains(t, a.Start(t.Context()), "--debug-listen")
		require.NoError(t, a.Stop(t.Context()))
	})
}
