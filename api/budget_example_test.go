package api_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
)

// TestTheExampleOfATemporaryBudgetDoesNotExpire sends the example body that the server returns, at two times that are
// ten years apart.
func TestTheExampleOfATemporaryBudgetDoesNotExpire(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		for range 2 {
			var doc struct {
				Paths map[string]map[string]struct {
					RequestBody struct {
						Content map[string]struct{ Example json.RawMessage }
					}
				}
			}
			h.do(t, "GET", "/openapi.json", "").decode(t, http.StatusOK, &doc)
			example := doc.Paths["/api/v1/agents/{agent_id}/budget/additions"]["post"].RequestBody.Content["application/json"].Example
			var made models.BudgetAddition
			h.do(t, "POST", "/api/v1/agents/orch-business/budget/additions", string(example)).decode(t, http.StatusCreated, &made)
			require.WithinDuration(t, h.db.Now().Add(24*time.Hour), made.ExpiresAt, time.Second)
			h.db.Clock.Advance(10 * 366 * 24 * time.Hour)
		}
	})
}
