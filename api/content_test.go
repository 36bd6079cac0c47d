package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
)

func TestIdempotencyKeyComparesContent(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		key := []string{"Idempotency-Key", "k"}
		first := h.do(t, "POST", "/api/v1/tokens", `{"name":"ci","scopes":["agents:read"]}`, key...)
		require.Equal(t, http.StatusCreated, first.status, "%s", first.body)
		again := h.do(t, "POST", "/api/v1/tokens", "{\n \"scopes\": [\"agents:read\"], \"name\": \"\\u0063i\"\n}", append(key, "Content-Type", "application/json; charset=utf-8")...)
		require.Equal(t, http.StatusCreated, again.status, "%s", again.body)
		require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
		other := h.do(t, "POST", "/api/v1/tokens", `{"name":"cd","scopes":["agents:read"]}`, key...)
		other.problem(t, http.StatusConflict, errs.IdempotencyKeyReused)
	})
}

func TestWebhooksHaveVersions(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		created := h.do(t, "POST", "/api/v1/webhooks", `{"url":"https://example.com/in","events":["agent.*"],"headers":{"Authorization":"Bearer secret"},"timeout_seconds":30,"retry_seconds":[1,60]}`)
		require.Equal(t, http.StatusCreated, created.status, "%s", created.body)
		require.NotContains(t, string(created.body), "Bearer secret")
		require.Contains(t, string(created.body), `"header_names":["Authorization"],"timeout_seconds":30,"retry_seconds":[1,60]`)
		target := created.header.Get("Location")
		tag := h.do(t, "GET", target, "").header.Get("ETag")
		require.Regexp(t, `^"1\.`, tag)
		require.Regexp(t, `^"1\.`, created.header.Get("ETag"))
		changed := h.do(t, "PATCH", target, `{"description":"mine"}`, "If-Match", tag)
		require.Equal(t, http.StatusOK, changed.status, "%s", changed.body)
		require.Equal(t, changed.header.Get("ETag"), h.do(t, "GET", target, "").header.Get("ETag"))
		h.do(t, "PATCH", target, `{"description":"yours"}`, "If-Match", tag).problem(t, http.StatusPreconditionFailed, errs.PreconditionFailed)
		h.do(t, "POST", target+"/rotate-secret", "", "If-Match", tag).problem(t, http.StatusPreconditionFailed, errs.PreconditionFailed)
		h.do(t, "DELETE", target, "", "If-Match", tag).problem(t, http.StatusPreconditionFailed, errs.PreconditionFailed)
		require.Equal(t, http.StatusNoContent, h.do(t, "DELETE", target, "", "If-Match", changed.header.Get("ETag")).status)
	})
}
