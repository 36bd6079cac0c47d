package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/models"
)

// AgentReader reads agents, on the read pool or in a transaction.
type AgentReader struct{ from reader }

// Agents holds the operations of a transaction on agents.
type Agents struct {
	AgentReader
	*transaction
}

// Agents returns the operations on agents.
func (tx *Tx) Agents() Agents { return Agents{AgentReader{tx.reader}, &tx.transaction} }

// Agents returns the reads of agents.
func (s *Store) Agents(ctx context.Context) AgentReader { return AgentReader{s.on(ctx)} }

// BenchmarkREST in internal/bench compares reads and creations of agents with raw statements. They
// are written by hand: with gorm a page of 100 agents took twice as long and one agent 20 µs more, a
// third of a whole GET.

const agentColumns = `id, name, level, sphere_id, frequency_hz, capabilities, description, type, parent_id, token_budget, budget_scope,
	is_active, version, created_at, updated_at`

// agentDest returns the scan targets of agentColumns.
func agentDest(a *models.Agent) []any {
	return []any{
		&a.ID, &a.Name, intInto(&a.Level), intPtrInto(&a.SphereID), intInto(&a.FrequencyHz), scanStrings{&a.Capabilities}, &a.Description, &a.Type,
		&a.ParentID, intPtrInto(&a.TokenBudget), &a.BudgetScope, &a.IsActive, &a.Version, ScanTime{&a.CreatedAt}, ScanTime{&a.UpdatedAt},
	}
}

const selectAgent = "SELECT " + agentColumns + " FROM agents WHERE id = ?"

// Get returns the agent with that id, or errs.NotFound.
func (r AgentReader) Get(id string) (models.Agent, error) {
	return findAgent(r.from.point(), selectAgent, id)
}

// Lock returns the agent with that id and locks it until the transaction ends,
// or errs.NotFound. Locks are taken in the order (level descending, id).
func (tx Agents) Lock(id string) (models.Agent, error) {
	return findAgent(tx.reader, selectAgent+tx.engine.forUpdate, id)
}

// LockShared is Lock with a lock that only keeps the row from changing, for the
// parent of an agent that is written.
func (tx Agents) LockShared(id string) (models.Agent, error) {
	return findAgent(tx.reader, selectAgent+tx.engine.forShare, id)
}

func findAgent(from reader, query, id string) (models.Agent, error) {
	a, err := one(from, query, []any{id}, agentDest)
	return a, agentMissing(err, id)
}

func agentMissing(err error, id string) error { return orMissing(err, "there is no agent %q", id) }

// Exists reports whether an agent has the id, without locking it.
func (r AgentReader) Exists(id string) (bool, error) {
	return value[bool](r.from, "SELECT EXISTS (SELECT 1 FROM agents WHERE id = ?)", id)
}

// HasActiveChildren reports whether id has an active child; an unknown
// id has none. The caller has locked id, so no child can be added meanwhile.
func (r AgentReader) HasActiveChildren(id string) (bool, error) {
	return value[bool](r.from, "SELECT EXISTS (SELECT 1 FROM agents WHERE parent_id = ? AND "+r.from.engine.isTrue("is_active")+")", id)
}

// LockAll keeps every other transaction from changing agents, for writes that
// depend on the tree as a whole. It must come after LockChains and before anything
// else that touches agents.
func (tx Agents) LockAll() error { return tx.lock(lockAgents) }

// The ledger decides on chains of ancestors and the budgets and scopes on them.
// On PostgreSQL a pair of advisory locks keeps them unchanged meanwhile: a row lock on
// every ancestor would have each charge write to the root's row. On SQLite there is
// one writer and nothing to lock.

// LockChains keeps the ledger from deciding until this transaction ends, for changes
// to an agent's parent, budget, scope or activity. It must come before any lock on an
// agent.
func (tx Agents) LockChains() error { return tx.lock(lockChains) }

// ShareChains keeps parents, budgets, scopes and activity as they are until this
// transaction ends. It must come before any other lock.
func (tx Agents) ShareChains() error { return tx.lock(shareChains) }

// All returns every agent, ordered by (level, id).
func (r AgentReader) All() ([]models.Agent, error) {
	return list(r.from, selectAgents, nil, agentDest)
}

const selectAgents = "SELECT " + agentColumns + " FROM agents ORDER BY level, id"

// Each calls fn for every agent in the order (level, id), without holding
// all of them, and stops at the first error of fn, which it returns.
func (r AgentReader) Each(fn func(models.Agent) error) error {
	var a models.Agent
	dest := agentDest(&a)
	return r.from.query(selectAgents, nil, func(rows *sql.Rows) error {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		return fn(a)
	})
}

// Insert stores a new agent. It returns errs.AgentExists when its id is
// taken and errs.Conflict when it breaks a rule of the tables: a second L0, an
// unknown parent, a frequency of another level.
func (tx Agents) Insert(a models.Agent) error {
	caps, err := encodeStrings(a.Capabilities)
	if err != nil {
		return err
	}
	n, err := tx.exec(`INSERT INTO agents (`+agentColumns+`, search_text)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
		a.ID, a.Name, int(a.Level), nullable(a.SphereID), a.FrequencyHz, caps, a.Description, a.Type,
		nullable(a.ParentID), nullable(a.TokenBudget), scopeOf(a), a.IsActive, a.Version, Micros(a.CreatedAt), Micros(a.UpdatedAt), searchText(a))
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
// The caller holds LockChains where it changes parent, budget, scope or activity.
// With another scope the agent's account loses its roll-up; the ledger counts it
// again at its next decision.
func (tx Agents) Update(before, after models.Agent) error {
	caps, err := encodeStrings(after.Capabilities)
	if err != nil {
		return err
	}
	n, err := tx.exec(`UPDATE agents SET name = ?, sphere_id = ?, capabilities = ?, description = ?, type = ?, parent_id = ?,
		token_budget = ?, budget_scope = ?, is_active = ?, version = ?, updated_at = ?, search_text = ? WHERE id = ?`,
		after.Name, nullable(after.SphereID), caps, after.Description, after.Type, nullable(after.ParentID), nullable(after.TokenBudget),
		scopeOf(after), after.IsActive, after.Version, Micros(after.UpdatedAt), searchText(after), after.ID)
	if err == nil && n == 0 {
		err = agentMissing(translate(sql.ErrNoRows), after.ID)
	}
	if err != nil {
		return err
	}
	if scopeOf(before) != scopeOf(after) {
		if err := tx.each("UPDATE usage_accounts SET subtree = ? WHERE agent_id = ?", false, after.ID); err != nil {
			return err
		}
	}
	return tx.replaceCapabilities(before, after)
}

// scopeOf is an agent's budget scope as it is stored.
func scopeOf(a models.Agent) string {
	if a.BudgetScope == "" {
		return string(models.ScopeOwn)
	}
	return string(a.BudgetScope)
}

// replaceCapabilities updates the index of capabilities.
func (tx Agents) replaceCapabilities(before, after models.Agent) error {
	stays := map[string]bool{}
	for _, c := range after.Capabilities {
		stays[models.CapabilityKey(c)] = true
	}
	for _, c := range before.Capabilities {
		if key := models.CapabilityKey(c); !stays[key] {
			if err := tx.each("DELETE FROM agent_capabilities WHERE capability = ? AND agent_id = ?", key, after.ID); err != nil {
				return err
			}
		}
	}
	return tx.addCapabilities(after.ID, after.Capabilities)
}

func (tx Agents) addCapabilities(id string, capabilities []string) error {
	const most = 8 // rows a statement: few statements, and few different ones
	for chunk := range slices.Chunk(capabilities, most) {
		args := make([]any, 0, 2*most)
		for _, c := range chunk {
			args = append(args, models.CapabilityKey(c), id)
		}
		err := tx.each("INSERT INTO agent_capabilities (capability, agent_id) VALUES (?, ?)"+
			strings.Repeat(", (?, ?)", len(chunk)-1)+" ON CONFLICT DO NOTHING", args...)
		if err != nil {
			return err
		}
	}
	return nil
}

// searchText joins the searched fields with a character that none of them
// may hold, so that no match spans two of them.
func searchText(a models.Agent) string {
	return strings.ToLower(a.ID + "\x1f" + a.Name + "\x1f" + a.Description)
}

// maxChildren bounds the children listed in an agent's detail; a list filtered
// by parent_id pages through more.
const maxChildren = 1000

// Detail returns the agent with its use and activity since the UTC day of
// now began, in one statement, or errs.NotFound.
func (r AgentReader) Detail(id string, now time.Time) (models.AgentDetail, error) {
	day := now.UTC().Truncate(24 * time.Hour)
	var (
		d        models.AgentDetail
		children string
		success  int64
		total    int64
		average  sql.NullFloat64
	)
	dest := append(agentDest(&d.Agent), &d.TokensUsedToday, &children, &d.Stats.SessionsToday, &average, &success, &total)
	since := hour(day) / 24
	err := r.from.point().queryRow(detailQuery(r.from.engine), []any{id, id, id, maxChildren + 1, id, since + MaxDayAhead, since, id, Micros(day), id}, dest...)
	if err != nil {
		return d, agentMissing(err, id)
	}
	d.Children = []models.AgentRef{}
	if children != "[]" {
		if err := json.Unmarshal([]byte(children), &d.Children); err != nil {
			return d, err
		}
	}
	if len(d.Children) > maxChildren {
		d.Children, d.ChildrenTruncated = d.Children[:maxChildren], true
	}
	d.Stats.AvgResponseTimeMS = int64(math.Round(average.Float64))
	if total > 0 {
		d.Stats.SuccessRate = new(math.Round(float64(success)/float64(total)*1e4) / 1e4)
	}
	return d, nil
}

// detailQuery counts the tokens of the day of the agent's account if that is the
// one after today: the clock went back, and the ledger's day does not.
func detailQuery(on *engine) string {
	return `SELECT ` + agentColumns + `,
		(SELECT coalesce(sum(tokens), 0) FROM usage_windows WHERE agent_id = ? AND hour >= 24 * d.since AND hour < 24 * d.since + 24) -
		(SELECT coalesce(sum(own), 0) FROM usage_resets WHERE agent_id = ? AND day = d.since),
		(SELECT ` + on.childList + ` FROM (SELECT id, level FROM agents
			WHERE parent_id = ? AND ` + on.isTrue("is_active") + ` ORDER BY id LIMIT ?) AS c),
		o.sessions, o.average, o.successes, o.total
		FROM agents
		CROSS JOIN (SELECT coalesce((SELECT day FROM usage_accounts WHERE agent_id = ? AND day = ?), ?) AS since) AS d
		CROSS JOIN (SELECT count(DISTINCT session_id) AS sessions, avg(duration_ms) AS average,
			coalesce(sum(CASE WHEN status = 'success' THEN 1 ELSE 0 END), 0) AS successes,
			coalesce(sum(CASE WHEN status <> 'cancelled' THEN 1 ELSE 0 END), 0) AS total
			FROM outcomes WHERE agent_id = ? AND at >= ?) AS o
		WHERE id = ?`
}

const numberOfAgent = "SELECT number FROM v5_agent_numbers WHERE agent_id = ?"

// AssignNumber returns the number of an agent and assigns the next number to an agent that has
// none; it never changes. An unknown agent is errs.Conflict.
func (tx Agents) AssignNumber(agentID string) (n int64, err error) {
	for {
		if err = tx.queryRow(numberOfAgent, []any{agentID}, &n); !errs.Is(err, errs.NotFound) {
			return n, err
		}
		// If two transactions insert the same number, one of them inserts nothing and tries again.
		err = tx.each(`INSERT INTO v5_agent_numbers (number, agent_id) SELECT COALESCE(MAX(number), 0) + 1, CAST(? AS TEXT) FROM v5_agent_numbers
			WHERE true ON CONFLICT DO NOTHING`, agentID)
		if err != nil {
			return 0, err
		}
	}
}

// Number returns the number of an agent, or errs.NotFound if it has none yet.
func (r AgentReader) Number(agentID string) (int64, error) {
	return value[int64](r.from, numberOfAgent, agentID)
}

// Numbers returns the numbers of agents, without those that have none yet.
func (r AgentReader) Numbers(agentIDs []string) (numbers map[string]int64, err error) {
	numbers = make(map[string]int64, len(agentIDs))
	err = EachKeys(anys(agentIDs), 1, func(keys string, args []any) error {
		return r.from.query("SELECT agent_id, number FROM v5_agent_numbers WHERE agent_id IN "+keys, args, scanSums(numbers))
	})
	return numbers, err
}

// OfNumber returns the id of the agent with a number, or errs.NotFound.
func (r AgentReader) OfNumber(number int64) (string, error) {
	return value[string](r.from, "SELECT agent_id FROM v5_agent_numbers WHERE number = ?", number)
}
