package ledgercheck

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"comet/store"
)

// maxFound is the maximum number of differences that Find returns.
const maxFound = 1000

// proposed returns the difference with its correction.
func (d Difference) proposed() Difference {
	switch d.What {
	case "tool_calls":
		d.Correction = "record the missing charge as a fact of that day"
	case "settled":
		if d.Correction = "set the settled tokens of the reservation to those of its fact"; d.Computed == 0 {
			d.Correction = "record the fact of the settlement"
		}
	case "reservation":
		d.NotRepairable = "no other row has the tokens and the lease of the missing reservation; its fact is counted"
	case "positions", "event":
		d.NotRepairable = "an event is not written again"
	case "delivery":
		d.NotRepairable = "redeliver the webhook's events of that period with include_missed"
	default:
		d.Correction = "set the stored sum to the computed one"
	}
	return d
}

// stage orders corrections: facts, then windows, then accounts.
func (d Difference) stage() int {
	return map[string]int{"tool_calls": 1, "settled": 1, "window": 2}[d.What]
}

// Find returns the differences of the agents' sums that are corrected first, up to 1,000. No purge deletes
// facts before the transaction ends. The caller holds LockChains, so no sum changes meanwhile.
func Find(tx *store.Tx, agents []string) (out []Difference, err error) {
	from, err := store.Row[int64](tx, "UPDATE usage_retention SET from_day = from_day WHERE id = 1 RETURNING from_day")
	if err != nil {
		return nil, err
	}
	differ := func(d Difference) error {
		if d.Correction != "" && len(out) < maxFound && (len(out) == 0 || d.stage() == out[0].stage()) {
			out = append(out, d)
		}
		return nil
	}
	return out, check{Source: tx, agents: agents, from: from, now: tx.Now(), differ: differ}.sums()
}

// Correct corrects a difference that Find has returned in the same transaction. path is the chain of
// ancestors for which a missing charge counts. The sums that a new fact changes are corrected next.
func Correct(tx *store.Tx, d Difference, path string) error {
	const newFact = "INSERT INTO usage_facts (agent_id, at, id, path, tokens, model, kind, task_id, request_id, reservation_id, digest) "
	const itsFact = " FROM usage_facts f WHERE f.agent_id = usage_reservations.agent_id AND f.reservation_id = usage_reservations.id"
	id, err := uuid.NewV7()
	query, args := "UPDATE usage_accounts SET "+d.What+" = ?, version = version + 1 WHERE agent_id = ?", []any{d.Computed, d.AgentID}
	switch {
	case err != nil:
	case d.What == "tool_calls": // at the time of the last call of the day
		var day time.Time
		day, err = time.Parse(time.DateOnly, d.Where)
		query = newFact + "SELECT agent_id, max(at), ?, ?, ?, '', 'tool_calls', '', '', '', ? FROM tool_calls WHERE agent_id = ? AND source <> 'task' AND at >= ? AND at < ? GROUP BY agent_id"
		args = []any{id.String(), path, d.Computed - d.Stored, make([]byte, 32), d.AgentID, day, day.Add(24 * time.Hour)}
	case d.What == "settled" && d.Computed == 0:
		query = newFact + "SELECT agent_id, due, ?, path, settled, '', '', '', '', id, digest FROM usage_reservations WHERE agent_id = ? AND id = ?"
		args = []any{id.String(), d.AgentID, d.Where}
	case d.What == "settled":
		query = "UPDATE usage_reservations SET state = 1, settled = ?, due = CASE WHEN state = 1 THEN due ELSE (SELECT max(at)" + itsFact + `) END,
			digest = (SELECT digest` + itsFact + " LIMIT 1) WHERE agent_id = ? AND id = ?"
		args = append(args, d.Where)
	case d.What == "window":
		var hour time.Time
		text, path, _ := strings.Cut(d.Where, " ")
		hour, err = time.Parse(time.RFC3339, text)
		query = "DELETE FROM usage_windows WHERE agent_id = ? AND hour = ? AND path = ?"
		if args = []any{d.AgentID, hour.Unix() / 3600, path}; d.Computed > 0 {
			query = `INSERT INTO usage_windows (agent_id, hour, path, tokens) VALUES (?, ?, ?, ?)
				ON CONFLICT (agent_id, hour, path) DO UPDATE SET tokens = excluded.tokens`
			args = append(args, d.Computed)
		}
	case d.What == "used": // an account that was missing has the day 0
		query = `UPDATE usage_accounts SET used = (SELECT coalesce(sum(f.tokens), 0) FROM usage_facts f
			WHERE f.agent_id = usage_accounts.agent_id AND f.at >= day * ? AND f.at < (day + 1) * ?), version = version + 1 WHERE agent_id = ?`
		args = []any{dayMicros, dayMicros, d.AgentID}
	case d.What == "extra":
		var tokens int64
		var until time.Time
		tokens, until, err = tx.Ledger().ActiveAdditions(d.AgentID, tx.Now())
		query, args = "UPDATE usage_accounts SET extra = ?, extra_until = ?, version = version + 1 WHERE agent_id = ?", []any{tokens, until, d.AgentID}
	}
	if err == nil {
		_, err = tx.Exec(query, args...)
	}
	return err
}
