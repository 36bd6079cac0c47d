package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/api"
	"comet/internal/auth"
	"comet/internal/registry"
	"comet/internal/usage"
	"comet/models"
	"comet/store/storetest"
	"comet/webhooks"
)

// FuzzRecordUsage sends any body to POST …/usage: it is never a fault of ours, a
// refusal is a whole problem document and records nothing, and what is accepted
// counts as it was sent.
func FuzzRecordUsage(f *testing.F) {
	for _, c := range append(badFacts(), badReports()...) {
		if len(c.body) < 1000 {
			f.Add([]byte(c.body))
		}
	}
	f.Add([]byte(goodFact))
	f.Add([]byte(`{"facts":[{"tokens":1,"request_id":"a"},{"tokens":1,"request_id":"a"},` + goodFact + `]}`))
	db := storetest.Open(f, "sqlite")
	reg, tokens, ledger := registry.New(db.Store, nil), auth.New(db.Store, nil), usage.New(db.Store, nil)
	require.NoError(f, reg.Bootstrap(f.Context()))
	issued, err := tokens.Create(f.Context(), models.System(), auth.TokenDraft{Name: new("fuzz"), Scopes: []models.Scope{models.ScopeAdmin}}, nil)
	require.NoError(f, err)
	server := api.New(api.Services{Registry: reg, Auth: tokens, Usage: ledger, Webhooks: webhooks.New(db.Store, nil)}, nil)
	f.Fuzz(func(t *testing.T, body []byte) {
		db.Clock.Advance(24 * time.Hour) // each begins with nothing used
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/agents/orch-scholar/usage", strings.NewReader(string(body)))
		req.Header.Set("Authorization", "Bearer "+issued.Secret)
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		server.ServeHTTP(w, req)
		got := response{w.Code, w.Header(), w.Body.Bytes()}
		u, err := ledger.Usage(t.Context(), "orch-scholar")
		require.NoError(t, err)
		if got.status >= http.StatusBadRequest {
			got.anyProblem(t)
			require.Zero(t, u.UsedToday)
			return
		}
		var answer struct{ Facts []models.Fact }
		require.NoError(t, json.Unmarshal(got.body, &answer))
		if answer.Facts == nil {
			answer.Facts = make([]models.Fact, 1)
			require.NoError(t, json.Unmarshal(got.body, &answer.Facts[0]))
		}
		fresh := int64(0)
		for _, fact := range answer.Facts {
			require.NotEmpty(t, fact.ID)
			if !fact.Replayed {
				fresh += fact.Tokens
			}
		}
		require.Equal(t, fresh, u.UsedToday)
	})
}
