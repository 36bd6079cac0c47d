// Package ledgercheck compares the sums of the ledger with the rows from which they are computed, and tool
// calls, events and deliveries with the rows that belong to them. It corrects what differs.
package ledgercheck

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"comet/store"
)

// maxDifferences is the maximum number of differences that a verification lists.
const maxDifferences = 100

const (
	hourMicros = int64(time.Hour / time.Microsecond)
	dayMicros  = 24 * hourMicros
)

// Verify compares everything as it is at one moment, and returns what differs.
func Verify(ctx context.Context, s *store.Store) (out Verification, err error) {
	err = s.Snapshot(ctx, func(at store.Source) error {
		out, err = verify(at, s.Now(), s.Alone())
		return err
	})
	return out, err
}

func verify(at store.Source, now time.Time, alone bool) (Verification, error) {
	from, err := store.Row[int64](at, "SELECT from_day FROM usage_retention WHERE id = 1")
	if err != nil {
		return Verification{}, err
	}
	counted, err := store.Row[counts](at, `SELECT (SELECT count(*) FROM usage_facts WHERE at >= ?), (SELECT count(*) FROM usage_windows WHERE hour >= ?),
		(SELECT count(*) FROM usage_accounts), (SELECT count(*) FROM usage_reservations WHERE state = 0)`, from*dayMicros, from*24)
	out := Verification{
		CheckedAt: now, FromDay: date(from), Differences: []Difference{},
		Facts: counted.Facts, Windows: counted.Windows, Accounts: counted.Accounts, Reservations: counted.Reservations,
	}
	if err != nil {
		return out, err
	}
	c := check{Source: at, from: from, now: now, differ: out.add}
	if err := c.sums(); err != nil {
		return out, err
	}
	return out, c.records(alone)
}

func (v *Verification) add(d Difference) error {
	if v.Total++; len(v.Differences) < maxDifferences {
		v.Differences = append(v.Differences, d)
	}
	if d.Correction != "" {
		if v.agents == nil {
			v.agents = map[string]bool{}
		}
		v.agents[d.AgentID] = true
	}
	return nil
}

// Repairable returns the agents that have differences with a correction, in order.
func (v *Verification) Repairable() []string { return slices.Sorted(maps.Keys(v.agents)) }

// date returns a day as YYYY-MM-DD.
func date(day int64) string { return time.Unix(day*86400, 0).UTC().Format(time.DateOnly) }

// counts are the numbers of rows that a verification reads.
type counts struct{ Facts, Windows, Accounts, Reservations int64 }

// check finds differences. Facts are complete from a day on.
type check struct {
	store.Source
	agents store.Keys // nil for all
	from   int64
	now    time.Time
	differ func(Difference) error
}

// each calls do for the rows of a query that concern the agents, in the given order.
func each[T any](c check, order string, do func(T) error, query string, args ...any) error {
	query = "SELECT * FROM (" + query + ") AS found "
	if c.agents != nil {
		query, args = query+"WHERE agent_id "+store.In(c.Source), append(args, c.agents)
	}
	return store.Each(c.Source, do, query+" ORDER BY "+order, args...)
}

// find reports the rows (agent, sum, key, stored, computed) of a query.
func (c check) find(query string, args ...any) error {
	return each(c, "1, 2, 3", func(d Difference) error {
		if number, path, _ := strings.Cut(d.Where, " "); d.What == "window" {
			hour, err := strconv.ParseInt(number, 10, 64)
			if err != nil {
				return err
			}
			d.Where = time.Unix(hour*3600, 0).UTC().Format(time.RFC3339) + " " + path
		}
		return c.differ(d.proposed())
	}, query, args...)
}

// sums compares the sums: those that may need a fact first, then windows, then accounts.
func (c check) sums() error {
	if err := c.toolCalls(); err != nil {
		return err
	}
	// If the ledger's day is ahead of the clock, the fact of a settlement is of a later day, so that
	// at the edge of the retention one of the two may already be deleted; these are not compared.
	edge := int64(0)
	if c.from > 0 {
		edge = (c.from + store.MaxDayAhead + 1) * dayMicros
	}
	for _, one := range []struct {
		query string
		args  []any
	}{
		// The tokens of each settlement and of its fact. A fact without its reservation is reported, too.
		{`SELECT agent_id, CASE WHEN sum(present) > 0 THEN 'settled' ELSE 'reservation' END, id, sum(stored), sum(computed) FROM (
			SELECT agent_id, id, 1 AS present, CASE WHEN state = 1 THEN settled ELSE 0 END AS stored, 0 AS computed, due AS at FROM usage_reservations WHERE due >= ?
			UNION ALL
			SELECT agent_id, reservation_id, 0, 0, tokens, at FROM usage_facts WHERE reservation_id <> '' AND at >= ?) AS sums
			GROUP BY agent_id, id HAVING sum(stored) <> sum(computed) AND min(at) >= ?`, []any{c.from * dayMicros, c.from * dayMicros, edge}},
		// Each window with the facts of its agent, hour and path.
		{`SELECT agent_id, 'window', hour || ' ' || path, sum(stored), sum(computed) FROM (
			SELECT agent_id, hour, path, tokens AS stored, 0 AS computed FROM usage_windows WHERE hour >= ?
			UNION ALL
			SELECT agent_id, at / ?, path, 0, tokens FROM usage_facts WHERE at >= ?) AS sums
			GROUP BY agent_id, hour, path HAVING sum(stored) <> sum(computed)`, []any{c.from * 24, hourMicros, c.from * dayMicros}},
		// The day of an account may be so long ago that its facts are deleted.
		{`SELECT agent_id, 'used', '', used, computed FROM (
			SELECT a.agent_id, a.used, (SELECT coalesce(sum(f.tokens), 0) FROM usage_facts f
				WHERE f.agent_id = a.agent_id AND f.at >= a.day * ? AND f.at < (a.day + 1) * ?) AS computed
			FROM usage_accounts a WHERE a.day >= ?) AS sums WHERE used <> computed`, []any{dayMicros, dayMicros, c.from}},
		// Without an account there are no facts.
		{`SELECT w.agent_id, 'used', '', 0, sum(w.tokens) FROM usage_windows w LEFT JOIN usage_accounts a ON a.agent_id = w.agent_id
			WHERE w.hour >= ? AND a.agent_id IS NULL GROUP BY w.agent_id`, []any{c.from * 24}},
		{`SELECT agent_id, 'forgiven', '', forgiven, computed FROM (
			SELECT a.agent_id, a.forgiven, (SELECT coalesce(sum(r.own), 0) FROM usage_resets r
				WHERE r.agent_id = a.agent_id AND r.day = a.day) AS computed
			FROM usage_accounts a) AS sums WHERE forgiven <> computed`, nil},
		{`SELECT agent_id, 'reserved', '', sum(stored), sum(computed) FROM (
			SELECT agent_id, reserved AS stored, 0 AS computed FROM usage_accounts
			UNION ALL
			SELECT agent_id, 0, tokens FROM usage_reservations WHERE state = 0) AS sums
			GROUP BY agent_id HAVING sum(stored) <> sum(computed)`, nil},
		// Accounts that count more than their additional budgets. An additional budget that has ended is
		// counted until the next decision, and is not counted again if the clock goes back.
		{`SELECT agent_id, 'extra', '', extra, computed FROM (
			SELECT a.agent_id, a.extra, (SELECT coalesce(sum(b.tokens), 0) FROM budget_additions b
				WHERE b.agent_id = a.agent_id AND b.expires_at > ?) AS computed
			FROM usage_accounts a WHERE a.extra = 0 OR a.extra_until > ?) AS sums WHERE extra > computed`, []any{c.now, c.now}},
		{`SELECT agent_id, 'subtree_forgiven', '', subtree_forgiven, computed FROM (
			SELECT a.agent_id, a.subtree_forgiven, (SELECT coalesce(sum(r.subtree), 0) FROM usage_resets r
				WHERE r.agent_id = a.agent_id AND r.day = a.day) AS computed
			FROM usage_accounts a WHERE a.subtree = TRUE) AS sums WHERE subtree_forgiven <> computed`, nil},
	} {
		if err := c.find(one.query, one.args...); err != nil {
			return err
		}
	}
	return c.subtrees()
}

// subtrees compares the sums of subtrees with the windows, which have been compared with the facts,
// and with the held tokens.
func (c check) subtrees() error {
	type account struct {
		AgentID                           string
		Day, SubtreeUsed, SubtreeReserved int64
	}
	type key struct {
		day     int64
		agentID string
	}
	type row struct {
		Day    int64
		Path   string
		Tokens int64
	}
	const held = -1 // instead of a day
	sums := map[key]int64{}
	err := store.Each(c.Source, func(r row) error {
		for link := range strings.SplitSeq(r.Path, "/") {
			sums[key{r.Day, link}] += r.Tokens
		}
		return nil
	}, `SELECT hour / 24, path, sum(tokens) FROM usage_windows WHERE hour / 24 IN (SELECT day FROM usage_accounts WHERE subtree = TRUE) GROUP BY hour / 24, path
		UNION ALL SELECT ?, path, tokens FROM usage_reservations WHERE state = 0`, int64(held))
	if err != nil {
		return err
	}
	return each(c, "1", func(a account) error {
		used := Difference{AgentID: a.AgentID, What: "subtree_used", Stored: a.SubtreeUsed, Computed: sums[key{a.Day, a.AgentID}]}
		reserved := Difference{AgentID: a.AgentID, What: "subtree_reserved", Stored: a.SubtreeReserved, Computed: sums[key{held, a.AgentID}]}
		for _, d := range []Difference{used, reserved} {
			if d.Stored != d.Computed && (d.What == reserved.What || a.Day >= c.from) {
				if err := c.differ(d.proposed()); err != nil {
					return err
				}
			}
		}
		return nil
	}, "SELECT agent_id, day, subtree_used, subtree_reserved FROM usage_accounts WHERE subtree = TRUE")
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
	// The corrections of a repair, at most 100; total_corrections counts all.
	Corrections []Difference `json:"corrections,omitempty"`
	Corrected   int          `json:"total_corrections,omitempty" example:"3"` // Number of corrections.

	agents map[string]bool // that have differences with a correction
} // @name LedgerVerification

// Difference is a sum of the ledger that differs from the sum of its rows, or a missing row.
type Difference struct {
	// The agent; empty for a missing row that belongs to no agent.
	AgentID string `json:"agent_id" example:"finance-personal"`
	// The sum: tool_calls, settled, window, used, forgiven, reserved, extra, subtree_used,
	// subtree_forgiven or subtree_reserved; or the missing row: reservation, positions, event or delivery.
	What string `json:"sum" example:"window"`
	// The hour and the path of a window, the day of tool calls, or the ids of a row.
	Where    string `json:"key,omitempty" example:"2026-01-10T15:00:00Z nova/orch-personnel/finance-personal"`
	Stored   int64  `json:"stored" example:"2100"`   // The stored sum, or number of rows.
	Computed int64  `json:"computed" example:"2050"` // The sum of the facts, or the expected number of rows.
	// How a repair corrects it; absent if it cannot.
	Correction string `json:"correction,omitempty" example:"set the stored sum to the computed one" gorm:"-"`
	// Why a repair cannot correct it.
	NotRepairable string `json:"not_repairable,omitempty" example:"an event is not written again" gorm:"-"`
} // @name LedgerDifference
