package store

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"comet/internal/errs"
	"comet/models"
)

// agentColumns is scanned by agentRow.
const agentColumns = `id, name, level, sphere_id, frequency_hz, capabilities, description, type, parent_id, token_budget, budget_scope,
	is_active, version, created_at, updated_at`

// agentRow is the scan target of agentColumns. Agents are read on every request,
// so they are scanned by hand, and numbers into interfaces, which the drivers
// fill with int64: database/sql takes a detour over text for every other integer.
type agentRow struct {
	id, name, capabilities, description, kind, scope string
	level, sphere, frequency, parent, budget         any
	active, version, createdAt, updatedAt            any
}

func (r *agentRow) dest() []any {
	return []any{
		&r.id, &r.name, &r.level, &r.sphere, &r.frequency, &r.capabilities, &r.description, &r.kind,
		&r.parent, &r.budget, &r.scope, &r.active, &r.version, &r.createdAt, &r.updatedAt,
	}
}

func (r *agentRow) agent() (models.Agent, error) {
	a := models.Agent{
		ID: r.id, Name: r.name, Level: models.Level(whole(r.level)), FrequencyHz: int(whole(r.frequency)), Description: r.description,
		Type: r.kind, BudgetScope: models.BudgetScope(r.scope), IsActive: truth(r.active), Version: whole(r.version),
		CreatedAt: fromMicros(whole(r.createdAt)), UpdatedAt: fromMicros(whole(r.updatedAt)),
	}
	if r.sphere != nil {
		a.SphereID = new(int(whole(r.sphere)))
	}
	if parent, ok := r.parent.(string); ok {
		a.ParentID = &parent
	}
	if r.budget != nil {
		a.TokenBudget = new(whole(r.budget))
	}
	var err error
	a.Capabilities, err = decodeStrings(r.capabilities)
	return a, err
}

// agentScanner returns a function that scans one row after the other.
func agentScanner() func(*sql.Rows) (models.Agent, error) {
	r := new(agentRow)
	dest := r.dest()
	return func(rows *sql.Rows) (models.Agent, error) {
		if err := rows.Scan(dest...); err != nil {
			return models.Agent{}, err
		}
		return r.agent()
	}
}

// Agent returns the agent with that id, or errs.NotFound.
func (s *Store) Agent(ctx context.Context, id string) (models.Agent, error) {
	var r agentRow
	err := s.pointRow(ctx, s.dialect.bind("SELECT "+agentColumns+" FROM agents WHERE id = ?"), []any{id}, r.dest()...)
	if err != nil {
		return models.Agent{}, agentMissing(err, id)
	}
	return r.agent()
}

// Ancestors returns the agents above id, its parent first and nova last; an
// empty list for nova, errs.NotFound for an unknown id.
func (s *Store) Ancestors(ctx context.Context, id string) ([]models.Agent, error) {
	chain, scan := []models.Agent{}, agentScanner()
	err := s.query(ctx, s.dialect.bind(`WITH RECURSIVE chain (cid, pid, depth) AS (
			SELECT id, parent_id, 0 FROM agents WHERE id = ?
			UNION ALL
			SELECT a.id, a.parent_id, depth + 1 FROM agents a JOIN chain ON a.id = chain.pid WHERE depth < 8)
		SELECT `+agentColumns+` FROM chain JOIN agents ON id = cid ORDER BY depth`), []any{id},
		func(rows *sql.Rows) error {
			a, err := scan(rows)
			chain = append(chain, a)
			return err
		})
	if err != nil {
		return nil, err
	}
	if len(chain) == 0 {
		return nil, errs.New(errs.NotFound, "there is no agent %q", id)
	}
	return chain[1:], nil
}

// Agent returns the agent with that id and locks it until the transaction ends,
// or errs.NotFound. Locks are taken in the order (level descending, id).
func (tx *Tx) Agent(id string) (models.Agent, error) {
	return tx.agent(id, tx.store.dialect.forUpdate)
}

// AgentExists reports whether an agent has the id, without locking it.
func (tx *Tx) AgentExists(id string) (bool, error) {
	var n int
	err := tx.queryRow("SELECT count(*) FROM agents WHERE id = ?", []any{id}, &n)
	return n > 0, err
}

// AgentShared is Agent with a lock that only keeps the row from changing, for the
// parent of an agent that is written.
func (tx *Tx) AgentShared(id string) (models.Agent, error) {
	return tx.agent(id, tx.store.dialect.forShare)
}

func (tx *Tx) agent(id, lock string) (models.Agent, error) {
	var r agentRow
	if err := tx.queryRow("SELECT "+agentColumns+" FROM agents WHERE id = ?"+lock, []any{id}, r.dest()...); err != nil {
		return models.Agent{}, agentMissing(err, id)
	}
	return r.agent()
}

// HasActiveChildren reports whether an active agent stands under id; an unknown
// id has none. The caller has locked id, so none can be added meanwhile.
func (tx *Tx) HasActiveChildren(id string) (bool, error) {
	var n int
	err := tx.queryRow("SELECT count(*) FROM (SELECT 1 FROM agents WHERE parent_id = ? AND "+
		tx.store.dialect.isTrue("is_active")+" LIMIT 1) AS c", []any{id}, &n)
	return n > 0, err
}

// LockAgents keeps every other transaction from changing agents, for writes that
// judge the tree as a whole. It must come after LockChains and before anything
// else that touches agents.
func (tx *Tx) LockAgents() error {
	if tx.store.dialect.lockAgents == "" {
		return nil
	}
	_, err := tx.exec(tx.store.dialect.lockAgents)
	return err
}

// AllAgents returns every agent, ordered by (level, id).
func (tx *Tx) AllAgents() ([]models.Agent, error) {
	var all []models.Agent
	scan := agentScanner()
	err := tx.query("SELECT "+agentColumns+" FROM agents ORDER BY level, id", nil, func(rows *sql.Rows) error {
		a, err := scan(rows)
		all = append(all, a)
		return err
	})
	return all, err
}

// InsertAgent stores a new agent. It returns errs.AgentExists when its id is
// taken and errs.Conflict when it breaks a rule of the tables: a second L0, an
// unknown parent, a frequency of another level.
func (tx *Tx) InsertAgent(a models.Agent) error {
	caps, err := encodeStrings(a.Capabilities)
	if err != nil {
		return err
	}
	n, err := tx.exec(`INSERT INTO agents (`+agentColumns+`, search_text)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
		a.ID, a.Name, int(a.Level), nullable(a.SphereID), a.FrequencyHz, caps, a.Description, a.Type,
		nullable(a.ParentID), nullable(a.TokenBudget), scopeOf(a), a.IsActive, a.Version, micros(a.CreatedAt), micros(a.UpdatedAt), searchText(a))
	if err != nil {
		return err
	}
	if n == 0 {
		return errs.New(errs.AgentExists, "an agent with the id %q already exists", a.ID)
	}
	return tx.addCapabilities(a.ID, a.Capabilities)
}

// UpdateAgent stores the changed agent over the row that Agent returned, all but
// its id, level, frequency and time of creation. It returns errs.NotFound when
// there is no such row and errs.Conflict when the change breaks a rule of the
// tables: an unknown parent, a level without its parent, sphere or budget.
//
// The caller holds LockChains where it changes parent, budget, scope or activity.
// With another scope the agent's account forgets its roll-up; the ledger counts it
// anew at its next decision.
func (tx *Tx) UpdateAgent(before, after models.Agent) error {
	caps, err := encodeStrings(after.Capabilities)
	if err != nil {
		return err
	}
	n, err := tx.exec(`UPDATE agents SET name = ?, sphere_id = ?, capabilities = ?, description = ?, type = ?, parent_id = ?,
		token_budget = ?, budget_scope = ?, is_active = ?, version = ?, updated_at = ?, search_text = ? WHERE id = ?`,
		after.Name, nullable(after.SphereID), caps, after.Description, after.Type, nullable(after.ParentID), nullable(after.TokenBudget),
		scopeOf(after), after.IsActive, after.Version, micros(after.UpdatedAt), searchText(after), after.ID)
	if err != nil {
		return err
	}
	if n == 0 {
		return agentMissing(translate(sql.ErrNoRows), after.ID)
	}
	if scopeOf(before) != scopeOf(after) {
		if _, err := tx.exec("UPDATE usage_accounts SET subtree = ? WHERE agent_id = ?", false, after.ID); err != nil {
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

// replaceCapabilities brings the index of capabilities up to a change.
func (tx *Tx) replaceCapabilities(before, after models.Agent) error {
	kept := map[string]bool{}
	for _, c := range after.Capabilities {
		kept[models.CapabilityKey(c)] = true
	}
	for _, c := range before.Capabilities {
		if key := models.CapabilityKey(c); !kept[key] {
			if _, err := tx.exec("DELETE FROM agent_capabilities WHERE capability = ? AND agent_id = ?", key, after.ID); err != nil {
				return err
			}
		}
	}
	return tx.addCapabilities(after.ID, after.Capabilities)
}

func (tx *Tx) addCapabilities(id string, capabilities []string) error {
	const most = 8 // rows a statement: few statements, and few different ones
	for chunk := range slices.Chunk(capabilities, most) {
		args := make([]any, 0, 2*most)
		for _, c := range chunk {
			args = append(args, models.CapabilityKey(c), id)
		}
		_, err := tx.exec("INSERT INTO agent_capabilities (capability, agent_id) VALUES (?, ?)"+
			strings.Repeat(", (?, ?)", len(chunk)-1)+" ON CONFLICT DO NOTHING", args...)
		if err != nil {
			return err
		}
	}
	return nil
}

// searchText joins what a search looks through with a character that none of it
// may hold, so that no match spans two of them.
func searchText(a models.Agent) string {
	return strings.ToLower(a.ID + "\x1f" + a.Name + "\x1f" + a.Description)
}

func agentMissing(err error, id string) error {
	if errs.Is(err, errs.NotFound) {
		return errs.New(errs.NotFound, "there is no agent %q", id)
	}
	return err
}
