package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/models"
)

// TestPolicySimulation asks why a token may not call a tool, and compares the answers with what its calls and lists do.
func TestPolicySimulation(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		issued, err := h.auth.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("limited"), Scopes: []models.Scope{models.ScopeToolsCall}}, nil)
		require.NoError(t, err)
		path := "/api/v1/tokens/" + issued.Token.ID + "/tool-policy"
		type verdict struct {
			ID               string
			Callable, Listed bool
			Class            models.ToolClass
			Reason, Rule     string
		}
		simulate := func(body string) (list []verdict) {
			t.Helper()
			var got struct{ Tools []verdict }
			h.do(t, "POST", path+"/simulate", body).decode(t, http.StatusOK, &got)
			return got.Tools
		}
		callable := func(list []verdict) (ids []string) {
			for _, v := range list {
				if v.Callable {
					ids = append(ids, v.ID)
				}
			}
			return ids
		}
		seen := func() (ids []string) { // what the token really sees and may call
			t.Helper()
			var list struct{ Tools []struct{ ID string } }
			h.do(t, "GET", "/api/v1/tools?limit=1000", "", "Authorization", "Bearer "+issued.Secret).decode(t, http.StatusOK, &list)
			for _, one := range list.Tools {
				ids = append(ids, one.ID)
			}
			return ids
		}
		const submit, status, search = "comet:submit_task", "comet:task_status", "agentcards:search_tools"
		require.Equal(t, []verdict{
			{submit, false, true, models.ToolDestructive, `the token "limited" lacks the scope "messages:send"`, ""},
			{"fs:none", false, false, "", "no server offers a tool of this name", ""},
			{search, true, true, models.ToolRead, "no rule refuses it", ""},
		}, simulate(`{"tools":["`+submit+`","fs:none","`+search+`"]}`))
		require.Equal(t, []verdict{
			{status, false, false, models.ToolRead, "a rule of deny matches the tool", "comet:task_*"},
			{submit, false, false, models.ToolDestructive, "no rule of allow matches the tool", ""},
		}, simulate(`{"policy":{"allow":[{"tool":"comet:task*"}],"deny":[{"tool":"comet:task_*"}]},"tools":["`+status+`","`+submit+`"]}`))
		require.Equal(t, "classes does not contain the class of the tool", simulate(`{"policy":{"classes":["destructive"]},"tools":["` + status + `"]}`)[0].Reason)

		all := simulate(`{}`)
		require.Contains(t, callable(all), search)
		require.Equal(t, http.StatusOK, h.do(t, "PUT", path, `{"deny":[{"tool":"agentcards:execute_code"},{"tool":"comet"}]}`).status)
		require.Len(t, simulate(`{}`), len(all))
		require.ElementsMatch(t, seen(), callable(simulate(`{}`)), "the stored policy")
		require.Equal(t, callable(all), callable(simulate(`{"policy":{}}`)), "instead of the stored one")
		agent := "orch-personnel"
		parent, err := h.auth.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("parent"), Scopes: []models.Scope{models.ScopeAdmin}, AgentID: &agent}, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, h.do(t, "PUT", "/api/v1/tokens/"+parent.Token.ID+"/tool-policy", `{"deny":[{"tool":"comet"}]}`).status)
		child, err := h.auth.Create(t.Context(), models.Principal{TokenID: parent.Token.ID, Name: "parent", Scopes: parent.Token.Scopes, AgentID: &agent}, auth.TokenDraft{Name: new("child"), Scopes: []models.Scope{models.ScopeToolsCall}, AgentID: &agent}, nil)
		require.NoError(t, err)
		path = "/api/v1/tokens/" + child.Token.ID + "/tool-policy"
		require.Equal(t, "comet", simulate(`{"policy":{},"tools":["` + status + `"]}`)[0].Rule, "of the token that created it")

		h.do(t, "POST", path+"/simulate", `{"policy":{"deny":[{"tool":"a b"}]}}`).problem(t, http.StatusBadRequest, errs.InvalidRequest)
		h.do(t, "POST", path+"/simulate", `{"tool":[]}`).problem(t, http.StatusBadRequest, errs.InvalidRequest)
		h.do(t, "POST", "/api/v1/tokens/none/tool-policy/simulate", `{}`).problem(t, http.StatusNotFound, errs.NotFound)
		h.do(t, "POST", path+"/simulate", `{}`, "Authorization", "Bearer "+issued.Secret).problem(t, http.StatusForbidden, errs.MissingScope)
		reader, err := h.auth.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("reader"), Scopes: []models.Scope{models.ScopeTasksRead}}, nil)
		require.NoError(t, err)
		path = "/api/v1/tokens/" + reader.Token.ID + "/tool-policy"
		require.Equal(t, verdict{search, false, false, models.ToolRead, `the token "reader" lacks the scope "tools:call"`, ""}, simulate(`{"tools":["` + search + `"]}`)[0])
	})
}
