// Package registry manages the agents: a tree with one root and four levels, and its rules (CHE·NU
// §2-§6). Every operation is one transaction that also writes its audit entry and its event.
package registry

import (
	"cmp"
	"context"

	"comet/internal/errs"
	"comet/internal/registry/roster"
	"comet/models"
	"comet/store"
)

// Options configures New; nil is the zero value.
type Options struct {
	// StrictCapabilities rejects capabilities that are neither predefined nor prefixed
	// with custom:, instead of returning warnings (CHE·NU §6.2).
	StrictCapabilities bool
}

// Registry stores and changes agents. It is safe for concurrent use.
type Registry struct {
	store   *store.Store
	opts    Options
	lineage lineage
	changed func(models.Agent)
}

// New returns a registry over the store.
func New(s *store.Store, opts *Options) *Registry {
	return &Registry{store: s, opts: *cmp.Or(opts, &Options{}), lineage: lineage{turn: make(chan struct{}, 1)}, changed: func(models.Agent) {}}
}

// OnChange sets the function that receives each agent that the registry has stored, after the commit. The writer waits for
// it. OnChange must be called at most once, before the registry is used.
func (r *Registry) OnChange(changed func(models.Agent)) { r.changed = changed }

// Get returns an agent with children, today's use and statistics (CHE·NU §2.5), or errs.NotFound.
func (r *Registry) Get(ctx context.Context, id string) (models.AgentDetail, error) {
	return r.store.Agents(ctx).Detail(id, r.store.Now())
}

// List returns a page of agents (CHE·NU §2.1).
func (r *Registry) List(ctx context.Context, q store.AgentQuery) (store.AgentPage, error) {
	return r.store.Agents(ctx).List(q)
}

// Confine returns errs.ForeignAgent if a principal is bound to an agent and id is neither that agent nor
// one below it.
func (r *Registry) Confine(ctx context.Context, by models.Principal, id string) error {
	return r.store.Agents(ctx).Confine(by, id)
}

// Ancestors returns the agents above id, its parent first, or errs.NotFound.
func (r *Registry) Ancestors(ctx context.Context, id string) ([]models.Agent, error) {
	return r.store.Agents(ctx).Ancestors(id)
}

// Chains returns the chain of each agent that exists: the agent itself and the agents above it. The chains are at most a
// second old. The result must not be modified.
func (r *Registry) Chains(ctx context.Context, ids []string) (map[string][]string, error) {
	return r.lineage.read(ctx, r.store, ids)
}

// AuditTrail returns up to limit entries of the agent's audit log, newest first, before the
// entry with the id before (0 starts with the newest), or errs.NotFound.
func (r *Registry) AuditTrail(ctx context.Context, id string, before int64, limit int) ([]models.AuditEntry, error) {
	if _, err := r.store.Agents(ctx).Get(id); err != nil {
		return nil, err
	}
	return r.store.Agents(ctx).AuditTrail(id, before, limit)
}

// Node is an agent with the agents below it.
type Node struct {
	models.Agent
	Children []*Node
}

// MaxTree is the maximum number of agents in a hierarchy.
const MaxTree = 50_000

// Hierarchy returns the tree from root down to depth levels below it, and how
// many agents it contains, or errs.NotFound; errs.InvalidParameter if there are more than
// MaxTree. activeOnly leaves out inactive agents and the agents below them.
func (r *Registry) Hierarchy(ctx context.Context, root string, depth int, activeOnly bool) (*Node, int, error) {
	agents, err := r.store.Agents(ctx).Subtree(root, depth, activeOnly, MaxTree+1)
	if err == nil && len(agents) > MaxTree {
		err = tooWide("a hierarchy", root, MaxTree)
	}
	if err != nil {
		return nil, 0, err
	}
	nodes := make(map[string]*Node, len(agents))
	for _, a := range agents { // parents come before their children
		n := &Node{Agent: a, Children: []*Node{}}
		nodes[a.ID] = n
		if a.ID != root && a.ParentID != nil {
			above := nodes[*a.ParentID]
			above.Children = append(above.Children, n)
		}
	}
	return nodes[root], len(agents), nil
}

// Export returns the agents from root down, ordered by level and id, or errs.NotFound; or
// errs.InvalidParameter for more than a roster may list, because it could not be imported.
func (r *Registry) Export(ctx context.Context, root string) ([]models.Agent, error) {
	agents, err := r.store.Agents(ctx).Subtree(root, int(models.LevelAssistant), false, roster.MaxAgents+1)
	if err == nil && len(agents) > roster.MaxAgents {
		err = tooWide("a roster", root, roster.MaxAgents)
	}
	return agents, err
}

func tooWide(what, root string, most int) error {
	e := errs.New(errs.InvalidParameter, "%s may contain at most %d agents, and there are more below %q; use root to request a part of the tree", what, most, root)
	e.Fields = []errs.Field{{Parameter: "root", Rule: "max", Detail: e.Detail}}
	return e
}

// requireRank rejects a principal that may not change agents of the level: L0 and L1 require admin.
func requireRank(by models.Principal, level models.Level) error {
	if level > models.LevelOrchestrator || by.Has(models.ScopeAdmin) {
		return nil
	}
	return errs.New(errs.MissingScope, "creating or changing an L%d agent needs the scope %q", level, models.ScopeAdmin).With("scope", models.ScopeAdmin)
}

// authorize returns errs.ForeignAgent if a principal that is bound to an agent may not make a change:
// of an agent that is not below its own, to such a parent, or of its own budget, parent, state or
// SelfRegistered. before is nil for a new agent.
func authorize(confine func(models.Principal, string) error, by models.Principal, before *models.Agent, after models.Agent) error {
	if by.AgentID == nil {
		return nil
	}
	if before != nil {
		if err := confine(by, before.ID); err != nil {
			return err
		}
		own := before.ID == *by.AgentID
		if own && (deref(before.ParentID) != deref(after.ParentID) || deref(before.TokenBudget) != deref(after.TokenBudget) ||
			before.BudgetScope != after.BudgetScope || before.IsActive != after.IsActive || before.SelfRegistered != after.SelfRegistered) {
			return errs.New(errs.ForeignAgent, "this token is bound to the agent %q and may not change its parent_id, token_budget, budget_scope, is_active or self_registered", before.ID)
		}
		if deref(before.ParentID) == deref(after.ParentID) {
			return nil
		}
	}
	return confine(by, *cmp.Or(after.ParentID, new("")))
}

type (
	// AgentQuery selects the agents that List returns.
	AgentQuery = store.AgentQuery
	// AgentPosition is a position in the list of agents.
	AgentPosition = store.AgentPosition
	// AgentPage is a page of the list of agents.
	AgentPage = store.AgentPage
)

// orchestrators are the nine L1 agents by sphere (CHE·NU §1, §3.1).
var orchestrators = [...]struct{ id, name string }{
	{"orch-personnel", "Personnel"},
	{"orch-business", "Business"},
	{"orch-government", "Government"},
	{"orch-creative-studio", "Creative Studio"},
	{"orch-community", "Community"},
	{"orch-social", "Social"},
	{"orch-entertainment", "Entertainment"},
	{"orch-my-team", "My Team"},
	{"orch-scholar", "Scholar"},
}

// Bootstrap creates nova and the nine orchestrators where they are missing. Replicas may run it together.
func (r *Registry) Bootstrap(ctx context.Context) error {
	err := r.store.Write(ctx, func(tx *store.Tx) error {
		for _, a := range founders() {
			exists, err := tx.Agents().Exists(a.ID)
			if err == nil && !exists {
				a.CreatedAt, a.UpdatedAt = tx.Now(), tx.Now()
				err = r.insert(ctx, tx, models.System(), a)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if errs.Is(err, errs.AgentExists) {
		return r.Bootstrap(ctx) // another replica has just created one
	}
	return err
}

// founders are the ten agents every registry has, parents first.
func founders() []models.Agent {
	all := []models.Agent{{
		ID: models.RootAgentID, Name: "NOVA", Level: models.LevelSystem, FrequencyHz: 999, Capabilities: []string{},
		Description: "L0 System agent, root of the hierarchy", BudgetScope: models.ScopeOwn, IsActive: true, Version: 1,
	}}
	for i, o := range orchestrators {
		all = append(all, models.Agent{
			ID: o.id, Name: o.name + " Orchestrator", Level: models.LevelOrchestrator, SphereID: new(i + 1), FrequencyHz: 888,
			Capabilities: []string{}, Description: "L1 Orchestrator of the " + o.name + " sphere",
			ParentID: new(models.RootAgentID), TokenBudget: models.LevelOrchestrator.DefaultBudget(), BudgetScope: models.ScopeOwn,
			IsActive: true, Version: 1,
		})
	}
	return all
}
