package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// TestVisibilityIsReadOnce counts the statements that ten streams of bound tokens need to decide whether they may see an event.
func TestVisibilityIsReadOnce(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var reads atomic.Int32
			opts, clock := storetest.Migrated(t, name), storetest.NewClock()
			opts.Clock, opts.SkipMigrations = clock.Now, true
			opts.Connector = storetest.Statements(func(s storetest.Statement) {
				if strings.Contains(s.Query, "SELECT leaf, cid FROM chain") {
					reads.Add(1)
				}
			})
			s, err := store.Open(t.Context(), opts)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			h := setup(t, &storetest.DB{Store: s, Options: opts, Clock: clock}, fixtureOptions{startOrchestrator: true})
			personnel := h.bound(t, "orch-personnel", models.ScopeAgentsRead)
			var streams []*streamReader
			for range 10 {
				streams = append(streams, h.openStream(t, personnel, stream+"?types=usage.changed"))
				streams[len(streams)-1].next() // it has begun
			}
			before := reads.Load()
			for _, agent := range []string{"orch-scholar", "orch-personnel"} {
				require.Equal(t, http.StatusCreated, h.do(t, "POST", "/api/v1/agents/"+agent+"/usage", `{"tokens":1}`).status)
			}
			for _, one := range streams {
				require.Equal(t, "orch-personnel", one.event().data.Key)
			}
			// One statement for each message of changes; there may be two messages.
			require.LessOrEqual(t, reads.Load()-before, int32(2))
			require.Positive(t, reads.Load()-before)
		})
	}
}

// TestUsageChanged: changes of an account reach streams without a row, a position or an id.
func TestUsageChanged(t *testing.T) {
	t.Parallel()
	runStreamTest(t, "Streams", fixtureOptions{}, func(t *testing.T, h *fixture) {
		const only = stream + "?types=usage.changed"
		personnel, tasks := h.bound(t, "orch-personnel", models.ScopeAgentsRead), h.token(t, models.ScopeTasksRead)
		head := h.lastPosition(t)
		all := h.openStream(t, h.admin, stream)
		hello := all.next()
		bound := h.openStream(t, personnel, only)
		filtered := h.openStream(t, h.admin, only+"&agent_id=orch-personnel")
		excluded := h.openStream(t, h.admin, stream+"?types=agent.updated")
		for _, s := range []*streamReader{bound, filtered, excluded} {
			s.next() // it has begun
		}
		h.do(t, "GET", only, "", "Authorization", "Bearer "+tasks).problem(t, http.StatusForbidden, errs.MissingScope)
		type change struct {
			AgentID          string `json:"agent_id"`
			UsedToday        int64  `json:"used_today"`
			SubtreeUsedToday *int64 `json:"subtree_used_today"`
			Reserved         int64
			TokenBudget      int64 `json:"token_budget"`
			AdditionalBudget int64 `json:"additional_budget"`
			Version          int64
		}
		next := func(s *streamReader, key string) (c change) { // until all accounts of the last request have arrived
			t.Helper()
			for c.AgentID != key {
				m := s.event()
				require.Equal(t, []string{"usage.changed", ""}, []string{m.event, m.id})
				require.NotContains(t, m.raw, `"position"`)
				require.Equal(t, h.db.Now(), m.data.At)
				require.NoError(t, json.Unmarshal(m.data.Data, &c))
				require.Equal(t, m.data.Key, c.AgentID)
			}
			return c
		}
		use := func(agent, path, body string, status int) {
			t.Helper()
			require.Equal(t, status, h.do(t, "POST", "/api/v1/agents/"+agent+path, body).status)
		}
		use("orch-scholar", "/usage", `{"tokens":40}`, http.StatusCreated)
		got := next(all, "orch-scholar")
		require.Equal(t, change{"orch-scholar", 40, nil, 0, got.TokenBudget, 0, 1}, got)
		require.Positive(t, got.TokenBudget)
		use("orch-scholar", "/reservations", `{"tokens":7}`, http.StatusCreated)
		require.Equal(t, change{"orch-scholar", 40, nil, 7, got.TokenBudget, 0, 2}, next(all, "orch-scholar"))
		use("orch-scholar", "/budget/additions", `{"tokens":1000,"expires_at":"2026-01-10T20:00:00Z","reason":"x"}`, http.StatusCreated)
		require.Equal(t, change{"orch-scholar", 40, nil, 7, got.TokenBudget, 1000, 3}, next(all, "orch-scholar"))

		require.Equal(t, http.StatusOK, h.do(t, "PATCH", "/api/v1/agents/orch-personnel", `{"budget_scope":"subtree"}`).status)
		use("orch-personnel", "/usage", `{"tokens":3}`, http.StatusCreated)
		for _, s := range []*streamReader{bound, filtered} { // only their own agent
			own := next(s, "orch-personnel")
			require.Equal(t, change{"orch-personnel", 3, new(int64(3)), 0, own.TokenBudget, 0, own.Version}, own)
		}
		h.renameAgent(t, "orch-scholar", "x")
		require.Equal(t, "agent.updated", excluded.event().event)
		require.Equal(t, "agent.updated", excluded.event().event)
		require.NotEmpty(t, hello.id)
		require.Equal(t, head+2, h.lastPosition(t), "two changes of agents have positions, usage has none")
		require.Empty(t, h.history(t, h.admin, "types=usage.changed&after=0").Events)
	})
}
