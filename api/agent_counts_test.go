package api_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/store"
	"comet/store/storetest"
)

// TestAgentCounts reads the counts and budgets of listed agents, as a page with a tree does.
func TestAgentCounts(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		createFamily(t, h)
		require.Equal(t, http.StatusCreated, h.do(t, "POST", "/api/v1/agents/the-l3/usage", `{"tokens":7}`).status)
		require.Equal(t, http.StatusCreated, h.do(t, "POST", "/api/v1/agents/the-l2/usage", `{"tokens":5}`).status)
		require.Equal(t, http.StatusCreated, h.do(t, "POST", "/api/v1/agents/the-l2/reservations", `{"tokens":3}`).status)
		type use struct {
			UsedToday        int64 `json:"used_today"`
			SubtreeUsedToday int64 `json:"subtree_used_today"`
			Reserved         int64
		}
		var page struct {
			Agents []struct {
				ID          string
				Children    *int `json:"child_count"`
				Descendants *int `json:"descendant_count"`
				Usage       *use
			}
		}
		read := func(query string) map[string][]any {
			t.Helper()
			page.Agents = nil
			h.do(t, "GET", "/api/v1/agents?"+query, "").decode(t, http.StatusOK, &page)
			got := map[string][]any{}
			for _, a := range page.Agents {
				got[a.ID] = []any{a.Children, a.Descendants, a.Usage}
			}
			return got
		}
		all := read("counts=true&usage=true")
		require.Len(t, all, 12)
		require.Equal(t, []any{new(9), new(11), &use{0, 12, 0}}, all["nova"])
		require.Equal(t, []any{new(1), new(2), &use{0, 12, 0}}, all["orch-personnel"])
		require.Equal(t, []any{new(1), new(1), &use{5, 12, 3}}, all["the-l2"])
		require.Equal(t, []any{new(0), new(0), &use{7, 7, 0}}, all["the-l3"])
		require.Equal(t, map[string][]any{"the-l2": {new(1), new(1), (*use)(nil)}}, read("parent_id=orch-personnel&counts=true"))
		require.Equal(t, []any{(*int)(nil), (*int)(nil), &use{5, 12, 3}}, read("parent_id=orch-personnel&usage=true")["the-l2"])
		require.Equal(t, []any{(*int)(nil), (*int)(nil), (*use)(nil)}, read("counts=false&usage=false")["the-l2"])
		require.Empty(t, read("parent_id=the-l3&counts=true&usage=true"))
		require.Equal(t, http.StatusBadRequest, h.do(t, "GET", "/api/v1/agents?counts=maybe", "").status)
	})
}

// BenchmarkLazyTree reads parts of a tree of 100,000 agents, all of which have used tokens today: nova has 10,000 agents
// directly below it, and each of them nine.
func BenchmarkLazyTree(b *testing.B) {
	for _, database := range storetest.Databases() {
		b.Run(database, func(b *testing.B) {
			h := setup(b, storetest.Open(b, database), fixtureOptions{rateLimit: 1 << 30})
			h.insertTree(b)
			for _, path := range []string{
				"/agents?parent_id=nova&counts=true&usage=true&limit=200", "/agents?parent_id=nova&counts=true&limit=200", "/agents?parent_id=big-77&counts=true&usage=true&limit=200",
				"/agents?parent_id=nova&limit=200", "/agents?level=0&counts=true&usage=true", "/hierarchy?depth=1&usage=true", "/hierarchy?depth=1",
			} {
				b.Run(path, func(b *testing.B) {
					for b.Loop() {
						require.Equal(b, http.StatusOK, h.do(b, "GET", "/api/v1"+path, "").status)
					}
				})
			}
		})
	}
}

// insertTree inserts the agents of BenchmarkLazyTree and their usage.
func (h *fixture) insertTree(b *testing.B) {
	b.Helper()
	at, hour := h.db.Now().UnixMicro(), h.db.Now().Unix()/3600
	const numbers = "WITH RECURSIVE numbers (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM numbers WHERE i + 1 < %d) "
	agents := func(n int, id, parent string, level, hertz int) string {
		return "INSERT INTO agents (id, name, level, sphere_id, frequency_hz, parent_id, token_budget, budget_scope, created_at, updated_at, search_text) " +
			fmt.Sprintf(numbers+"SELECT %s, 'An agent', %d, 1, %d, %s, 100000, 'own', %d, %[6]d, '' FROM numbers", n, id, level, hertz, parent, at)
	}
	require.NoError(b, h.db.Write(b.Context(), func(tx *store.Tx) error {
		for _, statement := range []string{
			agents(9_991, "'big-' || i", "'nova'", 1, 888),
			agents(90_000, "'big-' || (i % 9991) || '-' || (i / 9991)", "'big-' || (i % 9991)", 2, 555),
			fmt.Sprintf(`INSERT INTO usage_windows (agent_id, hour, path, tokens)
				SELECT id, %d, CASE level WHEN 1 THEN 'nova/' ELSE 'nova/' || parent_id || '/' END || id, 10 FROM agents WHERE level > 0`, hour),
		} {
			if err := tx.Run(statement); err != nil {
				return err
			}
		}
		return nil
	}))
	if !h.db.Alone() {
		require.NoError(b, h.db.Write(b.Context(), func(tx *store.Tx) error { return tx.Run("ANALYZE") }))
	}
}
