package store

import (
	"database/sql"
	"time"

	"comet/internal/errs"
	"comet/models"
)

// Spending is the state of an agent's ledger at one moment. Overdue sums are
// held tokens whose lease has ended and that are not freed yet.
type Spending struct {
	Spender       models.Spender
	Account       models.Account // the zero account with day 0 before the first use
	Extra         int64          // additional budgets that count
	UsedThisHour  int64
	Overdue       int64
	SubtreeUsed   int64
	SubtreeHeld   int64 // 0 unless the scope is subtree; without what is overdue
	SubtreeExempt int64 // what resets wrote off of the roll-up
}

// Spending returns what an agent spends at now, or errs.NotFound.
func (r LedgerReader) Spending(id string, now time.Time) (Spending, error) {
	var out Spending
	err := r.from.snapshot(func(at reader) (err error) {
		out, err = spending(at, id, now)
		return err
	})
	return out, err
}

func spending(r reader, id string, now time.Time) (Spending, error) {
	var out Spending
	of := &out.Spender
	err := r.queryRow("SELECT id, level, token_budget, budget_scope, is_active FROM agents WHERE id = ?", []any{id},
		&of.ID, intInto(&of.Level), intPtrInto(&of.TokenBudget), &of.BudgetScope, &of.IsActive)
	if err != nil {
		return out, agentMissing(err, id)
	}
	err = r.queryRow("SELECT "+accountColumns+" FROM usage_accounts WHERE agent_id = ?", []any{id}, accountDest(&out.Account)...)
	if err = exceptMissing(err); err != nil {
		return out, err
	}
	today := now.Unix() / 86400
	if a := &out.Account; a.Day < today || a.Day > today+MaxDayAhead { // as a decision would enter today
		a.Day = today
		if err := r.queryRow(ownUsed, []any{id, today * 24, today*24 + 24, id, today}, &a.Used, &a.Forgiven); err != nil {
			return out, err
		}
	}
	day := out.Account.Day
	err = r.queryRow(`SELECT
		(SELECT coalesce(sum(tokens), 0) FROM budget_additions WHERE agent_id = ? AND expires_at > ?),
		(SELECT coalesce(sum(tokens), 0) FROM usage_windows WHERE agent_id = ? AND hour = ?),
		(SELECT coalesce(sum(tokens), 0) FROM usage_reservations WHERE state = 0 AND due <= ? AND agent_id = ?),
		(SELECT coalesce(sum(subtree), 0) FROM usage_resets WHERE agent_id = ? AND day = ?)`,
		[]any{id, Micros(now), id, max(hour(now), day*24), Micros(now), id, id, day},
		&out.Extra, &out.UsedThisHour, &out.Overdue, &out.SubtreeExempt)
	if err != nil {
		return out, err
	}
	query, args := subtreeUsed(out.Spender, day)
	if err := r.queryRow(query, args, &out.SubtreeUsed); err != nil || out.Spender.BudgetScope != models.ScopeSubtree {
		return out, err
	}
	out.SubtreeHeld, err = heldBelow(r, out.Account, id, now)
	return out, err
}

// heldBelow is what is held on a roll-up and not overdue.
func heldBelow(r reader, a models.Account, id string, now time.Time) (int64, error) {
	if !a.Subtree {
		return sumOnPath(r, id, heldQuery+" AND due > ?", Micros(now))
	}
	overdue, err := sumOnPath(r, id, heldQuery+" AND due <= ?", Micros(now))
	return a.SubtreeReserved - overdue, err // the account knows the sum of all
}

// UsageByPath calls each with what was used in a day, by agent and path, and returns
// what resets wrote off that day, by agent.
func (r LedgerReader) UsageByPath(day int64, each func(agentID, path string, tokens int64)) (forgiven map[string]int64, err error) {
	forgiven = map[string]int64{}
	err = r.from.snapshot(func(at reader) error {
		err := at.query("SELECT agent_id, path, sum(tokens) FROM usage_windows WHERE hour / 24 = ? GROUP BY agent_id, path", []any{day},
			func(rows *sql.Rows) error {
				var agentID, path string
				var tokens int64
				err := rows.Scan(&agentID, &path, &tokens)
				each(agentID, path, tokens)
				return err
			})
		if err != nil {
			return err
		}
		return at.query("SELECT agent_id, sum(own) FROM usage_resets WHERE day = ? GROUP BY agent_id", []any{day}, scanSums(forgiven))
	})
	return forgiven, err
}

// HistoryRow is a part of a history: the start of its window in hours since 1970
// UTC, the label it is broken down by, and its sums.
type HistoryRow struct {
	Hour          int64
	Label         string
	Other         bool // all labels that are not named
	Tokens, Facts int64
}

// History calls each with what an agent used in [from, to) by windows of so
// many hours, in order.
func (r LedgerReader) History(agentID string, from, to time.Time, hours int64, each func(HistoryRow)) error {
	return r.from.query(`SELECT hour / ? * ? AS start, sum(tokens) FROM usage_windows
		WHERE agent_id = ? AND hour >= ? AND hour < ? GROUP BY start ORDER BY start`,
		[]any{hours, hours, agentID, hour(from), hour(to.Add(time.Hour - 1))}, func(rows *sql.Rows) error {
			var r HistoryRow
			err := rows.Scan(&r.Hour, &r.Tokens)
			each(r)
			return err
		})
}

// Breakdown is UsageHistory by a label of the facts: in each window the top
// largest sums first, and then what the others come to, marked as other. The database
// ranks them, so that no process holds every label in memory.
func (r LedgerReader) Breakdown(agentID string, label string, from, to time.Time, hours int64, top int, each func(HistoryRow)) error {
	column := map[string]string{"model": "model", "kind": "kind", "task": "task_id"}[label]
	if column == "" {
		return errs.New(errs.InvalidParameter, "a history cannot be broken down by %q", label)
	}
	return r.from.query(`SELECT start, place, min(label), sum(used), sum(facts) FROM (
			SELECT start, label, used, facts, CASE WHEN place > ? THEN ? ELSE place END AS place FROM (
				SELECT start, label, used, facts, row_number() OVER (PARTITION BY start ORDER BY used DESC, label) AS place FROM (
					SELECT at / ? * ? AS start, `+column+` AS label, sum(tokens) AS used, count(*) AS facts FROM usage_facts
						WHERE agent_id = ? AND at >= ? AND at < ? GROUP BY start, label) AS sums) AS ranked) AS cut
		GROUP BY start, place ORDER BY start, place`,
		[]any{top, top + 1, hours * hourMicros, hours, agentID, Micros(from), Micros(to)}, func(rows *sql.Rows) error {
			var r HistoryRow
			var place int
			err := rows.Scan(&r.Hour, &place, &r.Label, &r.Tokens, &r.Facts)
			r.Other = place > top
			each(r)
			return err
		})
}

// Reservation returns a reservation, or errs.NotFound.
func (r LedgerReader) Reservation(agentID, id string) (models.Reservation, error) {
	row, err := one(r.from, "SELECT "+reservationColumns+" FROM usage_reservations WHERE agent_id = ? AND id = ?", []any{agentID, id}, (*reservationRow).dest)
	if err != nil {
		return models.Reservation{}, orMissing(err, "%q has no reservation %q", agentID, id)
	}
	return row.reservation(), nil
}

// Reservations returns up to limit reservations of an agent, newest first, behind
// the one with the id before; "" begins with the newest, and the state "" is all.
// One whose lease has ended by now is among the expired, freed or not.
func (r LedgerReader) Reservations(
	agentID string, state models.ReservationState, before string, limit int,
) ([]models.Reservation, error) {
	where, args := "WHERE agent_id = ?", []any{agentID}
	switch state {
	case "":
	case models.ReservationHeld:
		// Few reservations are held at any time; the history of an agent is long.
		where, args = "WHERE state = 0 AND agent_id || '' = ? AND due > ?", append(args, Micros(r.from.now))
	case models.ReservationExpired:
		where, args = where+" AND (state = ? OR state = 0 AND due <= ?)", append(args, stateNumber(state), Micros(r.from.now))
	default:
		where, args = where+" AND state = ?", append(args, stateNumber(state))
	}
	if before != "" {
		where, args = where+" AND id < ?", append(args, before)
	}
	return listReservations(r.from, "SELECT "+reservationColumns+" FROM usage_reservations "+where+" ORDER BY id DESC LIMIT ?", append(args, limit)...)
}

// NextReservationDue returns when the next held reservation expires; ok is false
// when none is held.
func (r LedgerReader) NextReservationDue() (at time.Time, ok bool, err error) {
	err = r.from.queryRow(nextDueQuery, nil, ScanTime{&at})
	return at, err == nil, exceptMissing(err)
}

// MaxDayAhead is how many days an account's day may be ahead of the clock. A larger difference means
// that the clock that set it was wrong.
const MaxDayAhead = 1
