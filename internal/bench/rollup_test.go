package bench

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"comet/models"
)

const (
	rollUpSQL = "SELECT coalesce(sum(tokens), 0) FROM usage_windows WHERE hour / 24 = ? AND path >= ? AND path < ?"

	baselineSum = "the sum alone"
)

// BenchmarkRollUp measures how long it takes to read today's usage of an L1 and all agents below.
func BenchmarkRollUp(b *testing.B) {
	var results []result
	eachDatabase(b, func(b *testing.B, database string) {
		for _, t := range []tree{
			{name: "small", heads: 1, specialists: 50, assistants: 9},    // 500 below
			{name: "large", heads: 1, specialists: 1000, assistants: 99}, // 100,000
		} {
			m := rollUp(database, t)
			b.Run(t.name, func(b *testing.B) { results = append(results, m.run(b)...) })
		}
	})
	printTable(os.Stdout, "One caller reads.", results)
}

func rollUp(database string, t tree) measurement {
	below := t.specialists * (1 + t.assistants)
	return measurement{
		what: fmt.Sprintf("usage of an L1 with %d below, %s", below, database),
		open: func(b *testing.B) []*subject {
			b.Helper()
			h := openSpent(b, database, t)
			ours, raw := get("/api/v1/agents/"+t.agent(0)+"/usage", adminToken), get("/bench/raw/rollup/"+t.agent(0), adminToken)
			requireSameSum(b, newCaller(b, h.chain), int64(below)*spentToday, ours, raw)
			return []*subject{
				replay(b, "ours", h.chain, 1, [][]byte{ours}), replay(b, baselineSum, h.chain, 1, [][]byte{raw}),
				h.noop(b, baselineChain, h.chain, 1),
			}
		},
		against: []comparison{{subject: baselineSum, metric: "of_sum"}, {subject: baselineChain, metric: "of_noop_chain"}},
	}
}

// spentToday is the usage of each agent today.
const spentToday = 1250

// openSpent starts a server whose agents have usage today.
func openSpent(b *testing.B, database string, t tree) *testServer {
	b.Helper()
	h := newServer(b, newDatabase(b, database))
	db := h.raw(b, readConnections)
	t.insert(b, db)
	for level, path := range map[models.Level]string{
		models.LevelSpecialist: "'nova/' || parent_id || '/' || id",
		models.LevelAssistant:  "'nova/" + t.agent(0) + "/' || parent_id || '/' || id",
	} {
		_, err := db.ExecContext(b.Context(), fmt.Sprintf(`INSERT INTO usage_windows (agent_id, hour, path, tokens)
			SELECT id, %d, %s, %d FROM agents WHERE level = %d AND id LIKE '%s-%%'`, day().Unix()/3600, path, spentToday, level, t.name))
		require.NoError(b, err)
	}
	if database == postgres { // as autovacuum does within two minutes
		_, err := db.ExecContext(b.Context(), "VACUUM (ANALYZE)")
		require.NoError(b, err)
	}
	sum, err := db.PrepareContext(b.Context(), h.bind(rollUpSQL))
	require.NoError(b, err)
	b.Cleanup(func() { _ = sum.Close() })
	h.open(b, models.ScopeAgentsRead, func(r chi.Router) { r.Get("/bench/raw/rollup/{agent_id}", rawRollUp(sum)) })
	return h
}

type rawSum struct {
	SubtreeUsedToday int64 `json:"subtree_used_today"`
}

func rawRollUp(sum *sql.Stmt) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		path := "nova/" + chi.URLParam(r, "agent_id")
		var out rawSum
		err := sum.QueryRowContext(r.Context(), day().Unix()/86400, path+"/", path+"0").Scan(&out.SubtreeUsedToday)
		reply(w, http.StatusOK, out, err)
	}
}

func requireSameSum(b *testing.B, c *caller, want int64, requests ...[]byte) {
	b.Helper()
	for _, request := range requests {
		status, body, err := c.exchange(request)
		require.NoError(b, err)
		require.Equal(b, 200, status, "%s", body)
		var got rawSum
		require.NoError(b, json.Unmarshal(body, &got))
		require.Equal(b, want, got.SubtreeUsedToday)
	}
}
