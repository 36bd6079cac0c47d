package store

import (
	"time"

	"comet/internal/errs"
	"comet/models"
	"comet/store/filter"
)

// Spending is the state of an agent's ledger at one moment. Overdue sums are
// held tokens whose lease has ended and that are not freed yet.
type Spending struct {
	Spender Spender
	Account Account // the zero account with day 0 before the first use
	spendingSums
	SubtreeUsed int64
	SubtreeHeld int64 // 0 unless the scope is subtree; without overdue reservations
}

type spendingSums struct {
	Extra         int64 // additional budgets that count
	UsedThisHour  int64
	Overdue       int64
	SubtreeExempt int64 // what resets wrote off of the roll-up
}

// Spending returns what an agent spends at now, or errs.NotFound.
func (r ledgerReader) Spending(id string, now time.Time) (Spending, error) {
	var out Spending
	err := r.snapshot(func(at reader) (err error) {
		out, err = spending(at, id, now)
		return err
	})
	return out, err
}

func spending(r reader, id string, now time.Time) (Spending, error) {
	spender, err := one[Spender](r, "SELECT id, level, coalesce(parent_id, ''), token_budget, budget_scope, is_active, version FROM agents WHERE id = ?", id)
	if err != nil {
		return Spending{}, agentMissing(err, id)
	}
	account, err := one[Account](r, selectRows[Account]("WHERE agent_id = ?"), id)
	if err = exceptMissing(err); err != nil {
		return Spending{}, err
	}
	today := now.Unix() / 86400
	if account.Day < today || account.Day > today+MaxDayAhead { // as a decision would enter today
		own, err := one[ownUse](r, ownUsed, id, today*24, today*24+24, id, today)
		if err != nil {
			return Spending{}, err
		}
		account.Day, account.Used, account.Forgiven = today, own.Used, own.Forgiven
	}
	day := account.Day
	sums, err := one[spendingSums](r, `SELECT
		(SELECT coalesce(sum(tokens), 0) FROM budget_additions WHERE agent_id = ? AND expires_at > ?),
		(SELECT coalesce(sum(tokens), 0) FROM usage_windows WHERE agent_id = ? AND hour = ?),
		(SELECT coalesce(sum(tokens), 0) FROM usage_reservations WHERE state = 0 AND due <= ? AND agent_id = ?),
		(SELECT coalesce(sum(subtree), 0) FROM usage_resets WHERE agent_id = ? AND day = ?)`,
		id, now, id, max(hour(now), day*24), now, id, id, day)
	if err != nil {
		return Spending{}, err
	}
	out := Spending{Spender: spender, Account: account, spendingSums: sums}
	query, args := subtreeUsed(out.Spender, day)
	if out.SubtreeUsed, err = one[int64](r, query, args...); err != nil || out.Spender.BudgetScope != models.ScopeSubtree {
		return out, err
	}
	out.SubtreeHeld, err = heldBelow(r, out.Account, id, now)
	return out, err
}

// heldBelow is what is held on a roll-up and not overdue.
func heldBelow(r reader, a Account, id string, now time.Time) (int64, error) {
	if !a.Subtree {
		return sumOnPath(r, id, heldQuery+" AND due > ?", now)
	}
	overdue, err := sumOnPath(r, id, heldQuery+" AND due <= ?", now)
	return a.SubtreeReserved - overdue, err // the account knows the sum of all
}

// UsageByPath calls do with the tokens that were used in a day, by agent and path, and returns the
// tokens that resets wrote off that day, by agent.
func (r ledgerReader) UsageByPath(day int64, do func(agentID, path string, tokens int64)) (forgiven map[string]int64, err error) {
	err = r.snapshot(func(at reader) error {
		err := each(at, func(w pathUse) error {
			do(w.AgentID, w.Path, w.Tokens)
			return nil
		}, "SELECT agent_id, path, sum(tokens) FROM usage_windows WHERE hour / 24 = ? GROUP BY agent_id, path", day)
		if err != nil {
			return err
		}
		forgiven, err = sums(at, "SELECT agent_id, sum(own) FROM usage_resets WHERE day = ? GROUP BY agent_id", day)
		return err
	})
	return forgiven, err
}

// pathUse is an agent's usage on a chain of ancestors.
type pathUse struct {
	AgentID, Path string
	Tokens        int64
}

// HistoryRow is a part of a history: the start of its window in hours since 1970
// UTC, the label it is broken down by, and its sums.
type HistoryRow struct {
	Hour          int64
	Label         string
	Other         bool // all labels that are not named
	Tokens, Facts int64
}

// History returns the usage of an agent in [from, to), in order, by windows of that many hours.
func (r ledgerReader) History(agentID string, from, to time.Time, hours int64) ([]HistoryRow, error) {
	return list[HistoryRow](r.reader, `SELECT hour / ? * ? AS start, '', FALSE, sum(tokens), 0 FROM usage_windows
		WHERE agent_id = ? AND hour >= ? AND hour < ? GROUP BY start ORDER BY start`,
		hours, hours, agentID, hour(from), hour(to.Add(time.Hour-1)))
}

// Breakdown is History by a label of the facts: in each window the top
// largest sums first, then the sum of the others, marked as other. The database ranks them, so that
// no process holds every label in memory.
func (r ledgerReader) Breakdown(agentID string, label string, from, to time.Time, hours int64, top int) ([]HistoryRow, error) {
	column := map[string]string{"model": "model", "kind": "kind", "task": "task_id"}[label]
	if column == "" {
		return nil, errs.New(errs.InvalidParameter, "a history cannot be broken down by %q", label)
	}
	return list[HistoryRow](r.reader, `SELECT start, min(label), place > ?, sum(used), sum(facts) FROM (
			SELECT start, label, used, facts, CASE WHEN place > ? THEN ? ELSE place END AS place FROM (
				SELECT start, label, used, facts, row_number() OVER (PARTITION BY start ORDER BY used DESC, label) AS place FROM (
					SELECT at / ? * ? AS start, `+column+` AS label, sum(tokens) AS used, count(*) AS facts FROM usage_facts
						WHERE agent_id = ? AND at >= ? AND at < ? GROUP BY start, label) AS sums) AS ranked) AS cut
		GROUP BY start, place ORDER BY start, place`,
		top, top, top+1, hours*time.Hour.Microseconds(), hours, agentID, from, to)
}

// Reservation returns a reservation, or errs.NotFound.
func (r ledgerReader) Reservation(agentID, id string) (models.Reservation, error) {
	row, err := one[reservationRow](r.reader, selectRows[reservationRow]("WHERE agent_id = ? AND id = ?"), agentID, id)
	return row.reservation(), orMissing(err, "%q has no reservation %q", agentID, id)
}

// Reservations returns up to limit reservations of an agent, newest first, behind
// the one with the id before; "" begins with the newest, and the state "" is all.
// One whose lease has ended by now is among the expired, freed or not.
func (r ledgerReader) Reservations(
	agentID string, state models.ReservationState, before string, limit int,
) ([]models.Reservation, error) {
	var where filter.Clause
	switch state {
	case models.ReservationHeld:
		// Few reservations are held at any time; the history of an agent is long.
		where.And("state = 0 AND agent_id || '' = ? AND due > ?", agentID, r.now)
	case models.ReservationExpired:
		where.And("agent_id = ? AND (state = ? OR state = 0 AND due <= ?)", agentID, state, r.now)
	case "":
		where.And("agent_id = ?", agentID)
	default:
		where.And("agent_id = ? AND state = ?", agentID, state)
	}
	if before != "" {
		where.And("id < ?", before)
	}
	return listReservations(r.reader, selectRows[reservationRow](where.SQL())+" ORDER BY id DESC LIMIT ?", append(where.Args, limit)...)
}

// NextReservationDue returns when the next held reservation expires; ok is false when none is held.
func (r ledgerReader) NextReservationDue() (at time.Time, ok bool, err error) {
	at, err = one[time.Time](r.reader, nextDueQuery)
	return at, err == nil, exceptMissing(err)
}

// MaxDayAhead is how many days an account's day may be ahead of the clock. A larger difference means
// that the clock that set it was wrong.
const MaxDayAhead = 1
