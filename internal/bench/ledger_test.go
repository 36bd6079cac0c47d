package bench

import (
	"database/sql"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/usage"
	"comet/models"
)

const (
	baselineSingle = "one transaction each"
	baselineFlat   = "without ancestors"
)

// BenchmarkLedger measures usage requests over HTTP against one transaction per request, and the
// cost of ancestors.
func BenchmarkLedger(b *testing.B) {
	var results []result
	eachDatabase(b, func(b *testing.B, database string) {
		h := openLedgerServer(b, database)
		for _, m := range h.measurements() {
			m.what += ", " + database
			b.Run(m.name, func(b *testing.B) { results = append(results, m.run(b)...) })
		}
	})
	printTable(os.Stdout, "500 agents spend, in four trees.", results)
}

// ledgerServer is a server whose agents record usage.
type ledgerServer struct {
	*testServer
	company                         tree // agents of all levels
	flat, deep, divided, supervised tree // 500 spenders each
	facts                           atomic.Int64
}

func openLedgerServer(b *testing.B, database string) *ledgerServer {
	b.Helper()
	h := &ledgerServer{
		testServer: newServer(b, newDatabase(b, database)),
		company:    tree{name: "company", heads: 5, specialists: 9, assistants: 10},
		flat:       tree{name: "flat", heads: 500},
		deep:       tree{name: "deep", heads: 5, specialists: 10, assistants: 10},
		divided:    tree{name: "divided", heads: 5, specialists: 10, assistants: 10, scoped: models.LevelSpecialist},
		supervised: tree{name: "supervised", heads: 1, specialists: 50, assistants: 10, scoped: models.LevelOrchestrator},
	}
	db := h.raw(b, 1)
	for _, t := range []tree{h.company, h.flat, h.deep, h.divided, h.supervised} {
		t.insert(b, db)
		for _, id := range allAgents(t) { // every agent has an account
			_, err := h.ledger.Record(b.Context(), id, []usage.FactDraft{{Tokens: new(int64(1))}}, nil)
			require.NoError(b, err)
			h.facts.Add(1)
		}
	}
	h.live(b, db)
	h.open(b, models.ScopeUsageWrite, openRawLedger(b, h.testDatabase).mount)
	b.Cleanup(func() { h.requireSound(b) })
	return h
}

// live fills the ledger and updates the statistics: PostgreSQL chooses other plans for small
// tables and keeps them until the next ANALYZE.
func (h *ledgerServer) live(b *testing.B, db *sql.DB) {
	b.Helper()
	const each = 100
	facts := make([]usage.FactDraft, each)
	for i := range facts {
		facts[i] = usage.FactDraft{Tokens: new(int64(1250)), RequestID: new(fmt.Sprintf("earlier-%d", i))}
	}
	for _, id := range allAgents(h.company) {
		_, err := h.ledger.Record(b.Context(), id, facts, nil)
		require.NoError(b, err)
		h.facts.Add(each)
	}
	at := day().UnixMicro()
	_, err := db.ExecContext(b.Context(), fmt.Sprintf(`WITH RECURSIVE numbers (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM numbers WHERE i + 1 < %d)
		INSERT INTO usage_reservations (agent_id, id, path, tokens, state, due, expires_at, created_at, settled)
		SELECT id, 'earlier-' || i, 'nova/' || id, 2000, 2, %d, %[2]d, %[2]d, 0 FROM agents CROSS JOIN numbers WHERE id LIKE '%s-%%'`,
		each, at, h.company.name))
	require.NoError(b, err)
	_, err = db.ExecContext(b.Context(), "ANALYZE")
	require.NoError(b, err)
}

// requireSound checks that every fact is stored once and that every sum is correct.
func (h *ledgerServer) requireSound(b *testing.B) {
	b.Helper()
	v, err := h.ledger.Verify(detached())
	require.NoError(b, err)
	require.Empty(b, v.Differences)
	require.Equal(b, h.facts.Load(), v.Facts)
}

func (h *ledgerServer) measurements() []measurement {
	aim := 4.0
	if h.database != sqlite {
		aim = 0 // PostgreSQL groups commits itself
	}
	recorded := func(s *ledgerCallers, name string) *subject { return s.recorded(name, false) }
	named := func(s *ledgerCallers, name string) *subject { return s.recorded(name, true) }
	return []measurement{
		h.single("Record", "facts", aim, recorded),
		h.single("Record/Named", "facts with a request_id", aim, named),
		h.single("Settle", "reserve and settle", aim, (*ledgerCallers).settled),
		h.ancestors("Settle/Deep", "... three levels deep", h.deep, 0.8),
		h.ancestors("Settle/Divided", "... each L2 budget a subtree's", h.divided, 0),
		h.ancestors("Settle/Supervised", "... one L1 budget for all", h.supervised, 0),
	}
}

// single compares comet with one transaction per request.
func (h *ledgerServer) single(name, what string, aim float64, spend func(*ledgerCallers, string) *subject) measurement {
	return measurement{
		name: name, what: what,
		open: func(b *testing.B) []*subject {
			b.Helper()
			agents := allAgents(h.company)
			return []*subject{
				spend(h.ledgerCallers(b, ours, agents, &h.facts), "ours"),
				spend(h.ledgerCallers(b, raw, agents, &h.facts), baselineSingle),
				h.noop(b, baselineChain, h.chain, writers),
			}
		},
		against: []comparison{{subject: baselineSingle, metric: "of_single", aim: aim}, {subject: baselineChain, metric: "of_noop_chain"}},
	}
}

// ancestors compares agents deep in a tree with as many agents of depth one.
func (h *ledgerServer) ancestors(name, what string, t tree, aim float64) measurement {
	return measurement{
		name: name, what: what,
		open: func(b *testing.B) []*subject {
			b.Helper()
			flat, deep := h.flat.all(models.LevelOrchestrator), t.all(models.LevelAssistant)
			require.Len(b, deep, len(flat))
			return []*subject{
				h.ledgerCallers(b, ours, deep, &h.facts).settled("ours"),
				h.ledgerCallers(b, ours, flat, &h.facts).settled(baselineFlat),
			}
		},
		against: []comparison{{subject: baselineFlat, metric: "of_flat", aim: aim}},
	}
}
