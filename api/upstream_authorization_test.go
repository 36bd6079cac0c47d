package api

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/tools"
	"comet/internal/upstream"
)

// TestAuthorizationCallback requests the page to which a browser returns from an authorization server.
func TestAuthorizationCallback(t *testing.T) {
	t.Parallel()
	d := newDescribedServer(t)
	for _, query := range []string{"", "?state=unknown&code=x", "?error=access_denied"} {
		status, header, body := d.send(t, http.MethodGet, "/oauth/callback"+query, "", "", nil)
		require.Equal(t, http.StatusBadRequest, status)
		require.Equal(t, "text/plain; charset=utf-8", header.Get("Content-Type"))
		require.Equal(t, "no-store", header.Get("Cache-Control"))
		require.Contains(t, string(body), "the authorization is unknown, has ended, or took longer than ten minutes")
	}
}

// TestClientMetadata requests the document that authorization servers request.
func TestClientMetadata(t *testing.T) {
	t.Parallel()
	d := newDescribedServer(t)
	for address, want := range map[string]int{
		"": http.StatusNotFound, "http://127.0.0.1:1/oauth/callback": http.StatusNotFound, "https://comet.example/oauth/callback": http.StatusOK,
	} {
		core := d.core
		core.Tools = tools.New(tools.Dependencies{
			Store: d.store, Registry: core.Registry, Usage: core.Usage, Orchestrator: core.Orchestrator, Feed: core.Feed, Upstreams: upstream.New(nil),
		}, &tools.Options{RedirectURL: func() string { return address }})
		out := httptest.NewRecorder()
		New(core, nil).ServeHTTP(out, httptest.NewRequest(http.MethodGet, "/oauth/client-metadata.json", nil))
		require.Equal(t, want, out.Code, out.Body)
		if want == http.StatusOK {
			require.Equal(t, "application/json", out.Header().Get("Content-Type"))
			require.Contains(t, out.Body.String(), `"client_id":"https://comet.example/oauth/client-metadata.json"`)
			require.Contains(t, out.Body.String(), `"token_endpoint_auth_method":"none"`)
		} else {
			require.Contains(t, out.Body.String(), "mcp.public_url")
		}
	}
}
