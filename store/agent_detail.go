package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"math"
	"time"

	"comet/models"
)

// maxChildren bounds the children listed in an agent's detail; a list filtered
// by parent_id pages through more.
const maxChildren = 1000

// AgentDetail returns the agent with what it used and did since the UTC day of
// now began, in one statement, or errs.NotFound.
func (s *Store) AgentDetail(ctx context.Context, id string, now time.Time) (models.AgentDetail, error) {
	return readDetail(s.dialect, id, now, func(query string, args []any, dest ...any) error {
		return s.pointRow(ctx, s.dialect.bind(query), args, dest...)
	})
}

// AgentDetail is Store.AgentDetail as the transaction sees it.
func (tx *Tx) AgentDetail(id string) (models.AgentDetail, error) {
	return readDetail(tx.store.dialect, id, tx.now, tx.queryRow)
}

// readDetail reads a detail through a function that runs a query for one row.
func readDetail(on dialect, id string, now time.Time, queryRow func(string, []any, ...any) error) (models.AgentDetail, error) {
	day := now.UTC().Truncate(24 * time.Hour)
	var (
		r        agentRow
		d        models.AgentDetail
		children string
		success  int64
		total    int64
		average  sql.NullFloat64
	)
	dest := append(r.dest(), &d.TokensUsedToday, &children, &d.Stats.SessionsToday, &average, &success, &total)
	since := hour(day) / 24
	err := queryRow(detailQuery(on), []any{id, id, id, maxChildren + 1, id, since + models.MaxDayAhead, since, id, micros(day), id}, dest...)
	if err != nil {
		return d, agentMissing(err, id)
	}
	if d.Agent, err = r.agent(); err != nil {
		return d, err
	}
	d.Children = []models.AgentRef{}
	if children != "[]" {
		if err := json.Unmarshal([]byte(children), &d.Children); err != nil {
			return d, err
		}
	}
	if len(d.Children) > maxChildren {
		d.Children, d.ChildrenTruncated = d.Children[:maxChildren], true
	}
	d.Stats.AvgResponseTimeMS = int64(math.Round(average.Float64))
	if total > 0 {
		d.Stats.SuccessRate = new(math.Round(float64(success)/float64(total)*1e4) / 1e4)
	}
	return d, nil
}

// detailQuery counts the tokens of the day of the agent's account where that is the
// one after today: the clock went back, and the ledger's day does not.
func detailQuery(on dialect) string {
	return `SELECT ` + agentColumns + `,
		(SELECT coalesce(sum(tokens), 0) FROM usage_windows WHERE agent_id = ? AND hour >= 24 * d.since AND hour < 24 * d.since + 24) -
		(SELECT coalesce(sum(own), 0) FROM usage_resets WHERE agent_id = ? AND day = d.since),
		(SELECT ` + on.childList + ` FROM (SELECT id, level FROM agents
			WHERE parent_id = ? AND ` + on.isTrue("is_active") + ` ORDER BY id LIMIT ?) AS c),
		o.sessions, o.average, o.successes, o.total
		FROM agents
		CROSS JOIN (SELECT coalesce((SELECT day FROM usage_accounts WHERE agent_id = ? AND day = ?), ?) AS since) AS d
		CROSS JOIN (SELECT count(DISTINCT session_id) AS sessions, avg(duration_ms) AS average,
			coalesce(sum(CASE WHEN status = 'success' THEN 1 ELSE 0 END), 0) AS successes,
			coalesce(sum(CASE WHEN status <> 'cancelled' THEN 1 ELSE 0 END), 0) AS total
			FROM outcomes WHERE agent_id = ? AND at >= ?) AS o
		WHERE id = ?`
}
