package ledgercheck

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"comet/models"
	"comet/store"
)

// The sums whose corrections are not an account's.
const (
	sumToolCalls = "tool_calls"
	sumSettled   = "settled"
	sumWindow    = "window"
)

// maxFound is how many differences Find returns.
const maxFound = 1000

// proposed returns the difference with its correction.
func (d Difference) proposed() Difference {
	switch d.What {
	case sumToolCalls:
		d.Correction = "record the missing charge as a fact of that day"
	case sumSettled:
		if d.Correction = "set the settled tokens of the reservation to those of its fact"; d.Computed == 0 {
			d.Correction = "record the fact of the settlement"
		}
	case "reservation":
		d.NotRepairable = "no other row has the tokens and the lease of the missing reservation; its fact is counted"
	case "positions", "event":
		d.NotRepairable = "an event is not written again"
	case "delivery":
		d.NotRepairable = "a delivery is only written when its event gets its position; read the event in the list of events"
	default:
		d.Correction = "set the stored sum to the computed one"
	}
	return d
}

// stage is the order of corrections: facts, then windows, then accounts.
func (d Difference) stage() int {
	switch d.What {
	case sumToolCalls, sumSettled:
		return 0
	case sumWindow:
		return 1
	}
	return 2
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
// ancestors that a missing charge counts on.
func Correct(tx *store.Tx, d Difference, path string) error {
	switch {
	case d.What == sumToolCalls:
		return addCharge(tx, d, path)
	case d.What == sumSettled && d.Computed == 0:
		return addSettlement(tx, d)
	case d.What == sumSettled:
		const fact = " FROM usage_facts f WHERE f.agent_id = usage_reservations.agent_id AND f.reservation_id = usage_reservations.id"
		return run(tx, `UPDATE usage_reservations SET state = 1, settled = ?, due = CASE WHEN state = 1 THEN due ELSE (SELECT max(at)`+fact+`) END,
			digest = (SELECT digest`+fact+` LIMIT 1) WHERE agent_id = ? AND id = ?`, d.Computed, d.AgentID, d.Where)
	case d.What == sumWindow:
		text, path, _ := strings.Cut(d.Where, " ")
		hour, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return err
		}
		if d.Computed == 0 {
			return run(tx, "DELETE FROM usage_windows WHERE agent_id = ? AND hour = ? AND path = ?", d.AgentID, hour.Unix()/3600, path)
		}
		return run(tx, `INSERT INTO usage_windows (agent_id, hour, path, tokens) VALUES (?, ?, ?, ?)
			ON CONFLICT (agent_id, hour, path) DO UPDATE SET tokens = excluded.tokens`, d.AgentID, hour.Unix()/3600, path, d.Computed)
	case d.What == "used": // an account that was missing has the day 0
		return run(tx, `UPDATE usage_accounts SET used = (SELECT coalesce(sum(f.tokens), 0) FROM usage_facts f
			WHERE f.agent_id = usage_accounts.agent_id AND f.at >= day * ? AND f.at < (day + 1) * ?) WHERE agent_id = ?`, dayMicros, dayMicros, d.AgentID)
	case d.What == "extra":
		tokens, until, err := tx.Ledger().ActiveAdditions(d.AgentID, tx.Now())
		if err != nil {
			return err
		}
		return run(tx, "UPDATE usage_accounts SET extra = ?, extra_until = ? WHERE agent_id = ?", tokens, until, d.AgentID)
	}
	return run(tx, "UPDATE usage_accounts SET "+d.What+" = ? WHERE agent_id = ?", d.Computed, d.AgentID)
}

func run(tx *store.Tx, query string, args ...any) error {
	_, err := tx.Exec(query, args...)
	return err
}

// addCharge records the missing charge of tool calls at the time of the day's last one.
func addCharge(tx *store.Tx, d Difference, path string) error {
	day, err := time.Parse(time.DateOnly, d.Where)
	if err != nil {
		return err
	}
	at, err := store.Row[time.Time](tx, "SELECT max(at) FROM tool_calls WHERE agent_id = ? AND source <> 'task' AND at >= ? AND at < ?",
		d.AgentID, day, day.Add(24*time.Hour))
	if err != nil {
		return err
	}
	return addFact(tx, models.Fact{
		AgentID: d.AgentID, At: at, Path: path, Tokens: d.Computed - d.Stored, FactLabels: models.FactLabels{Kind: sumToolCalls},
	})
}

// addSettlement records the missing fact of a settled reservation.
func addSettlement(tx *store.Tx, d Difference) error {
	key := store.LedgerKey{AgentID: d.AgentID, ID: d.Where}
	found, err := tx.Ledger().NamedReservations([]store.LedgerKey{key})
	if err != nil {
		return err
	}
	r := found[key]
	return addFact(tx, models.Fact{AgentID: d.AgentID, At: *r.EndedAt, Path: r.Path, Tokens: d.Stored, ReservationID: r.ID, Digest: r.Digest})
}

// addFact stores a fact; the sums that it changes are corrected next.
func addFact(tx *store.Tx, f models.Fact) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	f.ID = id.String()
	return tx.Ledger().InsertFacts([]models.Fact{f})
}
