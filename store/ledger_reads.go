package store

import (
	"context"
	"database/sql"
	"time"

	"comet/internal/errs"
	"comet/models"
)

// Spending is what the ledger shows of an agent at one moment. Overdue sums are
// held tokens whose lease has ended and that nobody has freed yet.
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
func (s *Store) Spending(ctx context.Context, id string, now time.Time) (Spending, error) {
	var out Spending
	err := s.Snapshot(ctx, func(at *Snapshot) (err error) {
		out, err = at.spending(id, now)
		return err
	})
	return out, err
}

func (s *Snapshot) spending(id string, now time.Time) (Spending, error) {
	var out Spending
	err := s.query("SELECT id, level, token_budget, budget_scope, is_active FROM agents WHERE id = ?", []any{id}, func(rows *sql.Rows) error {
		var level, budget, active any
		var scope string
		if err := rows.Scan(&out.Spender.ID, &level, &budget, &scope, &active); err != nil {
			return err
		}
		out.Spender.Level, out.Spender.BudgetScope, out.Spender.IsActive = models.Level(whole(level)), models.BudgetScope(scope), truth(active)
		if budget != nil {
			out.Spender.TokenBudget = new(whole(budget))
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	if out.Spender.ID == "" {
		return out, errs.New(errs.NotFound, "there is no agent %q", id)
	}
	err = s.query("SELECT "+accountColumns+" FROM usage_accounts WHERE agent_id = ?", []any{id}, func(rows *sql.Rows) (err error) {
		out.Account, err = scanAccount(rows)
		return err
	})
	if err != nil {
		return out, err
	}
	today := now.Unix() / 86400
	if a := &out.Account; a.Day < today || a.Day > today+models.MaxDayAhead { // as a decision would enter today
		a.Day = today
		if err := s.queryRow(ownUsed, []any{id, today * 24, today*24 + 24, id, today}, &a.Used, &a.Forgiven); err != nil {
			return out, err
		}
	}
	day := out.Account.Day
	err = s.queryRow(`SELECT
		(SELECT coalesce(sum(tokens), 0) FROM budget_additions WHERE agent_id = ? AND expires_at > ?),
		(SELECT coalesce(sum(tokens), 0) FROM usage_windows WHERE agent_id = ? AND hour = ?),
		(SELECT coalesce(sum(tokens), 0) FROM usage_reservations WHERE state = 0 AND due <= ? AND agent_id = ?),
		(SELECT coalesce(sum(subtree), 0) FROM usage_resets WHERE agent_id = ? AND day = ?)`,
		[]any{id, micros(now), id, max(hour(now), day*24), micros(now), id, id, day},
		&out.Extra, &out.UsedThisHour, &out.Overdue, &out.SubtreeExempt)
	if err != nil {
		return out, err
	}
	query, args := subtreeUsed(out.Spender, day)
	if err := s.queryRow(query, args, &out.SubtreeUsed); err != nil || out.Spender.BudgetScope != models.ScopeSubtree {
		return out, err
	}
	out.SubtreeHeld, err = s.heldBelow(out.Account, id, now)
	return out, err
}

// heldBelow is what is held on a roll-up and not overdue.
func (s *Snapshot) heldBelow(a models.Account, id string, now time.Time) (int64, error) {
	tokens, query, sign := int64(0), heldQuery+" AND due > ?", int64(1)
	if a.Subtree { // the account knows the sum of all
		tokens, query, sign = a.SubtreeReserved, heldQuery+" AND due <= ?", -1
	}
	err := s.query(query, []any{micros(now)}, func(rows *sql.Rows) error {
		var path string
		var n int64
		if err := rows.Scan(&path, &n); err != nil {
			return err
		}
		if OnPath(path, id) {
			tokens += sign * n
		}
		return nil
	})
	return tokens, err
}

// PathUsage is what was used on one path.
type PathUsage struct {
	AgentID string
	Path    string
	Tokens  int64
}

// UsageByPath calls each with what was used in a day, by agent and path, and returns
// what resets wrote off that day, by agent.
func (s *Store) UsageByPath(ctx context.Context, day int64, each func(PathUsage)) (forgiven map[string]int64, err error) {
	forgiven = map[string]int64{}
	err = s.Snapshot(ctx, func(at *Snapshot) error {
		err := at.query("SELECT agent_id, path, sum(tokens) FROM usage_windows WHERE hour / 24 = ? GROUP BY agent_id, path", []any{day},
			func(rows *sql.Rows) error {
				var u PathUsage
				err := rows.Scan(&u.AgentID, &u.Path, &u.Tokens)
				each(u)
				return err
			})
		if err != nil {
			return err
		}
		return at.query("SELECT agent_id, sum(own) FROM usage_resets WHERE day = ? GROUP BY agent_id", []any{day}, func(rows *sql.Rows) error {
			var id string
			var tokens int64
			err := rows.Scan(&id, &tokens)
			forgiven[id] = tokens
			return err
		})
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

// UsageHistory calls each with what an agent used in [from, to) by windows of so
// many hours, in order.
func (s *Store) UsageHistory(ctx context.Context, agentID string, from, to time.Time, hours int64, each func(HistoryRow)) error {
	return s.query(ctx, s.dialect.bind(`SELECT hour / ? * ? AS start, sum(tokens) FROM usage_windows
		WHERE agent_id = ? AND hour >= ? AND hour < ? GROUP BY start ORDER BY start`),
		[]any{hours, hours, agentID, hour(from), hour(to.Add(time.Hour - 1))}, func(rows *sql.Rows) error {
			var r HistoryRow
			err := rows.Scan(&r.Hour, &r.Tokens)
			each(r)
			return err
		})
}

// UsageBreakdown is UsageHistory by a label of the facts: in each window the top
// largest sums first, and then what the others come to, marked as other. The database
// ranks them, so that nobody holds every label in memory.
func (s *Store) UsageBreakdown(ctx context.Context, agentID string, by models.HistoryBy, from, to time.Time, hours int64, top int, each func(HistoryRow)) error {
	column := map[models.HistoryBy]string{models.ByModel: "model", models.ByKind: "kind", models.ByTask: "task_id"}[by]
	if column == "" {
		return errs.New(errs.InvalidParameter, "a history cannot be broken down by %q", by)
	}
	return s.query(ctx, s.dialect.bind(`SELECT start, place, min(label), sum(used), sum(facts) FROM (
			SELECT start, label, used, facts, CASE WHEN place > ? THEN ? ELSE place END AS place FROM (
				SELECT start, label, used, facts, row_number() OVER (PARTITION BY start ORDER BY used DESC, label) AS place FROM (
					SELECT at / ? * ? AS start, `+column+` AS label, sum(tokens) AS used, count(*) AS facts FROM usage_facts
						WHERE agent_id = ? AND at >= ? AND at < ? GROUP BY start, label) AS sums) AS ranked) AS cut
		GROUP BY start, place ORDER BY start, place`),
		[]any{top, top + 1, hours * hourMicros, hours, agentID, micros(from), micros(to)}, func(rows *sql.Rows) error {
			var r HistoryRow
			var place int
			err := rows.Scan(&r.Hour, &place, &r.Label, &r.Tokens, &r.Facts)
			r.Other = place > top
			each(r)
			return err
		})
}

// Reservation returns a reservation, or errs.NotFound.
func (s *Store) Reservation(ctx context.Context, agentID, id string) (models.Reservation, error) {
	list, err := s.reservations(ctx, "WHERE agent_id = ? AND id = ?", agentID, id)
	if err == nil && len(list) == 0 {
		err = errs.New(errs.NotFound, "%q has no reservation %q", agentID, id)
	}
	if err != nil {
		return models.Reservation{}, err
	}
	return list[0], nil
}

// Reservations returns up to limit reservations of an agent, newest first, behind
// the one with the id before; "" begins with the newest, and the state "" is all.
// One whose lease has ended by now is among the expired, freed or not.
func (s *Store) Reservations(
	ctx context.Context, agentID string, state models.ReservationState, now time.Time, before string, limit int,
) ([]models.Reservation, error) {
	where, args := "WHERE agent_id = ?", []any{agentID}
	switch state {
	case "":
	case models.ReservationHeld:
		// Few are held at any time, whoever holds them, and an agent's history is long.
		where, args = "WHERE state = 0 AND agent_id || '' = ? AND due > ?", append(args, micros(now))
	case models.ReservationExpired:
		where, args = where+" AND (state = ? OR state = 0 AND due <= ?)", append(args, stateNumber(state), micros(now))
	default:
		where, args = where+" AND state = ?", append(args, stateNumber(state))
	}
	if before != "" {
		where, args = where+" AND id < ?", append(args, before)
	}
	return s.reservations(ctx, where+" ORDER BY id DESC LIMIT ?", append(args, limit)...)
}

func (s *Store) reservations(ctx context.Context, where string, args ...any) ([]models.Reservation, error) {
	list := []models.Reservation{}
	err := s.query(ctx, s.dialect.bind("SELECT "+reservationColumns+" FROM usage_reservations "+where), args, func(rows *sql.Rows) error {
		r, err := scanReservation(rows)
		list = append(list, r)
		return err
	})
	return list, err
}

// NextReservationDue returns when the next held reservation expires; ok is false
// when none is held.
func (s *Store) NextReservationDue(ctx context.Context) (at time.Time, ok bool, err error) {
	var us int64
	err = s.queryRow(ctx, nextDueQuery, nil, &us)
	if errs.Is(err, errs.NotFound) {
		return time.Time{}, false, nil
	}
	return fromMicros(us), err == nil, err
}
