package app_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/testkit"
)

// TestWrongTokensAreThrottled: wrong tokens of an address are throttled by every API, whichever of
// them counted the failures, and valid tokens of the same address are accepted.
func TestWrongTokensAreThrottled(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := serve(t, data, env("COMET_HTTP_MAX_AUTH_FAILURES=3"))
	url := p.url(t)
	admin := adminToken(t, data)
	token := registerAgent(t, newClient(t, url, admin), "digger")
	requests := []struct{ method, path string }{
		{http.MethodGet, "/api/v1/me"}, {http.MethodPost, "/mcp"}, {http.MethodGet, "/api/agent/inbox"}, {http.MethodPost, "/api/v5/messages"},
	}
	send := func(method, path, token string) testkit.Response {
		return testkit.NewClient(t, url, token).Do(t, method, path, "")
	}
	for i, r := range requests[:3] {
		require.Equal(t, http.StatusUnauthorized, send(r.method, r.path, "wrong"+strconv.Itoa(i)).Status, r.path)
	}
	for _, r := range requests {
		resp := send(r.method, r.path, "wrong")
		require.Equal(t, http.StatusTooManyRequests, resp.Status, r.path)
		seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		require.NoError(t, err, r.path)
		require.Positive(t, seconds, r.path)
	}
	require.Equal(t, http.StatusOK, send(http.MethodGet, "/api/v1/me", admin).Status, "a token that was accepted before")
	require.Equal(t, http.StatusOK, send(http.MethodGet, "/api/agent/inbox", token).Status, "a token that was not used before")
	p.stop(t)
}
