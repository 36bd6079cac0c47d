package store

import (
	"strconv"
	"strings"
	"time"
)

// maxDifferences is how many differences a verification names.
const maxDifferences = 100

const (
	hourMicros = int64(time.Hour / time.Microsecond)
	dayMicros  = 24 * hourMicros
)

// Verify computes every sum of the ledger again from its facts, reservations
// and resets, as they are at one moment, and returns where a stored sum differs.
func (r ledgerReader) Verify() (out Verification, err error) {
	err = r.snapshot(func(at reader) error {
		out, err = verify(at)
		return err
	})
	return out, err
}

func verify(r reader) (Verification, error) {
	from, err := one[int64](r, "SELECT from_day FROM usage_retention WHERE id = 1")
	if err != nil {
		return Verification{}, err
	}
	counted, err := one[ledgerCounts](r, `SELECT (SELECT count(*) FROM usage_facts WHERE at >= ?), (SELECT count(*) FROM usage_windows WHERE hour >= ?),
		(SELECT count(*) FROM usage_accounts), (SELECT count(*) FROM usage_reservations WHERE state = 0)`, from*dayMicros, from*24)
	out := Verification{
		CheckedAt: r.now, FromDay: time.Unix(from*86400, 0).UTC().Format(time.DateOnly), Differences: []Difference{},
		Facts: counted.Facts, Windows: counted.Windows, Accounts: counted.Accounts, Reservations: counted.Reservations,
	}
	if err != nil {
		return out, err
	}
	differ := func(d Difference) error {
		if number, path, _ := strings.Cut(d.Where, " "); d.What == "window" {
			hour, err := strconv.ParseInt(number, 10, 64)
			if err != nil {
				return err
			}
			d.Where = time.Unix(hour*3600, 0).UTC().Format(time.RFC3339) + " " + path
		}
		out.Total++
		if len(out.Differences) < maxDifferences {
			out.Differences = append(out.Differences, d)
		}
		return nil
	}
	for _, check := range ledgerChecks(from, r.now) {
		if err := each(r, differ, check.query, check.args...); err != nil {
			return out, err
		}
	}
	return out, verifySubtrees(r, from, differ)
}

// ledgerCounts are the numbers of rows that a verification reads.
type ledgerCounts struct{ Facts, Windows, Accounts, Reservations int64 }

// ledgerCheck finds rows of (agent, sum, key, stored, computed) where the last two differ.
type ledgerCheck struct {
	query string
	args  []any
}

// ledgerChecks returns the checks of all sums but the roll-ups. Facts are complete from a day on.
func ledgerChecks(from int64, now time.Time) []ledgerCheck {
	// If the ledger's day is ahead of the clock, the fact of a settlement is of a later day, so that
	// at the edge of the retention one of the two may already be deleted; these are not compared.
	edge := int64(0)
	if from > 0 {
		edge = (from + MaxDayAhead + 1) * dayMicros
	}
	return []ledgerCheck{
		// Each window with the facts of its agent, hour and path.
		{`SELECT agent_id, 'window', hour || ' ' || path, sum(stored), sum(computed) FROM (
			SELECT agent_id, hour, path, tokens AS stored, 0 AS computed FROM usage_windows WHERE hour >= ?
			UNION ALL
			SELECT agent_id, at / ?, path, 0, tokens FROM usage_facts WHERE at >= ?) AS sums
			GROUP BY agent_id, hour, path HAVING sum(stored) <> sum(computed) ORDER BY agent_id, hour, path`, []any{from * 24, hourMicros, from * dayMicros}},
		// The day of an account may be so long ago that its facts are deleted.
		{`SELECT agent_id, 'used', '', used, computed FROM (
			SELECT a.agent_id, a.used, (SELECT coalesce(sum(f.tokens), 0) FROM usage_facts f
				WHERE f.agent_id = a.agent_id AND f.at >= a.day * ? AND f.at < (a.day + 1) * ?) AS computed
			FROM usage_accounts a WHERE a.day >= ?) AS sums WHERE used <> computed ORDER BY agent_id`, []any{dayMicros, dayMicros, from}},
		// Without an account there are no facts.
		{`SELECT w.agent_id, 'used', '', 0, sum(w.tokens) FROM usage_windows w LEFT JOIN usage_accounts a ON a.agent_id = w.agent_id
			WHERE w.hour >= ? AND a.agent_id IS NULL GROUP BY w.agent_id ORDER BY w.agent_id`, []any{from * 24}},
		{`SELECT agent_id, 'forgiven', '', forgiven, computed FROM (
			SELECT a.agent_id, a.forgiven, (SELECT coalesce(sum(r.own), 0) FROM usage_resets r
				WHERE r.agent_id = a.agent_id AND r.day = a.day) AS computed
			FROM usage_accounts a) AS sums WHERE forgiven <> computed ORDER BY agent_id`, nil},
		{`SELECT agent_id, 'reserved', '', sum(stored), sum(computed) FROM (
			SELECT agent_id, reserved AS stored, 0 AS computed FROM usage_accounts
			UNION ALL
			SELECT agent_id, 0, tokens FROM usage_reservations WHERE state = 0) AS sums
			GROUP BY agent_id HAVING sum(stored) <> sum(computed) ORDER BY agent_id`, nil},
		// The tokens of each settlement and of its fact.
		{`SELECT agent_id, 'settled', id, sum(stored), sum(computed) FROM (
			SELECT agent_id, id, settled AS stored, 0 AS computed, due AS at FROM usage_reservations WHERE state = 1 AND due >= ?
			UNION ALL
			SELECT agent_id, reservation_id, 0, tokens, at FROM usage_facts WHERE reservation_id <> '' AND at >= ?) AS sums
			GROUP BY agent_id, id HAVING sum(stored) <> sum(computed) AND min(at) >= ? ORDER BY agent_id, id`, []any{from * dayMicros, from * dayMicros, edge}},
		// Tool calls that were not charged. The call of a task is charged with it, and a charge is later than its call.
		{`SELECT agent_id, 'tool_calls', '', sum(stored), sum(computed) FROM (
			SELECT agent_id, tokens AS stored, 0 AS computed FROM usage_facts WHERE kind = 'tool_calls' AND at >= ?
			UNION ALL
			SELECT agent_id, 0, tokens FROM tool_calls WHERE source <> 'task' AND at >= ?) AS sums
			GROUP BY agent_id HAVING sum(stored) < sum(computed) ORDER BY agent_id`, []any{from * dayMicros, from * dayMicros}},
		// Accounts that count more than the additional budgets they were given. One that has ended is
		// counted until the next decision, and not counted again where the clock goes back.
		{`SELECT agent_id, 'extra', '', extra, computed FROM (
			SELECT a.agent_id, a.extra, (SELECT coalesce(sum(b.tokens), 0) FROM budget_additions b
				WHERE b.agent_id = a.agent_id AND b.expires_at > ?) AS computed
			FROM usage_accounts a WHERE a.extra = 0 OR a.extra_until > ?) AS sums WHERE extra > computed ORDER BY agent_id`, []any{now, now}},
	}
}

// verifySubtrees compares the stored roll-ups with the windows, which have been compared with the
// facts, and with the held tokens.
func verifySubtrees(r reader, from int64, differ func(Difference) error) error {
	accounts, err := list[Account](r, selectRows[Account]("WHERE subtree = TRUE ORDER BY agent_id"))
	if err != nil || len(accounts) == 0 {
		return err
	}
	held := map[string]int64{} // by each agent of a path
	err = each(r, func(s pathSum) error {
		for link := range strings.SplitSeq(s.Path, "/") {
			held[link] += s.Tokens
		}
		return nil
	}, heldQuery)
	if err != nil {
		return err
	}
	for _, a := range accounts {
		query, args := subtreeUsed(Spender{ID: a.AgentID, Level: a.Level}, a.Day)
		used, err := one[int64](r, query, args...)
		if err != nil {
			return err
		}
		forgiven, err := ledgerReader{r}.SubtreeForgiven(a.AgentID, a.Day)
		if err != nil {
			return err
		}
		for _, d := range []Difference{
			{AgentID: a.AgentID, What: "subtree_used", Stored: a.SubtreeUsed, Computed: used},
			{AgentID: a.AgentID, What: "subtree_forgiven", Stored: a.SubtreeForgiven, Computed: forgiven},
			{AgentID: a.AgentID, What: "subtree_reserved", Stored: a.SubtreeReserved, Computed: held[a.AgentID]},
		} {
			if d.Stored != d.Computed && (d.What != "subtree_used" || a.Day >= from) {
				if err := differ(d); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Verification is the result of a comparison of the ledger's sums with its facts.
type Verification struct {
	// The time of the state that was verified.
	CheckedAt time.Time `json:"checked_at" example:"2026-01-10T15:30:00Z"`
	// The first UTC day whose facts are stored, as YYYY-MM-DD.
	FromDay      string `json:"from_day" example:"2025-11-01"`
	Facts        int64  `json:"facts" example:"128044"`    // Number of facts that were checked.
	Windows      int64  `json:"windows" example:"5210"`    // Number of hourly sums that were checked.
	Accounts     int64  `json:"accounts" example:"287"`    // Number of agents that were checked.
	Reservations int64  `json:"reservations" example:"12"` // Number of held reservations that were checked.
	// The differences, at most 100; total_differences counts all.
	Differences []Difference `json:"differences"`
	Total       int64        `json:"total_differences" example:"0"` // Number of differences.
} // @name LedgerVerification

// Difference is a sum of the ledger that differs from that of its rows.
type Difference struct {
	AgentID string `json:"agent_id" example:"finance-personal"`
	// The sum: window, used, forgiven, reserved, settled, extra, tool_calls,
	// subtree_used, subtree_forgiven or subtree_reserved.
	What string `json:"sum" example:"window"`
	// The hour and the path of a window, or the id of a reservation.
	Where    string `json:"key,omitempty" example:"2026-01-10T15:00:00Z nova/orch-personnel/finance-personal"`
	Stored   int64  `json:"stored" example:"2100"`   // The stored sum.
	Computed int64  `json:"computed" example:"2050"` // The sum of the facts.
} // @name LedgerDifference
