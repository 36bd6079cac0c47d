package store

import (
	"cmp"
	"database/sql"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/models"
	"comet/store/columns"
	"comet/store/sqlerr"
)

// BenchmarkREST in internal/bench compares reads and creations of agents with raw statements. They
// are written by hand: with gorm a page of 100 agents took twice as long and one agent 20 µs more, a
// third of a whole GET.

// storedAgent is an agent with the column that is only searched.
type storedAgent struct {
	models.Agent
	SearchText string
}

// TableName implements gorm's schema.Tabler.
func (storedAgent) TableName() string { return "agents" }

// storedAgentOf returns the row of an agent.
func storedAgentOf(a models.Agent) storedAgent {
	a.BudgetScope = cmp.Or(a.BudgetScope, models.ScopeOwn)
	// A match never spans two searched fields, because no field may contain this character.
	return storedAgent{a, strings.ToLower(a.ID + "\x1f" + a.Name + "\x1f" + a.Description)}
}

// Get returns the agent with that id, or errs.NotFound.
func (r agentReader) Get(id string) (models.Agent, error) {
	return findAgent(r.point(), id, "")
}

// Lock returns the agent with that id and locks it until the transaction ends,
// or errs.NotFound. Locks are taken in the order (level descending, id).
func (tx Agents) Lock(id string) (models.Agent, error) {
	return findAgent(tx.reader, id, tx.engine.forUpdate)
}

// LockShared is Lock with a lock that only keeps the row from changing, for the
// parent of an agent that is written.
func (tx Agents) LockShared(id string) (models.Agent, error) {
	return findAgent(tx.reader, id, tx.engine.forShare)
}

func findAgent(from reader, id, lock string) (models.Agent, error) {
	a, err := one[models.Agent](from, selectRows[models.Agent]("WHERE id = ?")+lock, id)
	return a, agentMissing(err, id)
}

func agentMissing(err error, id string) error { return orMissing(err, "there is no agent %q", id) }

// Exists reports whether an agent has the id, without locking it.
func (r agentReader) Exists(id string) (bool, error) {
	return one[bool](r.reader, "SELECT EXISTS (SELECT 1 FROM agents WHERE id = ?)", id)
}

// HasActiveChildren reports whether id has an active child; an unknown
// id has none. The caller has locked id, so no child can be added meanwhile.
func (r agentReader) HasActiveChildren(id string) (bool, error) {
	return one[bool](r.reader, "SELECT EXISTS (SELECT 1 FROM agents WHERE parent_id = ? AND is_active = TRUE)", id)
}

// LockAll keeps every other transaction from changing agents, for writes that depend on the tree as
// a whole. It must come after LockChains and before anything else that touches agents.
func (tx Agents) LockAll() error { return tx.lock(lockAgents) }

// The ledger decides on chains of ancestors and the budgets and scopes on them. On PostgreSQL a
// pair of advisory locks keeps them unchanged meanwhile: a row lock on every ancestor would have
// each charge write to the root's row. On SQLite there is one writer and nothing to lock.

// LockChains keeps the ledger from deciding until this transaction ends, for changes to an agent's
// parent, budget, scope or activity. It must come before any lock on an agent.
func (tx Agents) LockChains() error { return tx.lock(lockChains) }

// ShareChains keeps parents, budgets, scopes and activity as they are until this
// transaction ends. It must come before any other lock.
func (tx Agents) ShareChains() error { return tx.lock(shareChains) }

// All returns every agent, ordered by (level, id).
func (r agentReader) All() ([]models.Agent, error) {
	return list[models.Agent](r.reader, selectRows[models.Agent]("ORDER BY level, id"))
}

// Each calls fn for every agent in the order (level, id), without holding
// all of them, and stops at the first error of fn, which it returns.
func (r agentReader) Each(fn func(models.Agent) error) error {
	return each(r.reader, fn, selectRows[models.Agent]("ORDER BY level, id"))
}

// Insert stores a new agent. It returns errs.AgentExists when its id is
// taken and errs.Conflict when it breaks a rule of the tables: a second L0, an
// unknown parent, a frequency of another level.
func (tx Agents) Insert(a models.Agent) error {
	n, err := createOne(tx.reader, "ON CONFLICT (id) DO NOTHING", storedAgentOf(a))
	if err != nil {
		return err
	}
	if n == 0 {
		return errs.New(errs.AgentExists, "an agent with the id %q already exists", a.ID)
	}
	return tx.addCapabilities(a.ID, a.Capabilities)
}

// Update stores the changed agent over the row that Lock returned, all but
// its id, level, frequency and time of creation. It returns errs.NotFound when
// there is no such row and errs.Conflict when the change breaks a rule of the
// tables: an unknown parent, a level without its parent, sphere or budget.
//
// The caller holds LockChains where it changes parent, budget, scope or activity. With another
// scope the agent's account loses its roll-up; the ledger counts it again at its next decision.
func (tx Agents) Update(before, after models.Agent) error {
	row := storedAgentOf(after)
	n, err := update(tx.reader, row, columns.Except[storedAgent]("id", "level", "frequency_hz", "created_at"), "id = ?", after.ID)
	if err == nil && n == 0 {
		err = agentMissing(sqlerr.Translate(sql.ErrNoRows), after.ID)
	}
	if err != nil {
		return err
	}
	if storedAgentOf(before).BudgetScope != row.BudgetScope {
		if err := tx.run("UPDATE usage_accounts SET subtree = ? WHERE agent_id = ?", false, after.ID); err != nil {
			return err
		}
	}
	return tx.replaceCapabilities(before, after)
}

// replaceCapabilities updates the index of capabilities.
func (tx Agents) replaceCapabilities(before, after models.Agent) error {
	stays := map[string]bool{}
	for _, c := range after.Capabilities {
		stays[models.CapabilityKey(c)] = true
	}
	for _, c := range before.Capabilities {
		if key := models.CapabilityKey(c); !stays[key] {
			if err := tx.run("DELETE FROM agent_capabilities WHERE capability = ? AND agent_id = ?", key, after.ID); err != nil {
				return err
			}
		}
	}
	return tx.addCapabilities(after.ID, after.Capabilities)
}

func (tx Agents) addCapabilities(id string, capabilities []string) error {
	args := make([]any, 0, 2*len(capabilities))
	for _, c := range capabilities {
		args = append(args, models.CapabilityKey(c), id)
	}
	return tx.insertRows("INSERT INTO agent_capabilities (capability, agent_id)", "ON CONFLICT DO NOTHING", 2, args)
}

// maxChildren bounds the children listed in an agent's detail; a list filtered
// by parent_id pages through more.
const maxChildren = 1000

// Detail returns the agent with its use and activity since the UTC day of
// now began, in one statement, or errs.NotFound.
func (r agentReader) Detail(id string, now time.Time) (models.AgentDetail, error) {
	day := now.UTC().Truncate(24 * time.Hour)
	since := hour(day) / 24
	row, err := one[agentDetailRow](r.point(), r.engine.detail, id, id, id, maxChildren+1, id, day, id, day, id, since+MaxDayAhead, since, id)
	d := models.AgentDetail{Agent: row.Agent, TokensUsedToday: row.TokensUsedToday, Children: row.Children}
	if err != nil {
		return d, agentMissing(err, id)
	}
	if len(d.Children) > maxChildren {
		d.Children, d.ChildrenTruncated = d.Children[:maxChildren], true
	}
	if len(row.Outcomes) == 4 {
		d.Stats.SessionsToday = int64(row.Outcomes[0])
		if average := row.Outcomes[1]; average >= 0 {
			d.Stats.AvgResponseTimeMS = new(int64(math.Round(average)))
		}
		if total := row.Outcomes[3]; total > 0 {
			d.Stats.SuccessRate = new(math.Round(row.Outcomes[2]/total*1e4) / 1e4)
		}
	}
	return d, nil
}

// agentDetailRow is a row of detailQuery.
type agentDetailRow struct {
	models.Agent
	TokensUsedToday int64
	Children        []models.AgentRef `gorm:"serializer:json"`
	Outcomes        []float64         `gorm:"serializer:json"` // sessions, average or -1, successes, total; nil for none
}

// detailQuery counts the tokens of the account's day if that is the day after today: the clock may go
// back, but the day of the ledger does not. Agents of the last level have
// no children, and most agents have no outcomes: counting distinct sessions needs a temporary index.
func detailQuery(on *engine) string {
	return `SELECT ` + columns.List[models.Agent]() + `,
		(SELECT coalesce(sum(tokens), 0) FROM usage_windows WHERE agent_id = ? AND hour >= 24 * d.since AND hour < 24 * d.since + 24) -
		(SELECT coalesce(sum(own), 0) FROM usage_resets WHERE agent_id = ? AND day = d.since),
		CASE WHEN level < 3 THEN (SELECT ` + on.childList + ` FROM (SELECT id, level FROM agents
			WHERE parent_id = ? AND is_active = TRUE ORDER BY id LIMIT ?) AS c) ELSE '[]' END,
		CASE WHEN EXISTS (SELECT 1 FROM outcomes WHERE agent_id = ? AND at >= ?) THEN
			(SELECT ` + on.array + `(count(DISTINCT session_id), coalesce(avg(duration_ms), -1),
				sum(CASE WHEN status = 'success' THEN 1 ELSE 0 END), sum(CASE WHEN status <> 'cancelled' THEN 1 ELSE 0 END))
			FROM outcomes WHERE agent_id = ? AND at >= ?) END
		FROM agents
		CROSS JOIN (SELECT coalesce((SELECT day FROM usage_accounts WHERE agent_id = ? AND day = ?), ?) AS since) AS d
		WHERE id = ?`
}

// Audit writes an entry of an agent's audit log; the store sets its id and time. The statement is
// written by hand, because every change of an agent runs it (BenchmarkREST in internal/bench).
func (tx Agents) Audit(e models.AuditEntry) error {
	e.At = tx.now
	return create(tx.reader, "", e)
}

// AuditTrail returns up to limit entries of an agent's audit log, newest first,
// before the entry with the id before (0 starts at the newest). It is empty for an
// agent without entries, known or not.
func (r agentReader) AuditTrail(agentID string, before int64, limit int) ([]models.AuditEntry, error) {
	entries, db := []models.AuditEntry{}, r.db().Where("agent_id = ?", agentID).Order("id DESC").Limit(limit)
	if before > 0 {
		db = db.Where("id < ?", before)
	}
	return entries, db.Find(&entries).Error
}

// AddOutcomes records outcomes in few statements. For an unknown agent or status, or a negative duration, this call, a
// later statement or the commit returns errs.Conflict.
func (tx Agents) AddOutcomes(outcomes []OutcomeRow) error {
	return create(tx.reader, "", convert(outcomes, func(o OutcomeRow) outcomeRow {
		return outcomeRow{o, rand.Int64()} //nolint:gosec // it only makes the key unique
	})...)
}

// outcomeRow is an outcome; its random number distinguishes outcomes of an agent with the same time.
type outcomeRow struct {
	OutcomeRow

	Number int64
}

// OutcomeRow is the outcome of one piece of an agent's work.
type OutcomeRow struct {
	AgentID   string
	SessionID string
	Status    string // an outcome of package usage
	// DurationMS is nil if it was not measured.
	DurationMS *int64
	At         time.Time
}
