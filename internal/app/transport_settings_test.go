package app_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/openapi"
)

// TestEveryDescribedRouteIsServed: the server has every route of the API description, and requires
// a token where the description says so.
func TestEveryDescribedRouteIsServed(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := serve(t, data)
	unauthenticated := newClient(t, p.url(t), "")
	var doc struct {
		Paths map[string]map[string]struct {
			Security []any `json:"security"`
		} `json:"paths"`
	}
	require.NoError(t, json.Unmarshal(openapi.JSON(), &doc))
	require.Contains(t, doc.Paths, "/api/agent/message")
	for path, item := range doc.Paths {
		address := strings.NewReplacer("{agent_id}", "nova", "{code}", "not-found", "{", "", "}", "").Replace(path)
		for method, op := range item {
			status, _, err := unauthenticated.do(t.Context(), strings.ToUpper(method), address, nil)
			require.NoError(t, err)
			if len(op.Security) > 0 {
				require.Equal(t, http.StatusUnauthorized, status, "%s %s", method, path)
				continue
			}
			require.NotContains(t, []int{http.StatusNotFound, http.StatusMethodNotAllowed}, status, "%s %s", method, path)
		}
	}
	p.stop(t)
}

// TestTransportSettings: the settings of the operator apply to the agents' endpoints.
func TestTransportSettings(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := serve(t, data, env(
		"COMET_TRANSPORT_MAX_CONNECTIONS=1", "COMET_HTTP_MAX_AUTH_FAILURES=1", "COMET_TRANSPORT_HEARTBEAT=20s", "COMET_TRANSPORT_REDELIVER_AFTER=1s",
		"COMET_HTTP_RATE_LIMIT_REQUESTS=40", "COMET_LOG_FORMAT=json",
	))
	c := newClient(t, p.url(t), adminToken(t, data))
	token := registerAgent(t, c, "digger")
	agent := newClient(t, c.URL, token)
	status, answer, err := c.do(t.Context(), http.MethodPost, "/api/v1/tasks", map[string]any{"capabilities": []string{"dig"}})
	require.NoError(t, err)
	require.Less(t, status, 300, "%s", answer)

	var first struct{ Messages []envelopeFrame }
	eventually(t, func() bool {
		_, answer, err := agent.do(t.Context(), http.MethodGet, "/api/agent/inbox?wait=5", nil)
		return err == nil && json.Unmarshal(answer, &first) == nil && len(first.Messages) == 1
	}, "the agent receives the task")
	var again struct{ Messages []envelopeFrame }
	eventually(t, func() bool {
		_, answer, err := agent.do(t.Context(), http.MethodGet, "/api/agent/inbox?wait=5", nil)
		return err == nil && json.Unmarshal(answer, &again) == nil && len(again.Messages) == 1
	}, "the agent receives it again, after a second rather than thirty")
	require.Equal(t, first.Messages[0].MessageID, again.Messages[0].MessageID)

	l := dialEnvelope(t, c.URL, token)
	require.EqualValues(t, 20, l.hello["heartbeat_seconds"])
	status, answer, err = newClient(t, c.URL, registerAgent(t, c, "other")).do(t.Context(), http.MethodGet, "/api/agent/inbox", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, status, "%s", answer)

	for _, want := range []int{http.StatusUnauthorized, http.StatusTooManyRequests} {
		status, _, err := newClient(t, c.URL, "wrong").do(t.Context(), http.MethodGet, "/api/agent/inbox", nil)
		require.NoError(t, err)
		require.Equal(t, want, status)
	}
	eventually(t, func() bool {
		status, answer, err = agent.do(t.Context(), http.MethodGet, "/api/agent/push", nil)
		return err == nil && status == http.StatusTooManyRequests
	}, "the token exceeds its rate limit")
	require.Contains(t, string(answer), `"error_code":5002`)
	require.Regexp(t, `"route":"/api/agent/inbox".*"token_id":"`, p.log.String())
	require.NoError(t, l.conn.CloseNow())
	p.stop(t)
}
