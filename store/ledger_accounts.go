package store

import (
	"cmp"
	"database/sql"
	"slices"
	"strings"
	"time"

	"comet/models"
)

const accountColumns = `agent_id, level, day, used, forgiven, reserved, subtree, subtree_used, subtree_forgiven, subtree_reserved,
	extra, extra_until, warned_day, exceeded_day`

// Spenders returns the agents with those ids and all their ancestors, by id; ids
// that name no agent are left out. The caller holds ShareChains, so what it
// returns stays true.
func (tx *Tx) Spenders(ids []string) (map[string]models.Spender, error) {
	out := make(map[string]models.Spender, 2*len(ids))
	err := eachKeys(anys(ids), 1, func(list string, args []any) error {
		return tx.query(chainsQuery(list), args, func(rows *sql.Rows) error {
			var s models.Spender
			var level, parent, budget, active, version any
			var scope string
			if err := rows.Scan(&s.ID, &level, &parent, &budget, &scope, &active, &version); err != nil {
				return err
			}
			s.Level, s.BudgetScope, s.IsActive = models.Level(whole(level)), models.BudgetScope(scope), truth(active)
			s.ParentID, _ = parent.(string)
			s.Version = whole(version)
			if budget != nil {
				s.TokenBudget = new(whole(budget))
			}
			out[s.ID] = s
			return nil
		})
	})
	return out, err
}

// chainsQuery looks up the agents of a list, their parents, and so on up to nova, which
// is at most three steps away. A recursive query says the same, but PostgreSQL expects
// ten times as many rows of it as there are, and then reads all agents to find a few.
func chainsQuery(list string) string {
	const find = "(SELECT id, level, parent_id, token_budget, budget_scope, is_active, version FROM agents WHERE id IN "
	return "WITH l3 AS MATERIALIZED " + find + list + "), l2 AS MATERIALIZED " + find + "(SELECT parent_id FROM l3)), l1 AS MATERIALIZED " + find +
		"(SELECT parent_id FROM l2)), l0 AS " + find + `(SELECT parent_id FROM l1))
		SELECT * FROM l3 UNION ALL SELECT * FROM l2 UNION ALL SELECT * FROM l1 UNION ALL SELECT * FROM l0`
}

// CreateAccounts makes the accounts of agents that have none, with the sums of day 0.
func (tx *Tx) CreateAccounts(of []models.Spender) error {
	of = slices.Clone(of)
	slices.SortFunc(of, func(a, b models.Spender) int { return byLockOrder(a.Level, a.ID, b.Level, b.ID) })
	args := make([]any, 0, 3*len(of))
	for _, s := range of {
		args = append(args, s.ID, int(s.Level), 0)
	}
	return tx.insertRows("INSERT INTO usage_accounts (agent_id, level, day)", "ON CONFLICT DO NOTHING", 3, args)
}

// LockAccounts returns the accounts of the agents, by id, and locks them in the
// order (level descending, id) until the transaction ends. Agents without one are
// left out.
func (tx *Tx) LockAccounts(ids []string) (map[string]models.Account, error) {
	// One statement locks them all in order; several would each begin again.
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	out := make(map[string]models.Account, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	list, args := inList(ids)
	if len(ids) <= maxRows {
		if err := eachKeys(anys(ids), 1, func(l string, a []any) error { list, args = l, a; return nil }); err != nil {
			return nil, err
		}
	}
	err := tx.query(lockQuery(list, tx.store.dialect), args, func(rows *sql.Rows) error {
		a, err := scanAccount(rows)
		out[a.AgentID] = a
		return err
	})
	return out, err
}

// lockQuery locks a list of accounts in order.
func lockQuery(list string, on dialect) string {
	return "SELECT " + accountColumns + " FROM usage_accounts WHERE agent_id IN " + list + " ORDER BY level DESC, agent_id" + on.forUpdate
}

func scanAccount(rows *sql.Rows) (models.Account, error) {
	var a models.Account
	var level, day, used, forgiven, reserved, subtree, subUsed, subForgiven, subReserved, extra, until, warned, exceeded any
	err := rows.Scan(&a.AgentID, &level, &day, &used, &forgiven, &reserved, &subtree, &subUsed, &subForgiven, &subReserved,
		&extra, &until, &warned, &exceeded)
	a.Level, a.Day, a.Used, a.Forgiven, a.Reserved = models.Level(whole(level)), whole(day), whole(used), whole(forgiven), whole(reserved)
	a.Subtree, a.SubtreeUsed, a.SubtreeForgiven, a.SubtreeReserved = truth(subtree), whole(subUsed), whole(subForgiven), whole(subReserved)
	a.Extra, a.ExtraUntil, a.WarnedDay, a.ExceededDay = whole(extra), fromMicros(whole(until)), whole(warned), whole(exceeded)
	return a, err
}

// SaveAccounts writes accounts that LockAccounts returned.
func (tx *Tx) SaveAccounts(accounts []models.Account) error {
	args := make([]any, 0, 14*len(accounts))
	for _, a := range accounts {
		args = append(args, a.AgentID, int(a.Level), a.Day, a.Used, a.Forgiven, a.Reserved,
			a.Subtree, a.SubtreeUsed, a.SubtreeForgiven, a.SubtreeReserved, a.Extra, micros(a.ExtraUntil), a.WarnedDay, a.ExceededDay)
	}
	return tx.insertRows("INSERT INTO usage_accounts ("+accountColumns+")", saveAccounts(), 14, args)
}

func saveAccounts() string {
	var set []string
	for c := range strings.SplitSeq(accountColumns, ",") {
		if c = strings.TrimSpace(c); c != "agent_id" && c != "level" {
			set = append(set, c+" = excluded."+c)
		}
	}
	return "ON CONFLICT (agent_id) DO UPDATE SET " + strings.Join(set, ", ")
}

// byLockOrder is the order in which rows of agents are locked: the lowest level
// first, then by id.
func byLockOrder(aLevel models.Level, aID string, bLevel models.Level, bID string) int {
	return cmp.Or(cmp.Compare(bLevel, aLevel), cmp.Compare(aID, bID))
}

// ActiveAdditions returns the sum of an agent's additional budgets that count at
// now and when the first of them ends, the zero time for none.
func (tx *Tx) ActiveAdditions(agentID string, now time.Time) (tokens int64, until time.Time, err error) {
	var first int64
	err = tx.queryRow("SELECT coalesce(sum(tokens), 0), coalesce(min(expires_at), 0) FROM budget_additions WHERE agent_id = ? AND expires_at > ?",
		[]any{agentID, micros(now)}, &tokens, &first)
	return tokens, fromMicros(first), err
}
