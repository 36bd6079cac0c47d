package api

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
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
	status, header, body := d.send(t, http.MethodGet, "/oauth/client-metadata.json", "", "", nil)
	require.Equal(t, http.StatusOK, status, string(body))
	require.Equal(t, "application/json", header.Get("Content-Type"))
	require.Contains(t, string(body), `"client_id":"`)
	require.Contains(t, string(body), `"token_endpoint_auth_method":"none"`)
}
