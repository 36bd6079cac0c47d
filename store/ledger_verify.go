package store

import (
	"database/sql"
	"fmt"
	"strings"
	"time"

	"comet/models"
)

// maxDifferences is how many differences a verification names.
const maxDifferences = 100

// verifier compares the ledger's sums with the rows under them, at one moment.
type verifier struct {
	reader
	from int64 // the first day whose facts are all kept
	out  Verification
}

// Verify computes every sum of the ledger again from its facts, reservations
// and resets, as they are at one moment, and returns where a stored sum differs.
func (r LedgerReader) Verify() (Verification, error) {
	v := verifier{out: Verification{Differences: []Difference{}}}
	err := r.from.snapshot(func(at reader) error {
		v.reader = at
		for _, check := range []func() error{v.counts, v.windows, v.accounts, v.settlements, v.additions, v.subtrees} {
			if err := check(); err != nil {
				return err
			}
		}
		return nil
	})
	v.out.CheckedAt = v.now
	return v.out, err
}

func (v *verifier) differ(d Difference) {
	v.out.Total++
	if len(v.out.Differences) < maxDifferences {
		v.out.Differences = append(v.out.Differences, d)
	}
}

// compare notes a difference for each row of (agent, stored, computed).
func (v *verifier) compare(what, query string, args ...any) error {
	return v.query(query, args, func(rows *sql.Rows) error {
		d := Difference{What: what}
		err := rows.Scan(&d.AgentID, &d.Stored, &d.Computed)
		v.differ(d)
		return err
	})
}

func (v *verifier) counts() error {
	if err := v.queryRow("SELECT from_day FROM usage_retention WHERE id = 1", nil, &v.from); err != nil {
		return err
	}
	v.out.FromDay = time.Unix(v.from*86400, 0).UTC().Format(time.DateOnly)
	return v.queryRow(`SELECT (SELECT count(*) FROM usage_facts WHERE at >= ?), (SELECT count(*) FROM usage_windows WHERE hour >= ?),
		(SELECT count(*) FROM usage_accounts), (SELECT count(*) FROM usage_reservations WHERE state = 0)`,
		[]any{v.from * dayMicros, v.from * 24}, &v.out.Facts, &v.out.Windows, &v.out.Accounts, &v.out.Reservations)
}

const (
	hourMicros = int64(time.Hour / time.Microsecond)
	dayMicros  = 24 * hourMicros
)

// windows compares each window with the facts of its agent, hour and path.
func (v *verifier) windows() error {
	return v.query(`SELECT agent_id, hour, path, sum(stored), sum(computed) FROM (
			SELECT agent_id, hour, path, tokens AS stored, 0 AS computed FROM usage_windows WHERE hour >= ?
			UNION ALL
			SELECT agent_id, at / ?, path, 0, tokens FROM usage_facts WHERE at >= ?) AS sums
		GROUP BY agent_id, hour, path HAVING sum(stored) <> sum(computed) ORDER BY agent_id, hour, path`,
		[]any{v.from * 24, hourMicros, v.from * dayMicros}, func(rows *sql.Rows) error {
			d := Difference{What: "window"}
			var hour int64
			var path string
			err := rows.Scan(&d.AgentID, &hour, &path, &d.Stored, &d.Computed)
			d.Where = fmt.Sprintf("%s %s", time.Unix(hour*3600, 0).UTC().Format(time.RFC3339), path)
			v.differ(d)
			return err
		})
}

// accounts compares the own sums of each account with what they are sums of. The
// day of an account may be so long ago that its facts are deleted.
func (v *verifier) accounts() error {
	err := v.compare("used", `SELECT agent_id, used, computed FROM (
			SELECT a.agent_id, a.used, (SELECT coalesce(sum(f.tokens), 0) FROM usage_facts f
				WHERE f.agent_id = a.agent_id AND f.at >= a.day * ? AND f.at < (a.day + 1) * ?) AS computed
			FROM usage_accounts a WHERE a.day >= ?) AS sums WHERE used <> computed ORDER BY agent_id`, dayMicros, dayMicros, v.from)
	if err != nil {
		return err
	}
	// Without an account there are no facts.
	err = v.compare("used", `SELECT w.agent_id, 0, sum(w.tokens) FROM usage_windows w LEFT JOIN usage_accounts a ON a.agent_id = w.agent_id
		WHERE w.hour >= ? AND a.agent_id IS NULL GROUP BY w.agent_id ORDER BY w.agent_id`, v.from*24)
	if err != nil {
		return err
	}
	err = v.compare("forgiven", `SELECT agent_id, forgiven, computed FROM (
			SELECT a.agent_id, a.forgiven, (SELECT coalesce(sum(r.own), 0) FROM usage_resets r
				WHERE r.agent_id = a.agent_id AND r.day = a.day) AS computed
			FROM usage_accounts a) AS sums WHERE forgiven <> computed ORDER BY agent_id`)
	if err != nil {
		return err
	}
	return v.compare("reserved", `SELECT agent_id, sum(stored), sum(computed) FROM (
			SELECT agent_id, reserved AS stored, 0 AS computed FROM usage_accounts
			UNION ALL
			SELECT agent_id, 0, tokens FROM usage_reservations WHERE state = 0) AS sums
		GROUP BY agent_id HAVING sum(stored) <> sum(computed) ORDER BY agent_id`)
}

// settlements compares what each reservation was settled with and the fact of that.
// Where the ledger's day is ahead of the clock the fact is of a later day, so that at the
// edge of the retention one of the two may already be deleted; these are not compared.
func (v *verifier) settlements() error {
	edge := int64(0)
	if v.from > 0 {
		edge = (v.from + MaxDayAhead + 1) * dayMicros
	}
	return v.query(`SELECT agent_id, id, sum(stored), sum(computed) FROM (
			SELECT agent_id, id, settled AS stored, 0 AS computed, due AS at FROM usage_reservations WHERE state = 1 AND due >= ?
			UNION ALL
			SELECT agent_id, reservation_id, 0, tokens, at FROM usage_facts WHERE reservation_id <> '' AND at >= ?) AS sums
		GROUP BY agent_id, id HAVING sum(stored) <> sum(computed) AND min(at) >= ? ORDER BY agent_id, id`,
		[]any{v.from * dayMicros, v.from * dayMicros, edge}, func(rows *sql.Rows) error {
			d := Difference{What: "settled"}
			err := rows.Scan(&d.AgentID, &d.Where, &d.Stored, &d.Computed)
			v.differ(d)
			return err
		})
}

// additions finds accounts that count more than the additional budgets they were
// given. One that has ended is counted until the next decision, and not counted again
// where the clock goes back.
func (v *verifier) additions() error {
	return v.compare("extra", `SELECT agent_id, extra, computed FROM (
			SELECT a.agent_id, a.extra, (SELECT coalesce(sum(b.tokens), 0) FROM budget_additions b
				WHERE b.agent_id = a.agent_id AND b.expires_at > ?) AS computed
			FROM usage_accounts a WHERE a.extra = 0 OR a.extra_until > ?) AS sums WHERE extra > computed ORDER BY agent_id`,
		Micros(v.now), Micros(v.now))
}

// subtrees compares the roll-ups that are kept with the windows, which have been
// compared with the facts, and with what is held.
func (v *verifier) subtrees() error {
	accounts, err := list(v.reader, "SELECT "+accountColumns+" FROM usage_accounts WHERE "+v.engine.isTrue("subtree")+" ORDER BY agent_id", nil, accountDest)
	if err != nil || len(accounts) == 0 {
		return err
	}
	held := map[string]int64{} // by each agent of a path
	err = v.query(heldQuery, nil, func(rows *sql.Rows) error {
		var path string
		var n int64
		err := rows.Scan(&path, &n)
		for link := range strings.SplitSeq(path, "/") {
			held[link] += n
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, a := range accounts {
		if err := v.subtree(a, held[a.AgentID]); err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) subtree(a models.Account, held int64) error {
	var used, forgiven int64
	query, args := subtreeUsed(models.Spender{ID: a.AgentID, Level: a.Level}, a.Day)
	if err := v.queryRow(query, args, &used); err != nil {
		return err
	}
	err := v.queryRow("SELECT coalesce(sum(subtree), 0) FROM usage_resets WHERE agent_id = ? AND day = ?", []any{a.AgentID, a.Day}, &forgiven)
	if err != nil {
		return err
	}
	for _, d := range []Difference{
		{AgentID: a.AgentID, What: "subtree_used", Stored: a.SubtreeUsed, Computed: used},
		{AgentID: a.AgentID, What: "subtree_forgiven", Stored: a.SubtreeForgiven, Computed: forgiven},
		{AgentID: a.AgentID, What: "subtree_reserved", Stored: a.SubtreeReserved, Computed: held},
	} {
		if d.Stored != d.Computed && (d.What != "subtree_used" || a.Day >= v.from) {
			v.differ(d)
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
	// The sum: window, used, forgiven, reserved, settled, extra,
	// subtree_used, subtree_forgiven or subtree_reserved.
	What string `json:"sum" example:"window"`
	// The hour and the path of a window, or the id of a reservation.
	Where    string `json:"key,omitempty" example:"2026-01-10T15:00:00Z nova/orch-personnel/finance-personal"`
	Stored   int64  `json:"stored" example:"2100"`   // The stored sum.
	Computed int64  `json:"computed" example:"2050"` // The sum of the facts.
} // @name LedgerDifference
