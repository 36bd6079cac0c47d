package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/models"
)

// authorityAgents has the agents of the matrix: two specialists with an assistant each under
// orch-business and one specialist under orch-social.
func authorityAgents(t *testing.T, d *describedServer) {
	t.Helper()
	for _, a := range [][2]string{{"own", "orch-business"}, {"child", "own"}, {"sibling", "orch-business"}, {"nephew", "sibling"}, {"foreign", "orch-social"}} {
		level := models.LevelSpecialist
		if !strings.HasPrefix(a[1], "orch-") {
			level = models.LevelAssistant
		}
		_, err := d.core.Registry.Create(t.Context(), models.System(), models.AgentDraft{ID: &a[0], Name: &a[0], Level: &level, ParentID: &a[1]}, nil)
		require.NoError(t, err)
	}
}

func (d *describedServer) boundToken(t *testing.T, agentID string, scopes ...models.Scope) string {
	t.Helper()
	issued, err := d.auth.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("of " + agentID), Scopes: scopes, AgentID: &agentID}, nil)
	require.NoError(t, err)
	return issued.Secret
}

// codeOf makes a request with an empty body and returns the code of its problem, "" for a success.
func (d *describedServer) codeOf(t *testing.T, method, address, token string) string {
	t.Helper()
	body := ""
	if method != http.MethodGet && method != http.MethodDelete {
		body = "{}"
	}
	status, _, text := d.send(t, method, address, token, body, nil)
	require.Less(t, status, http.StatusInternalServerError, "%s %s: %s", method, address, text)
	var p struct{ Code string }
	if status >= http.StatusBadRequest {
		require.NoError(t, json.Unmarshal(text, &p))
	}
	return p.Code
}

// TestAuthorityMatrix tries every operation on an agent in the API description with tokens of every
// scope that are bound to an agent, on that agent and on agents in all other positions of the tree.
func TestAuthorityMatrix(t *testing.T) {
	t.Parallel()
	d := newDescribedServer(t)
	authorityAgents(t, d)
	positions := map[string]bool{ // whether the token is allowed to use the agent
		"own": true, "child": true, "sibling": false, "nephew": false, "orch-business": false, "orch-social": false, "foreign": false, "nova": false, "missing": false,
	}
	tried := 0
	for _, scope := range models.Scopes() {
		bound := "own"
		allowed := positions
		if scope == models.ScopeAdmin { // cannot be bound below level 1
			bound = "orch-business"
			allowed = map[string]bool{"orch-business": true, "own": true, "child": true, "nephew": true, "orch-social": false, "foreign": false, "nova": false, "missing": false}
		}
		token := d.boundToken(t, bound, scope)
		readDescription(t).operations(func(method, path, _ string, op describedOperation) {
			if !strings.Contains(path, "{agent_id}") || len(op.Scopes) == 0 {
				return
			}
			try := func(id, spelled string, inside bool) {
				address := strings.NewReplacer("{agent_id}", spelled, "{reservation_id}", "none", "{addition_id}", "none").Replace(path)
				if method == http.MethodDelete && inside && path == "/api/v1/agents/{agent_id}" {
					return // it would end the agents of the other cases
				}
				code := d.codeOf(t, method, address, token)
				tried++
				switch has := scope == models.ScopeAdmin || slices.Contains(op.Scopes, scope); {
				case !inside:
					require.Equal(t, "foreign-agent", code, "%s %s with %s of %s", method, address, scope, bound)
				case !has:
					require.Equal(t, "missing-scope", code, "%s %s with %s of %s", method, address, scope, bound)
				case scope == models.ScopeAdmin && id == bound && method != http.MethodGet && op.Scopes[0] == models.ScopeAdmin:
					require.Equal(t, "foreign-agent", code, "%s %s with %s of %s", method, address, scope, bound)
				default:
					require.NotContains(t, []string{"foreign-agent", "missing-scope", "unauthenticated"}, code, "%s %s with %s of %s", method, address, scope, bound)
				}
			}
			for id, inside := range allowed {
				try(id, id, inside)
				try(id, fmt.Sprintf("%%%02X%s", id[0], id[1:]), inside) // the first character escaped
			}
		})
	}
	require.Greater(t, tried, 2000)
}

// TestBoundAdministratorsDoNotAdministerTheSystem tries every operation in the API description that
// requires the scope admin and concerns no agent with an administrator that is bound to an agent of level 1.
func TestBoundAdministratorsDoNotAdministerTheSystem(t *testing.T) {
	t.Parallel()
	d := newDescribedServer(t)
	token := d.boundToken(t, "orch-business", models.ScopeAdmin)
	tried := 0
	readDescription(t).operations(func(method, path, address string, op describedOperation) {
		if strings.Contains(path, "{agent_id}") || !slices.Contains(op.Scopes, models.ScopeAdmin) {
			return
		}
		tried++
		require.Equal(t, "foreign-agent", d.codeOf(t, method, address, token), "%s %s", method, path)
	})
	require.Greater(t, tried, 10)
}

// TestReadsOfBoundTokens makes every read in the API description that concerns no single agent, with a
// token that is bound to an agent and has all scopes for reading: agents outside its subtree are not in
// the response.
func TestReadsOfBoundTokens(t *testing.T) {
	t.Parallel()
	d := newDescribedServer(t)
	authorityAgents(t, d)
	for _, id := range []string{"foreign", "child"} {
		d.boundToken(t, id, models.ScopeMessagesSend)
		status, _, text := d.send(t, http.MethodPost, "/api/v1/webhooks", d.admin, `{"url":"https://example.com/hook","events":["agent.updated"],"agent_id":"`+id+`"}`, nil)
		require.Equal(t, http.StatusCreated, status, "%s", text)
		status, _, text = d.send(t, http.MethodPost, "/api/v1/sessions", d.boundToken(t, id, models.ScopeMessagesSend), `{"id":"session-of-`+id+`"}`, nil)
		require.Equal(t, http.StatusCreated, status, "%s", text)
	}
	token := d.boundToken(t, "own", models.ScopeAgentsRead, models.ScopeTasksRead, models.ScopeWebhooksWrite, models.ScopeToolsCall, models.ScopeMessagesSend)
	tried := 0
	readDescription(t).operations(func(method, path, address string, op describedOperation) {
		if method != http.MethodGet || strings.Contains(path, "{") || !strings.HasPrefix(path, "/api/v1/") || path == "/api/v1/events" {
			return
		}
		tried++
		_, _, text := d.send(t, method, address, token, "", nil)
		for _, id := range []string{"foreign", "sibling", "nephew", "orch-social"} {
			require.NotContains(t, string(text), `"`+id+`"`, "%s", path)
		}
		require.NotContains(t, string(text), "session-of-foreign", "%s", path)
	})
	require.Greater(t, tried, 8)
	_, _, hooks := d.send(t, http.MethodGet, "/api/v1/webhooks", token, "", nil)
	require.Contains(t, string(hooks), `"child"`, "webhooks of agents below are visible")
	_, _, sessions := d.send(t, http.MethodGet, "/api/v1/sessions", token, "", nil)
	require.Contains(t, string(sessions), "session-of-child")
}
