package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/api"
	"comet/internal/auth"
	"comet/internal/registry"
	"comet/internal/usage"
	"comet/models"
	"comet/store/storetest"
	"comet/webhooks"
)

// FuzzCreateAgent sends any body to POST /api/v1/agents: it is never a fault of
// ours, a refusal is a whole problem document, and what is accepted is stored as
// it was sent.
func FuzzCreateAgent(f *testing.F) {
	for _, c := range badDrafts() {
		if len(c.body) < 1000 {
			f.Add([]byte(strings.ReplaceAll(c.body, "$ID", "an-agent")))
		}
	}
	for _, c := range append(badUnicode(), badJSON()...) {
		if len(c.body) < 1000 {
			f.Add([]byte(c.body))
		}
	}
	db := storetest.Open(f, "sqlite")
	reg, tokens := registry.New(db.Store, nil), auth.New(db.Store, nil)
	require.NoError(f, reg.Bootstrap(f.Context()))
	issued, err := tokens.Create(f.Context(), models.System(), auth.TokenDraft{Name: new("fuzz"), Scopes: []models.Scope{models.ScopeAdmin}}, nil)
	require.NoError(f, err)
	server := api.New(api.Services{Registry: reg, Auth: tokens, Usage: usage.New(db.Store, nil), Webhooks: webhooks.New(db.Store, nil)}, nil)
	ask := func(t *testing.T, method, target string, body []byte) response {
		t.Helper()
		req := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(string(body)))
		req.Header.Set("Authorization", "Bearer "+issued.Secret)
		if len(body) > 0 {
			req.Header.Set("Content-Type", "application/json")
		}
		w := httptest.NewRecorder()
		server.ServeHTTP(w, req)
		return response{w.Code, w.Header(), w.Body.Bytes()}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := ask(t, "POST", "/api/v1/agents", body)
		if got.status != http.StatusCreated {
			got.anyProblem(t)
			return
		}
		var sent struct {
			ID, Name, Description, Type string
			Capabilities                []string
		}
		require.NoError(t, json.Unmarshal(body, &sent))
		stored, kept := ask(t, "GET", got.header.Get("Location"), nil), sent
		stored.decode(t, http.StatusOK, &kept)
		if sent.Capabilities == nil {
			sent.Capabilities = []string{}
		}
		require.Equal(t, sent, kept)
		var deleted map[string]any
		if ask(t, "DELETE", got.header.Get("Location"), nil).status != http.StatusNoContent {
			ask(t, "GET", got.header.Get("Location"), nil).decode(t, http.StatusOK, &deleted)
			require.LessOrEqual(t, deleted["level"], float64(models.LevelOrchestrator), "only L0 and L1 cannot be deleted")
		}
	})
}
