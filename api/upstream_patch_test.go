package api_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUpdateUpstream changes members of a stored upstream with merge patches.
func TestUpdateUpstream(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		const path = "/api/v1/upstreams/paper"
		patch := func(status int, body string, headers ...string) string {
			t.Helper()
			r := h.do(t, http.MethodPatch, path, body, headers...)
			require.Equal(t, status, r.status, string(r.body))
			return string(r.body)
		}
		patch(http.StatusNotFound, `{}`)
		put := h.do(t, http.MethodPut, path, `{"url":"http://127.0.0.1:1/mcp","headers":{"X-A":"1","X-B":"2"},"comet":{"timeout":"45s"}}`)
		require.Equal(t, http.StatusCreated, put.status, string(put.body))
		first := put.header.Get("ETag")

		patch(http.StatusOK, `{"headers":{"X-A":null,"X-C":"3"}}`, "If-Match", first)
		patch(http.StatusPreconditionFailed, `{"url":"http://127.0.0.1:1/moved"}`, "If-Match", first)
		patch(http.StatusOK, `{"comet":{"protocol":null}}`, "Content-Type", "application/merge-patch+json")
		assert.Contains(t, patch(http.StatusBadRequest, `{"headers":{"Authorization":"Bearer abc"}}`), "/headers/Authorization")
		assert.Contains(t, patch(http.StatusBadRequest, `{"comet":{"timeout":7}}`), "/comet/timeout")
		assert.Contains(t, patch(http.StatusBadRequest, `{"url":null}`), "url")
		patch(http.StatusBadRequest, `[]`)

		var view struct {
			URL       string
			Headers   []string
			TimeoutMS int64 `json:"timeout_ms"`
		}
		require.NoError(t, json.Unmarshal(h.do(t, http.MethodGet, path, "").body, &view))
		assert.Equal(t, "http://127.0.0.1:1/mcp", view.URL)
		assert.Equal(t, []string{"X-B", "X-C"}, view.Headers)
		assert.Equal(t, int64(45_000), view.TimeoutMS)
	})
}
