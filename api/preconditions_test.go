package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPreconditions changes tokens, tool policies and upstreams with If-Match and If-None-Match.
func TestPreconditions(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		id, _ := h.issueToken(t, `{"name":"reader","scopes":["tools:call"]}`)
		token, policy := "/api/v1/tokens/"+id, "/api/v1/tokens/"+id+"/tool-policy"
		tag := func(path string) string {
			t.Helper()
			response := h.do(t, "GET", path, "")
			require.Equal(t, http.StatusOK, response.status, "%s", response.body)
			return response.header.Get("ETag")
		}
		change := func(want int, method, path, body, header, value string) {
			t.Helper()
			response := h.do(t, method, path, body, header, value)
			require.Equal(t, want, response.status, "%s", response.body)
		}
		const rules = `{"allow":[{"tool":"files:*"}]}`

		none := h.do(t, "GET", policy, "")
		require.JSONEq(t, `{"token_id":"`+id+`","stored":false,"allow":[],"deny":[],"classes":[]}`, string(none.body))
		require.Empty(t, none.header.Get("ETag"), "If-Match with a tag of it would never match")
		change(404, "GET", "/api/v1/tokens/unknown/tool-policy", "", "Accept", "*/*")
		change(412, "PUT", policy, rules, "If-Match", "*")
		change(412, "PUT", policy, rules, "If-Match", `"1.a"`)
		change(412, "DELETE", policy, "", "If-Match", "*")
		change(200, "PUT", policy, rules, "If-None-Match", "*")
		first := tag(policy)
		change(412, "PUT", policy, rules, "If-None-Match", "*")
		h.db.Clock.Advance(1e6)
		change(200, "PUT", policy, `{"deny":[{"tool":"files:*"}]}`, "If-Match", first)
		change(412, "PUT", policy, rules, "If-Match", first)
		change(412, "DELETE", policy, "", "If-Match", first)
		require.JSONEq(t, `{"token_id":"`+id+`","stored":true,"allow":[],"deny":[{"tool":"files:*"}],"classes":[]}`, string(h.do(t, "GET", policy, "").body))
		change(204, "DELETE", policy, "", "If-Match", tag(policy))
		change(404, "PUT", "/api/v1/tokens/unknown/tool-policy", rules, "If-None-Match", "*")

		first = tag(token)
		h.db.Clock.Advance(1e6)
		change(412, "POST", token+"/rotate", "", "If-Match", `"1.a"`)
		change(200, "POST", token+"/rotate", "", "If-Match", first)
		change(412, "POST", token+"/rotate", "", "If-Match", first)
		change(412, "DELETE", token, "", "If-Match", first)
		require.Equal(t, http.StatusOK, h.do(t, "GET", token, "").status)
		change(204, "DELETE", token, "", "If-Match", tag(token))

		const upstream, config, moved = "/api/v1/upstreams/paper", `{"url":"http://127.0.0.1:1/mcp"}`, `{"url":"http://127.0.0.1:1/moved"}`
		change(412, "PUT", upstream, config, "If-Match", "*")
		change(412, "PUT", upstream, config, "If-Match", `"1.a"`)
		require.Equal(t, http.StatusNotFound, h.do(t, "GET", upstream, "").status, "nothing was stored")
		change(404, "DELETE", upstream, "", "If-Match", "*")
		change(201, "PUT", upstream, config, "If-None-Match", "*")
		first = tag(upstream)
		change(412, "PUT", upstream, moved, "If-None-Match", "*")
		change(400, "PUT", upstream, moved, "If-Match", "1")
		change(200, "PUT", upstream, moved, "If-Match", first)
		change(412, "PUT", upstream, config, "If-Match", first)
		change(412, "DELETE", upstream, "", "If-Match", first)
		require.Contains(t, string(h.do(t, "GET", upstream, "").body), "/moved")
		change(204, "DELETE", upstream, "", "If-Match", tag(upstream))
		require.Equal(t, http.StatusNotFound, h.do(t, "GET", upstream, "").status)
	})
}
