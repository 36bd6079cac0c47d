package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/input"
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

func TestPublicationsOverREST(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		const path = "/api/v1/publications"
		key := []string{"Idempotency-Key", "k"}
		first := h.do(t, "POST", path, `{"type":"order.paid","payload":1}`, key...)
		require.Equal(t, http.StatusAccepted, first.status, "%s", first.body)
		again := h.do(t, "POST", path, `{"payload":1, "type":"order.paid"}`, key...)
		require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
		require.Equal(t, []string{string(first.body), first.header.Get("Location")}, []string{string(again.body), again.header.Get("Location")})
		h.do(t, "POST", path, `{"type":"order.paid","payload":2}`, key...).problem(t, http.StatusConflict, errs.IdempotencyKeyReused)
		for body, pointer := range map[string]string{
			`{"type":"order.paid","payload":1,"guarantee":"twice"}`: "/guarantee", `{"type":"task.progress","payload":1}`: "/type", `{"type":"order.paid","payload":1,"retry":{"max_attempts":0}}`: "/retry/max_attempts",
		} {
			p := h.do(t, "POST", path, body).problem(t, http.StatusBadRequest, errs.InvalidRequest)
			require.Equal(t, pointer, p.Errors[0].Pointer)
			require.Regexp(t, "^"+input.Field(pointer)+" must ", p.Errors[0].Detail)
		}
		p := h.do(t, "PUT", "/api/v1/agents/nova/subscriptions", `{"patterns":[{"pattern":"order.*"},{"pattern":"*.b"}]}`).problem(t, http.StatusBadRequest, errs.InvalidRequest)
		require.Equal(t, "/patterns/1/pattern", p.Errors[0].Pointer)
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
