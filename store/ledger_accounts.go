package store

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/models"
	"comet/store/columns"
)

// Spenders returns the agents with those ids and all their ancestors, by id; ids that name no agent
// are left out. The caller holds ShareChains, so what it returns stays true.
func (r ledgerReader) Spenders(ids []string) (map[string]Spender, error) {
	found, err := list[Spender](r.reader, chainsQuery(r.engine.in), Keys(ids))
	return byKey(found, func(s Spender) string { return s.ID }), err
}

// chainsQuery looks up the agents of a list, their parents, and so on up to nova, which
// is at most three steps away. A recursive query says the same, but PostgreSQL expects
// ten times as many rows of it as there are, and then reads all agents to find a few.
func chainsQuery(in string) string {
	const find = "(SELECT id, level, coalesce(parent_id, '') AS parent_id, token_budget, budget_scope, is_active, version FROM agents WHERE id "
	return "WITH l3 AS MATERIALIZED " + find + in + "), l2 AS MATERIALIZED " + find + "IN (SELECT parent_id FROM l3)), l1 AS MATERIALIZED " + find +
		"IN (SELECT parent_id FROM l2)), l0 AS " + find + `IN (SELECT parent_id FROM l1))
		SELECT * FROM l3 UNION ALL SELECT * FROM l2 UNION ALL SELECT * FROM l1 UNION ALL SELECT * FROM l0`
}

// CreateAccounts inserts the accounts of agents that have none, with the sums of day 0, in the
// order of LockAccounts. It returns the new accounts by id; they are locked like those of
// LockAccounts. An account that another transaction created is missing from the result.
func (tx Ledger) CreateAccounts(of []Spender) (map[string]Account, error) {
	of = slices.SortedFunc(slices.Values(of), func(a, b Spender) int { return cmp.Or(cmp.Compare(b.Level, a.Level), cmp.Compare(a.ID, b.ID)) })
	created := make(map[string]Account, len(of))
	for _, s := range of {
		n, err := tx.exec("INSERT INTO usage_accounts (agent_id, level, day) VALUES (?, ?, 0) ON CONFLICT DO NOTHING", s.ID, s.Level)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			created[s.ID] = Account{AgentID: s.ID, Level: s.Level, WarnedDay: -1, ExceededDay: -1}
		}
	}
	return created, nil
}

// LockAccounts returns the accounts of the agents, by id, and locks them in the order (level
// descending, id) until the transaction ends. Agents without an account are left out.
func (tx Ledger) LockAccounts(ids []string) (map[string]Account, error) {
	// One statement locks them all in order; several would each begin again.
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	if len(ids) == 0 {
		return map[string]Account{}, nil
	}
	accounts, err := list[Account](tx.reader, lockQuery(tx.engine), Keys(ids))
	return byKey(accounts, func(a Account) string { return a.AgentID }), err
}

// lockQuery locks a list of accounts in order.
func lockQuery(on *engine) string {
	return selectRows[Account]("WHERE agent_id "+on.in) + " ORDER BY level DESC, agent_id" + on.forUpdate
}

// SaveAccounts writes accounts that LockAccounts returned.
func (tx Ledger) SaveAccounts(accounts []Account) error {
	return create(tx.reader, replacing[Account](columns.Except[Account]("agent_id", "level")...), accounts...)
}

// ActiveAdditions returns the sum of an agent's additional budgets that count at
// now and when the first of them ends, the zero time for none.
func (r ledgerReader) ActiveAdditions(agentID string, now time.Time) (tokens int64, until time.Time, err error) {
	type additions struct {
		Tokens int64
		Until  time.Time
	}
	sum, err := one[additions](r.reader, "SELECT coalesce(sum(tokens), 0), coalesce(min(expires_at), 0) FROM budget_additions WHERE agent_id = ? AND expires_at > ?", agentID, now)
	return sum.Tokens, sum.Until, err
}

// InsertAddition stores an additional budget. The caller has locked the account.
func (tx Ledger) InsertAddition(a models.BudgetAddition) error {
	return tx.db().Create(&a).Error
}

// Additions returns the additional budgets of an agent, newest first, at most 1,000: those that
// count now, or all.
func (r ledgerReader) Additions(agentID string, all bool) ([]models.BudgetAddition, error) {
	additions, db := []models.BudgetAddition{}, r.db().Where("agent_id = ?", agentID)
	if !all {
		db = db.Where("expires_at > ?", r.now)
	}
	err := db.Order("id DESC").Limit(1000).Find(&additions).Error
	for i := range additions {
		additions[i].Active = additions[i].ExpiresAt.After(r.now)
	}
	return additions, err
}

// AdditionsByAgent returns the sums of the additional budgets that count now.
func (r ledgerReader) AdditionsByAgent() (map[string]int64, error) {
	return sums(r.reader, "SELECT agent_id, sum(tokens) FROM budget_additions WHERE expires_at > ? GROUP BY agent_id", r.now)
}

// EndAddition ends an active additional budget. It returns errs.NotFound for one that does not.
func (tx Ledger) EndAddition(agentID, id string) error {
	n, err := tx.exec("UPDATE budget_additions SET expires_at = ? WHERE agent_id = ? AND id = ? AND expires_at > ?", tx.now, agentID, id, tx.now)
	if err == nil && n == 0 {
		return errs.New(errs.NotFound, "%q has no active additional budget %q", agentID, id)
	}
	return err
}

// InsertReset stores the tokens that a reset has written off.
func (tx Ledger) InsertReset(agentID string, day, own, subtree int64) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	return tx.run("INSERT INTO usage_resets (agent_id, day, id, at, own, subtree) VALUES (?, ?, ?, ?, ?, ?)",
		agentID, day, id.String(), tx.now, own, subtree)
}

// ForgetBefore records that facts and windows of days before day may have been
// deleted. The recorded day never decreases.
func (tx Ledger) ForgetBefore(day int64) error {
	return tx.run("UPDATE usage_retention SET from_day = ? WHERE id = 1 AND from_day < ?", day, day)
}

// Purge deletes up to limit rows of each kind that belong to days before day, and returns how many.
func (tx Ledger) Purge(day int64, limit int) (int64, error) {
	before := time.Unix(day*86400, 0)
	var all int64
	for _, d := range []struct {
		statement string
		bound     any
	}{
		{`DELETE FROM usage_facts WHERE (agent_id, at, id) IN (SELECT f.agent_id, f.at, f.id
			FROM usage_accounts a CROSS JOIN usage_facts f WHERE f.agent_id = a.agent_id AND f.at < ? LIMIT ?)`, before},
		{`DELETE FROM usage_windows WHERE (agent_id, hour, path) IN
			(SELECT agent_id, hour, path FROM usage_windows WHERE hour / 24 < ? LIMIT ?)`, day},
		{`DELETE FROM usage_reservations WHERE (agent_id, id) IN
			(SELECT agent_id, id FROM usage_reservations WHERE state IN (1, 2, 3) AND due < ? LIMIT ?)`, before},
		{`DELETE FROM outcomes WHERE (agent_id, at, number) IN (SELECT o.agent_id, o.at, o.number
			FROM agents a CROSS JOIN outcomes o WHERE o.agent_id = a.id AND o.at < ? LIMIT ?)`, before},
		{`DELETE FROM usage_resets WHERE (agent_id, day, id) IN (SELECT r.agent_id, r.day, r.id FROM usage_resets r WHERE r.day < ? LIMIT ?)`, day},
		{`DELETE FROM budget_additions WHERE (agent_id, id) IN (SELECT b.agent_id, b.id FROM budget_additions b WHERE b.expires_at < ? LIMIT ?)`, before},
	} {
		n, err := tx.exec(d.statement, d.bound, limit)
		if err != nil {
			return all, err
		}
		all += n
	}
	return all, nil
}

// Rearm lets the events of an agent's budget be sent again today.
func (tx Ledger) Rearm(agentID string) error {
	return tx.run("UPDATE usage_accounts SET warned_day = -1, exceeded_day = -1 WHERE agent_id = ?", agentID)
}

// Account is the ledger row of an agent: the sums on which decisions are based. The Subtree
// sums are valid only while Subtree is set.
type Account struct {
	AgentID string `gorm:"primaryKey"`
	Level   models.Level
	// Day is the UTC day the sums belong to, in days since 1970. It does not follow a
	// clock that goes back.
	Day             int64
	Used            int64 // tokens of the day's facts
	Forgiven        int64 // the part of them that resets wrote off
	Reserved        int64 // held tokens of any day
	Subtree         bool
	SubtreeUsed     int64
	SubtreeForgiven int64
	SubtreeReserved int64
	Extra           int64     // additional budgets, until ExtraUntil
	ExtraUntil      time.Time // when Extra has to be summed up again
	WarnedDay       int64     // the last day of an agent.budget_warning, -1 for none
	ExceededDay     int64     // the last day of an agent.budget_exceeded, -1 for none
	Version         int64     // increases with each change of the sums
}

// Spender has the fields of an agent that the ledger needs, for one agent of a chain of ancestors.
type Spender struct {
	ID          string
	Level       models.Level
	ParentID    string // "" for nova
	TokenBudget *int64
	BudgetScope models.BudgetScope
	IsActive    bool
	Version     int64 // of the agent's row
}
