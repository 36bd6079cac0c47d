package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// authorityTree has two agents of level 2 with one child each under orch-business, and one under
// orch-social.
func authorityTree(t *testing.T, h *fixture) {
	t.Helper()
	for _, a := range []struct {
		id     string
		level  int
		hz     int
		parent string
	}{
		{"own", 2, 555, "orch-business"}, {"child", 3, 444, "own"}, {"sibling", 2, 555, "orch-business"},
		{"nephew", 3, 444, "sibling"}, {"foreign", 2, 555, "orch-social"},
	} {
		require.Equal(t, http.StatusCreated, h.create(t, a.id, a.level, a.hz, a.parent, "").status, a.id)
	}
}

// TestAuthorityOverWorkflows makes the requests about a workflow of the agent "own" with tokens of every scope and position.
func TestAuthorityOverWorkflows(t *testing.T) {
	t.Parallel()
	const found, missing, denied, scope = "", "not-found", "tool-denied", "missing-scope"
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		authorityTree(t, h)
		_, owner := h.issueToken(t, `{"name":"owner","agent_id":"own","scopes":["tools:call"]}`)
		tokens := map[string]string{"owner": owner}
		for name, body := range map[string]string{
			"approver": `"scopes":["workflows:approve"]`, "manager": `"agent_id":"orch-business","scopes":["workflows:approve"]`, "own agent": `"agent_id":"own","scopes":["workflows:approve"]`,
			"child": `"agent_id":"child","scopes":["workflows:approve"]`, "foreign": `"agent_id":"orch-social","scopes":["workflows:approve"]`,
			"caller": `"scopes":["tools:call"]`, "reader": `"scopes":["tasks:read","agents:write","messages:send"]`, "admin": `"scopes":["admin"]`,
		} {
			_, tokens[name] = h.issueToken(t, `{"name":"`+name+`",`+body+`}`)
		}
		for approver, rows := range map[string]map[string][5]string{ // the codes of get, continue, abort, approve and start
			"other": {
				"owner": {found, "conflict", "-", denied, found}, "approver": {found, scope, scope, found, scope}, "manager": {found, scope, scope, found, scope},
				"own agent": {found, scope, scope, denied, scope}, "child": {missing, scope, scope, missing, scope}, "foreign": {missing, scope, scope, missing, scope},
				"caller": {missing, missing, missing, missing, found}, "reader": {scope, scope, scope, scope, scope}, "admin": {found, "conflict", "-", found, found},
			},
			"human": {
				"owner": {found, "conflict", "-", denied, found}, "approver": {found, scope, scope, found, scope}, "manager": {found, scope, scope, denied, scope},
				"own agent": {found, scope, scope, denied, scope}, "foreign": {missing, scope, scope, missing, scope}, "admin": {found, "conflict", "-", found, found},
			},
			"caller": {
				"owner": {found, "conflict", "-", found, found}, "approver": {missing, scope, scope, missing, scope}, "manager": {missing, scope, scope, missing, scope},
				"own agent": {missing, scope, scope, missing, scope}, "caller": {missing, missing, missing, missing, found}, "admin": {found, "conflict", "-", found, found},
			},
		} {
			body := strings.TrimSuffix(goodWorkflow, "}") + `,"config":{"approver":"` + approver + `"}}`
			for name, want := range rows {
				var v struct {
					ID         string `json:"workflow_id"`
					Checkpoint string `json:"checkpoint_id"`
				}
				h.do(t, "POST", "/api/v1/workflows", body, "Authorization", "Bearer "+owner).decode(t, http.StatusOK, &v)
				one := "/api/v1/workflows/" + v.ID
				for i, c := range [][3]string{
					{"GET", one, ""}, {"POST", one + "/continue", ""}, {"POST", one + "/abort", `{"reason":"x"}`}, {"POST", one + "/checkpoints/" + v.Checkpoint, `{"approved":true}`}, {"POST", "/api/v1/workflows", body},
				} {
					if want[i] == "-" { // it would end the workflow
						continue
					}
					got := h.do(t, c[0], c[1], c[2], "Authorization", "Bearer "+tokens[name])
					var p struct{ Code string }
					if got.status >= http.StatusBadRequest {
						require.NoError(t, json.Unmarshal(got.body, &p))
					}
					require.Equal(t, want[i], p.Code, "%s %s by %s, approver %s: %s", c[0], c[1], name, approver, got.body)
				}
			}
		}
	})
}

// TestTokenIsConfinedToItsSubtree makes requests with a token that is bound to the agent "own".
func TestTokenIsConfinedToItsSubtree(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		authorityTree(t, h)
		_, secret := h.issueToken(t, `{"name":"bound","agent_id":"own","scopes":["agents:write","usage:write","messages:send","tasks:read"]}`)
		const foreign, created, done, ok = http.StatusForbidden, http.StatusCreated, http.StatusNoContent, http.StatusOK
		for _, c := range []struct {
			method, target, body string
			status               int
		}{
			{"PATCH", "/api/v1/agents/own", `{"name":"Own"}`, ok},
			{"PATCH", "/api/v1/agents/own", `{"token_budget":100000}`, foreign},
			{"PATCH", "/api/v1/agents/own", `{"budget_scope":"subtree"}`, foreign},
			{"PATCH", "/api/v1/agents/own", `{"parent_id":"orch-social"}`, foreign},
			{"PATCH", "/api/v1/agents/own", `{"is_active":false}`, foreign},
			{"DELETE", "/api/v1/agents/own", "", foreign},
			{"PATCH", "/api/v1/agents/child", `{"name":"Child","token_budget":2000}`, ok},
			{"PATCH", "/api/v1/agents/child", `{"parent_id":"sibling"}`, foreign},
			{"PATCH", "/api/v1/agents/sibling", `{"name":"changed"}`, foreign},
			{"PATCH", "/api/v1/agents/nephew", `{"parent_id":"own"}`, foreign},
			{"PATCH", "/api/v1/agents/missing", `{"name":"x"}`, foreign},
			{"DELETE", "/api/v1/agents/foreign", "", foreign},
			{"POST", "/api/v1/agents", `{"id":"second","name":"Second","level":3,"sphere_id":2,"frequency_hz":444,"parent_id":"own"}`, created},
			{"POST", "/api/v1/agents", `{"id":"third","name":"Third","level":2,"sphere_id":2,"frequency_hz":555,"parent_id":"orch-business"}`, foreign},
			{"POST", "/api/v1/agents", `{"id":"third","name":"Third","level":3,"sphere_id":2,"frequency_hz":444,"parent_id":"sibling"}`, foreign},
			{"POST", "/api/v1/roster", `{"version":1,"agents":[{"id":"child","name":"Imported","level":3,"sphere_id":2,"frequency_hz":444,"parent_id":"own"}]}`, ok},
			{"POST", "/api/v1/roster", `{"version":1,"agents":[{"id":"nephew","name":"Imported","level":3,"sphere_id":2,"frequency_hz":444,"parent_id":"sibling"}]}`, foreign},
			{"POST", "/api/v1/roster", `{"version":1,"agents":[{"id":"fourth","name":"Imported","level":3,"sphere_id":2,"frequency_hz":444,"parent_id":"sibling"}]}`, foreign},
			{"GET", "/api/v1/agents/own", "", ok},
			{"GET", "/api/v1/agents/own/ancestors", "", ok},
			{"GET", "/api/v1/agents/child/usage", "", ok},
			{"GET", "/api/v1/agents/nova", "", foreign},
			{"GET", "/api/v1/agents/orch-business/audit", "", foreign},
			{"GET", "/api/v1/agents/sibling/usage/history", "", foreign},
			{"GET", "/api/v1/agents/sibling/reservations", "", foreign},
			{"GET", "/api/v1/workers/sibling", "", foreign},
			{"GET", "/api/v1/hierarchy?root=nova", "", foreign},
			{"GET", "/api/v1/hierarchy?root=child", "", ok},
			{"GET", "/api/v1/roster?root=orch-business", "", foreign},
			{"POST", "/api/v1/agents/sibling/usage", `{"tokens":1}`, foreign},
			{"POST", "/api/v1/tasks", `{"agent_id":"nova","parameters":{}}`, foreign},
			{"POST", "/api/v1/tasks", `{"agent_id":"sibling","parameters":{}}`, foreign},
		} {
			got := h.do(t, c.method, c.target, c.body, "Authorization", "Bearer "+secret)
			require.Equal(t, c.status, got.status, "%s %s %s: %s", c.method, c.target, c.body, got.body)
			if c.status == foreign {
				require.Contains(t, string(got.body), `"code":"foreign-agent"`, "%s %s", c.method, c.target)
			}
		}
		var list struct {
			Agents []struct{ ID string }
			Total  int
		}
		h.do(t, "GET", "/api/v1/agents", "", "Authorization", "Bearer "+secret).decode(t, http.StatusOK, &list)
		require.Len(t, list.Agents, 3)
		require.Equal(t, 3, list.Total)
		for _, target := range []string{"/api/v1/hierarchy", "/api/v1/roster"} {
			got := h.do(t, "GET", target, "", "Authorization", "Bearer "+secret)
			require.Equal(t, http.StatusOK, got.status)
			require.True(t, json.Valid(got.body))
			require.False(t, strings.Contains(string(got.body), "sibling") || strings.Contains(string(got.body), `"nova"`), "%s: %s", target, got.body)
		}
	})
}

// TestTasksOutsideTheSubtreeAreInvisible reads tasks and sessions with a bound token that has tasks:read.
func TestTasksOutsideTheSubtreeAreInvisible(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		authorityTree(t, h)
		_, own := h.issueToken(t, `{"name":"own","agent_id":"own","scopes":["tasks:read"]}`)
		_, child := h.issueToken(t, `{"name":"child","agent_id":"child","scopes":["messages:send"]}`)
		_, sibling := h.issueToken(t, `{"name":"sibling","agent_id":"sibling","scopes":["messages:send"]}`)
		open := func(secret string) string {
			var session struct{ ID string }
			h.do(t, "POST", "/api/v1/sessions", "", "Authorization", "Bearer "+secret).decode(t, http.StatusCreated, &session)
			return session.ID
		}
		visible, hidden := open(child), open(sibling)
		get := func(target string) response { return h.do(t, "GET", target, "", "Authorization", "Bearer "+own) }
		require.Equal(t, http.StatusOK, get("/api/v1/sessions/"+visible).status)
		require.Equal(t, http.StatusNotFound, get("/api/v1/sessions/"+hidden).status)
		list := string(get("/api/v1/sessions").body)
		require.Contains(t, list, visible)
		require.NotContains(t, list, hidden)
		require.Equal(t, http.StatusOK, get("/api/v1/tasks").status)
		require.Equal(t, http.StatusOK, get("/api/v1/workers").status)
	})
}

func TestAdminCannotBeBoundBelowLevel1(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		authorityTree(t, h)
		for agent, status := range map[string]int{"nova": http.StatusCreated, "orch-business": http.StatusCreated, "own": http.StatusBadRequest, "child": http.StatusBadRequest} {
			got := h.do(t, "POST", "/api/v1/tokens", `{"name":"a","scopes":["admin"],"agent_id":"`+agent+`"}`)
			require.Equal(t, status, got.status, "%s: %s", agent, got.body)
		}
	})
}

func TestEventsOutsideTheSubtreeAreInvisible(t *testing.T) {
	t.Parallel()
	runStreamTest(t, "ToABoundToken", fixtureOptions{}, func(t *testing.T, h *fixture) {
		authorityTree(t, h)
		_, secret := h.issueToken(t, `{"name":"bound","agent_id":"own","scopes":["agents:read"]}`)
		h.lastPosition(t)
		s := h.openStream(t, secret, stream)
		s.next() // the position
		for _, id := range []string{"sibling", "child", "foreign", "own"} {
			h.renameAgent(t, id, "Renamed")
		}
		require.Equal(t, "child", s.next().data.Key)
		require.Equal(t, "own", s.next().data.Key)
	})
}

// TestChildTokens creates tokens with a token that is bound to an agent.
func TestChildTokens(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		authorityTree(t, h)
		type issued struct {
			ID, Token string
			AgentID   string     `json:"agent_id"`
			ParentID  *string    `json:"parent_id"`
			ExpiresAt *time.Time `json:"expires_at"`
		}
		parentID, parent := h.issueToken(t, `{"name":"parent","agent_id":"own","scopes":["agents:write","tools:call"],"expires_at":"2026-02-01T00:00:00Z"}`)
		post := func(secret, body string) response {
			return h.do(t, "POST", "/api/v1/tokens", body, "Authorization", "Bearer "+secret)
		}
		for body, code := range map[string]string{
			`{"name":"c","scopes":["admin"]}`:                                                              "missing-scope",
			`{"name":"c","scopes":["agents:read","usage:write"]}`:                                          "missing-scope",
			`{"name":"c","scopes":["agents:read"],"agent_id":"sibling"}`:                                   "foreign-agent",
			`{"name":"c","scopes":["agents:read"],"agent_id":"orch-business"}`:                             "foreign-agent",
			`{"name":"c","scopes":["agents:read"],"expires_at":"2026-02-01T00:00:01Z"}`:                    "invalid-request",
			`{"name":"c","scopes":["agents:read"],"agent_id":"child","expires_at":"2025-02-01T00:00:01Z"}`: "invalid-request",
		} {
			require.Contains(t, string(post(parent, body).body), `"code":"`+code+`"`, body)
		}
		var own, child, grandchild issued
		post(parent, `{"name":"own","scopes":["agents:read"]}`).decode(t, http.StatusCreated, &own)
		require.Equal(t, "own", own.AgentID)
		require.Equal(t, parentID, *own.ParentID)
		require.Equal(t, time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC), *own.ExpiresAt, "it expires with its parent")
		post(parent, `{"name":"child","scopes":["agents:write"],"agent_id":"child"}`).decode(t, http.StatusCreated, &child)
		post(child.Token, `{"name":"grandchild","scopes":["agents:read"]}`).decode(t, http.StatusCreated, &grandchild)
		require.Equal(t, "child", grandchild.AgentID)
		get := func(secret, target string) int {
			return h.do(t, "GET", target, "", "Authorization", "Bearer "+secret).status
		}
		require.Equal(t, http.StatusOK, get(grandchild.Token, "/api/v1/agents/child"))
		require.Equal(t, http.StatusForbidden, get(grandchild.Token, "/api/v1/agents/own"))

		// A token manages itself and the tokens that descend from it.
		list := string(h.do(t, "GET", "/api/v1/tokens", "", "Authorization", "Bearer "+child.Token).body)
		require.Contains(t, list, child.ID)
		require.Contains(t, list, grandchild.ID)
		require.NotContains(t, list, `"id":"`+parentID)
		require.Equal(t, http.StatusNotFound, get(child.Token, "/api/v1/tokens/"+parentID))
		require.Equal(t, http.StatusNotFound, h.do(t, "DELETE", "/api/v1/tokens/"+own.ID, "", "Authorization", "Bearer "+child.Token).status)
		require.Equal(t, http.StatusOK, get(parent, "/api/v1/tokens/"+grandchild.ID))
		_, unbound := h.issueToken(t, `{"name":"unbound","scopes":["agents:write"]}`)
		require.Equal(t, http.StatusForbidden, get(unbound, "/api/v1/tokens"))
		require.Equal(t, http.StatusForbidden, post(unbound, `{"name":"c","scopes":["agents:read"]}`).status)

		// A policy of a parent applies to its children, which cannot set one.
		policy := "/api/v1/tokens/" + parentID + "/tool-policy"
		require.Equal(t, http.StatusForbidden, h.do(t, "PUT", policy, `{"deny":[{"tool":"x:y"}]}`, "Authorization", "Bearer "+parent).status)

		// An agent that leaves the subtree takes no access of the parent's with it.
		require.Equal(t, http.StatusOK, h.do(t, "PATCH", "/api/v1/agents/child", `{"parent_id":"sibling"}`).status)
		h.db.Clock.Advance(time.Second) // a verification is cached for less
		require.Equal(t, http.StatusUnauthorized, get(grandchild.Token, "/api/v1/agents/child"))
		require.Equal(t, http.StatusOK, h.do(t, "PATCH", "/api/v1/agents/child", `{"parent_id":"own"}`).status)
		h.db.Clock.Advance(time.Second)
		require.Equal(t, http.StatusOK, get(grandchild.Token, "/api/v1/agents/child"))

		// A rotation keeps the token: the tokens that descend from it stay valid and belong to it.
		var rotated issued
		h.do(t, "POST", "/api/v1/tokens/"+parentID+"/rotate", "", "Authorization", "Bearer "+parent).decode(t, http.StatusOK, &rotated)
		require.Equal(t, http.StatusUnauthorized, get(parent, "/api/v1/me"))
		parent = rotated.Token
		require.Equal(t, http.StatusOK, get(grandchild.Token, "/api/v1/agents/child"))
		require.Equal(t, http.StatusOK, get(parent, "/api/v1/tokens/"+grandchild.ID))
		h.do(t, "GET", "/api/v1/tokens/"+own.ID, "").decode(t, http.StatusOK, &own)
		require.Equal(t, parentID, *own.ParentID)

		require.Equal(t, http.StatusNoContent, h.do(t, "DELETE", "/api/v1/tokens/"+parentID, "").status)
		for _, secret := range []string{parent, own.Token, child.Token, grandchild.Token} {
			require.Equal(t, http.StatusUnauthorized, get(secret, "/api/v1/me"))
		}
	})
}

func TestChainsOfTokensAreLimited(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		authorityTree(t, h)
		_, secret := h.issueToken(t, `{"name":"first","agent_id":"own","scopes":["agents:read"]}`)
		for range 5 {
			var next struct{ Token string }
			h.do(t, "POST", "/api/v1/tokens", `{"name":"next","scopes":["agents:read"]}`, "Authorization", "Bearer "+secret).decode(t, http.StatusCreated, &next)
			secret = next.Token
		}
		require.Equal(t, http.StatusUnprocessableEntity, h.do(t, "POST", "/api/v1/tokens", `{"name":"next","scopes":["agents:read"]}`, "Authorization", "Bearer "+secret).status)
	})
}

func TestQuotas(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		authorityTree(t, h)
		_, secret := h.issueToken(t, `{"name":"busy","agent_id":"own","scopes":["agents:read"]}`)
		post := func() response {
			return h.do(t, "POST", "/api/v1/tokens", `{"name":"next","scopes":["agents:read"]}`, "Authorization", "Bearer "+secret)
		}
		var last struct{ ID, Token string }
		for range 100 {
			post().decode(t, http.StatusCreated, &last)
		}
		for _, creator := range []string{secret, last.Token} { // the token and its descendants share the quota
			got := h.do(t, "POST", "/api/v1/tokens", `{"name":"next","scopes":["agents:read"]}`, "Authorization", "Bearer "+creator)
			require.Equal(t, http.StatusUnprocessableEntity, got.status)
			require.Contains(t, string(got.body), "quotas.tokens")
			require.Contains(t, string(got.body), `the token \"busy\" (`)
		}
		require.Equal(t, http.StatusNoContent, h.do(t, "DELETE", "/api/v1/tokens/"+last.ID, "").status)
		require.Equal(t, http.StatusCreated, post().status, "revoked tokens do not count")

		_, secret = h.issueToken(t, `{"name":"hooks","agent_id":"own","scopes":["webhooks:write","agents:read"]}`)
		hook := func() response {
			return h.do(t, "POST", "/api/v1/webhooks", `{"url":"https://example.com/hook","events":["agent.updated"],"agent_id":"child"}`, "Authorization", "Bearer "+secret)
		}
		for range 100 {
			hook().decode(t, http.StatusCreated, &last)
		}
		require.Equal(t, http.StatusUnprocessableEntity, hook().status)
		require.Equal(t, http.StatusNoContent, h.do(t, "DELETE", "/api/v1/webhooks/"+last.ID, "").status)
		require.Equal(t, http.StatusCreated, hook().status, "deleted webhooks do not count")

		expiring := func() response {
			return h.do(t, "POST", "/api/v1/tokens", `{"name":"next","scopes":["agents:read"],"expires_at":"2026-01-10T16:00:00Z"}`, "Authorization", "Bearer "+secret)
		}
		for range 100 {
			require.Equal(t, http.StatusCreated, expiring().status)
		}
		h.db.Clock.Advance(time.Hour)
		require.Equal(t, http.StatusBadRequest, expiring().status, "in the past")
		require.Equal(t, http.StatusCreated, post().status, "expired tokens do not count")
	})
}

// TestWebhooksOfATokenAfterAMove requests a webhook whose agent has left the subtree of the token that created it.
func TestWebhooksOfATokenAfterAMove(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		authorityTree(t, h)
		_, secret := h.issueToken(t, `{"name":"creator","agent_id":"own","scopes":["webhooks:write"]}`)
		_, other := h.issueToken(t, `{"name":"other","agent_id":"own","scopes":["webhooks:write"]}`)
		as := func(secret, method, path, body string) response {
			t.Helper()
			return h.do(t, method, "/api/v1/webhooks"+path, body, "Authorization", "Bearer "+secret)
		}
		var hook struct{ ID string }
		as(secret, "POST", "", `{"url":"https://example.com/hook","events":["agent.updated"],"agent_id":"child"}`).decode(t, http.StatusCreated, &hook)
		require.Equal(t, http.StatusOK, h.do(t, "PATCH", "/api/v1/agents/child", `{"parent_id":"sibling"}`).status)
		for _, c := range []struct {
			secret string
			listed int
			read   int
			change int
		}{{other, 0, http.StatusNotFound, http.StatusNotFound}, {secret, 1, http.StatusOK, http.StatusForbidden}} {
			var page struct {
				Webhooks []struct{ ID string }
			}
			as(c.secret, "GET", "", "").decode(t, http.StatusOK, &page)
			require.Len(t, page.Webhooks, c.listed)
			require.Equal(t, c.read, as(c.secret, "GET", "/"+hook.ID, "").status)
			for _, patch := range []string{`{"description":"x"}`, `{"agent_id":null}`, `{"agent_id":"own","subtree":true}`, `{"events":["*"]}`} {
				require.Equal(t, c.change, as(c.secret, "PATCH", "/"+hook.ID, patch).status, patch)
			}
			require.Equal(t, c.change, as(c.secret, "GET", "/"+hook.ID+"/deliveries", "").status)
		}
		require.Equal(t, http.StatusNotFound, as(other, "DELETE", "/"+hook.ID, "").status)
		require.Equal(t, http.StatusNoContent, as(secret, "DELETE", "/"+hook.ID, "").status)
	})
}
