package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAgentCounts reads the counts and budgets of listed agents, as a page with a tree does.
func TestAgentCounts(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		createFamily(t, h)
		require.Equal(t, http.StatusCreated, h.do(t, "POST", "/api/v1/agents/the-l3/usage", `{"tokens":7}`).status)
		require.Equal(t, http.StatusCreated, h.do(t, "POST", "/api/v1/agents/the-l2/usage", `{"tokens":5}`).status)
		type use struct {
			UsedToday        int64 `json:"used_today"`
			SubtreeUsedToday int64 `json:"subtree_used_today"`
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
		require.Equal(t, []any{new(9), new(11), &use{0, 12}}, all["nova"])
		require.Equal(t, []any{new(1), new(2), &use{0, 12}}, all["orch-personnel"])
		require.Equal(t, []any{new(1), new(1), &use{5, 12}}, all["the-l2"])
		require.Equal(t, []any{new(0), new(0), &use{7, 7}}, all["the-l3"])
		require.Equal(t, map[string][]any{"the-l2": {new(1), new(1), (*use)(nil)}}, read("parent_id=orch-personnel&counts=true"))
		require.Equal(t, []any{(*int)(nil), (*int)(nil), &use{5, 12}}, read("parent_id=orch-personnel&usage=true")["the-l2"])
		require.Equal(t, []any{(*int)(nil), (*int)(nil), (*use)(nil)}, read("counts=false&usage=false")["the-l2"])
		require.Empty(t, read("parent_id=the-l3&counts=true&usage=true"))
		require.Equal(t, http.StatusBadRequest, h.do(t, "GET", "/api/v1/agents?counts=maybe", "").status)
	})
}
