package api

import (
	"strconv"

	"comet/internal/registry"
	"comet/internal/usage"
	"comet/models"
)

// hierarchyNode is an agent with the agents below it (CHE·NU §3.1).
type hierarchyNode struct {
	ID          string          `json:"id" example:"orch-personnel"`           // The agent's id.
	Name        string          `json:"name" example:"Personnel Orchestrator"` // The display name.
	Level       models.Level    `json:"level" example:"1"`                     // The level, 0 to 3.
	SphereID    *int            `json:"sphere_id" example:"1"`                 // The sphere; null only for L0.
	FrequencyHz int             `json:"frequency_hz" example:"888"`            // The frequency in Hz.
	IsActive    bool            `json:"is_active" example:"true"`              // Whether the agent is active.
	Usage       *nodeUsage      `json:"usage,omitempty"`                       // Only if the request has `usage=true`.
	Children    []hierarchyNode `json:"children"`                              // The agents directly below.
}

// nodeUsage is an agent's budget and its usage of today (CHE·NU §5).
type nodeUsage struct {
	TokenBudget *int64 `json:"token_budget" example:"25000"` // Tokens per UTC day. Null means unlimited, only for L0.
	// Tokens that temporary budgets add today.
	AdditionalBudget int64              `json:"additional_budget,omitempty" example:"50000"`
	BudgetScope      models.BudgetScope `json:"budget_scope" example:"own" enums:"own,subtree"` // Whose use counts against the budget.
	// Tokens that the agent itself used today, less those that were reset.
	UsedToday int64 `json:"used_today" example:"12500"`
	// Tokens that the agent and the agents below it at the time used today. A reset does not change
	// it.
	SubtreeUsedToday int64 `json:"subtree_used_today" example:"19400"`
}

// hierarchy is the tree of agents, or a part of it.
type hierarchy struct {
	Root  hierarchyNode `json:"root"`
	Total int           `json:"total" example:"287"` // Number of agents in the response.
}

// agentAncestry is the list of agents above an agent.
type agentAncestry struct {
	AgentID   string         `json:"agent_id" example:"budget-assistant"`
	Ancestors []ancestorView `json:"ancestors"` // From the parent to nova.
}

// ancestorView is an agent above another.
type ancestorView struct {
	ID       string       `json:"id" example:"finance-personal"`         // The agent's id.
	Name     string       `json:"name" example:"Personal Finance Agent"` // The display name.
	Level    models.Level `json:"level" example:"2"`                     // The level, 0 to 3.
	IsActive bool         `json:"is_active" example:"true"`              // Whether the agent is active.
}

// auditLog is a page of an agent's audit log, newest first.
type auditLog struct {
	AgentID    string              `json:"agent_id" example:"finance-personal"`
	Entries    []models.AuditEntry `json:"entries"`                             // The entries on the page.
	NextCursor string              `json:"next_cursor,omitempty" example:"NDE"` // Absent on the last page.
}

// getHierarchy returns the tree of agents (CHE·NU §3).
//
//	@Summary		Get the hierarchy
//	@Description	Returns the tree of agents from `root`, `depth` levels deep, with at most 50,000 agents. With `usage=true` each agent has its budget and the tokens that it and its subtree used today.
//	@Param			root			query	string	false	"Id of the agent at the top of the tree"	maxlength(64)	default(nova)
//	@Param			depth			query	int		false	"Number of levels below the root"	minimum(0)	maximum(3)	default(3)
//	@Param			active_only		query	bool	false	"Whether to omit inactive agents"	default(false)
//	@Param			usage			query	bool	false	"Whether to include budgets and today's usage"	default(false)
//	@Success		200	{object}	hierarchy	"The tree"
//	@Failure		404	"The root does not exist"
func (s *Server) getHierarchy(r request) (any, error) {
	q := newQuery(r.Request, "root", "depth", "active_only", "usage")
	root := rosterRoot(q, r.caller)
	depth, active := q.Int("depth", 0, int(models.LevelAssistant), int(models.LevelAssistant)), q.Bool("active_only")
	withUsage := q.Bool("usage")
	if err := q.Err(); err != nil {
		return nil, err
	}
	if err := s.core.Registry.Confine(r.Context(), r.caller, root); err != nil {
		return nil, err
	}
	node, total, err := s.core.Registry.Hierarchy(r.Context(), root, depth, active)
	if err != nil {
		return nil, err
	}
	out := hierarchy{newHierarchyNode(node), total}
	if withUsage {
		used, err := s.core.Usage.Tree(r.Context())
		if err != nil {
			return nil, err
		}
		out.Root.addUsage(node, used)
	}
	return out, nil
}

// addUsage sets the usage of h, which is the node n, and of the nodes below it.
func (h *hierarchyNode) addUsage(n *registry.Node, used usage.TreeUsage) {
	h.Usage = &nodeUsage{n.TokenBudget, used.Additional[n.ID], n.BudgetScope, used.Used[n.ID], used.SubtreeUsed[n.ID]}
	for i, c := range n.Children {
		h.Children[i].addUsage(c, used)
	}
}

func newHierarchyNode(n *registry.Node) hierarchyNode {
	return hierarchyNode{
		ID: n.ID, Name: n.Name, Level: n.Level, SphereID: n.SphereID, FrequencyHz: n.FrequencyHz,
		IsActive: n.IsActive, Children: views(n.Children, newHierarchyNode),
	}
}

// listAncestors lists the agents above an agent.
//
//	@Summary		List an agent's ancestors
//	@Description	Returns the agents above an agent, from its parent to `nova`; for `nova` the list is empty.
//	@Success		200	{object}	agentAncestry	"The agents above"
func (s *Server) listAncestors(r request) (any, error) {
	above, err := s.core.Registry.Ancestors(r.Context(), r.id)
	return agentAncestry{r.id, views(above, newAncestorView)}, err
}

func newAncestorView(a models.Agent) ancestorView {
	return ancestorView{a.ID, a.Name, a.Level, a.IsActive}
}

// listAuditEntries lists the changes of an agent.
//
//	@Summary		List an agent's audit log
//	@Description	Returns the changes of an agent, newest first: when, by which token, and the old and new values. Operations on the agent's budget and usage are included with their `reason` and do not change the version.
//	@Success		200	{object}	auditLog	"A page of results"
func (s *Server) listAuditEntries(r request) (any, error) {
	q := newQuery(r.Request, "limit", "cursor")
	limit, before := q.pageLimit(), q.numberCursor()
	if err := q.Err(); err != nil {
		return nil, err
	}
	entries, err := s.core.Registry.AuditTrail(r.Context(), r.id, before, limit+1)
	entries, next := cutPage(entries, limit, func(e models.AuditEntry) string { return strconv.FormatInt(e.ID, 10) })
	return reply{next: next, body: auditLog{r.id, entries, next}}, err
}
