package api

import (
	"net/http"
	"strconv"

	"comet/internal/registry"
	"comet/internal/usage"
	"comet/models"
)

// hierarchyNode is an agent with the agents below it (CHE·NU §3.1).
type hierarchyNode struct {
	ID          string          `json:"id" example:"orch-personnel"`
	Name        string          `json:"name" example:"Personnel Orchestrator"`
	Level       models.Level    `json:"level" example:"1"`
	SphereID    *int            `json:"sphere_id" example:"1"` // Null only for L0.
	FrequencyHz int             `json:"frequency_hz" example:"888"`
	IsActive    bool            `json:"is_active" example:"true"`
	Usage       *nodeUsage      `json:"usage,omitempty"` // Only where it was asked for.
	Children    []hierarchyNode `json:"children"`
}

// nodeUsage is what an agent in the tree may use and used today (CHE·NU §5).
type nodeUsage struct {
	TokenBudget *int64 `json:"token_budget" example:"25000"` // Tokens a UTC day. Null is unlimited, only for L0.
	// AdditionalBudget is what temporary additions add to it today.
	AdditionalBudget int64              `json:"additional_budget,omitempty" example:"50000"`
	BudgetScope      models.BudgetScope `json:"budget_scope" example:"own" enums:"own,subtree"`
	// UsedToday is what the agent itself used, less what a reset wrote off.
	UsedToday int64 `json:"used_today" example:"12500"`
	// SubtreeUsedToday is the sum of today's facts of the agent and of those that
	// stood below it when they spent; no reset changes it.
	SubtreeUsedToday int64 `json:"subtree_used_today" example:"19400"`
}

// hierarchy is the tree of agents, or a part of it.
type hierarchy struct {
	Root  hierarchyNode `json:"root"`
	Total int           `json:"total" example:"287"` // How many agents the answer holds.
}

// agentAncestry is the chain of command above an agent.
type agentAncestry struct {
	AgentID   string         `json:"agent_id" example:"budget-assistant"`
	Ancestors []ancestorView `json:"ancestors"` // The parent first, nova last.
}

// ancestorView is one agent in a chain of command.
type ancestorView struct {
	ID       string       `json:"id" example:"finance-personal"`
	Name     string       `json:"name" example:"Personal Finance Agent"`
	Level    models.Level `json:"level" example:"2"`
	IsActive bool         `json:"is_active" example:"true"`
}

// auditLog is a page of an agent's history, newest first.
type auditLog struct {
	AgentID    string              `json:"agent_id" example:"finance-personal"`
	Entries    []models.AuditEntry `json:"entries"`
	NextCursor string              `json:"next_cursor,omitempty" example:"NDE"` // Absent on the last page.
}

// getHierarchy returns the tree of agents (CHE·NU §3).
//
//	@Summary		Get the hierarchy
//	@Description	The whole tree from `nova`, or the part below `root`, cut off `depth` levels below it. It holds at most 50,000 agents. With `usage` every agent comes with its budget and with what it and its subtree used today.
//	@ID				getHierarchy
//	@Tags			hierarchy
//	@Produce		json
//	@Security		BearerAuth[agents:read]
//	@Param			root			query	string	false	"The agent to begin at"	maxlength(64)	default(nova)
//	@Param			depth			query	int		false	"How many levels below the root"	minimum(0)	maximum(3)	default(3)
//	@Param			active_only		query	bool	false	"Leave out inactive agents"	default(false)
//	@Param			usage			query	bool	false	"Add what each agent and its subtree used today"	default(false)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	hierarchy	"The tree"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		400	"A parameter is unknown or out of range"
//	@Failure		404	"No such root"
//	@Router			/api/v1/hierarchy [get]
func (s *Server) getHierarchy(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "root", "depth", "active_only", "usage")
	root := rosterRoot(q)
	depth, active := q.Int("depth", 0, int(models.LevelAssistant), int(models.LevelAssistant)), q.Bool("active_only")
	withUsage := q.Bool("usage")
	if err := q.Err(); err != nil {
		return err
	}
	node, total, err := s.registry.Hierarchy(r.Context(), root, depth, active)
	if err != nil {
		return err
	}
	out := hierarchy{newHierarchyNode(node), total}
	if withUsage {
		used, err := s.usage.Tree(r.Context())
		if err != nil {
			return err
		}
		out.Root.addUsage(node, used)
	}
	return s.writeJSON(w, r, http.StatusOK, out)
}

// addUsage tells of the node, which is that of n, and of those below it what they
// used.
func (h *hierarchyNode) addUsage(n *registry.Node, used usage.TreeUsage) {
	h.Usage = &nodeUsage{n.TokenBudget, used.Additional[n.ID], n.BudgetScope, used.Used[n.ID], used.SubtreeUsed[n.ID]}
	for i, c := range n.Children {
		h.Children[i].addUsage(c, used)
	}
}

func newHierarchyNode(n *registry.Node) hierarchyNode {
	out := hierarchyNode{
		ID: n.ID, Name: n.Name, Level: n.Level, SphereID: n.SphereID, FrequencyHz: n.FrequencyHz,
		IsActive: n.IsActive, Children: make([]hierarchyNode, len(n.Children)),
	}
	for i, c := range n.Children {
		out.Children[i] = newHierarchyNode(c)
	}
	return out
}

// listAncestors returns the chain of command above an agent.
//
//	@Summary		List an agent's ancestors
//	@Description	The chain of command: the parent first, `nova` last; empty for `nova`.
//	@ID				listAncestors
//	@Tags			hierarchy
//	@Produce		json
//	@Security		BearerAuth[agents:read]
//	@Param			agent_id		path	string	true	"The agent's id"	maxlength(64)	example(budget-assistant)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	agentAncestry	"The chain"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		404	"No such agent"
//	@Router			/api/v1/agents/{agent_id}/ancestors [get]
func (s *Server) listAncestors(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "agent_id")
	if err != nil {
		return err
	}
	above, err := s.registry.Ancestors(r.Context(), id)
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, agentAncestry{id, newChain(above)})
}

func newChain(agents []models.Agent) []ancestorView {
	chain := make([]ancestorView, len(agents))
	for i, a := range agents {
		chain[i] = ancestorView{a.ID, a.Name, a.Level, a.IsActive}
	}
	return chain
}

// listAuditEntries returns an agent's history.
//
//	@Summary		List an agent's audit trail
//	@Description	Who changed what, when, from what to what; newest first. What operators did about the agent's budget and usage is told with the `reason` they gave, at the version the agent had.
//	@ID				listAuditEntries
//	@Tags			agents
//	@Produce		json
//	@Security		BearerAuth[agents:read]
//	@Param			agent_id		path	string	true	"The agent's id"	maxlength(64)	example(finance-personal)
//	@Param			limit			query	int		false	"Size of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param			cursor			query	string	false	"Where the page begins, as given by the page before"	maxlength(100)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	auditLog	"One page"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Link
//	@Success		304	"Nothing changed"
//	@Failure		400	"A parameter is unknown or out of range"
//	@Failure		404	"No such agent"
//	@Router			/api/v1/agents/{agent_id}/audit [get]
func (s *Server) listAuditEntries(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "limit", "cursor")
	id, err := decodeID(r, "agent_id")
	if err != nil {
		return err
	}
	limit, before := q.Int("limit", 1, maxLimit, defaultLimit), q.numberCursor()
	if err := q.Err(); err != nil {
		return err
	}
	entries, err := s.registry.AuditTrail(r.Context(), id, before, limit+1)
	if err != nil {
		return err
	}
	page := auditLog{AgentID: id, Entries: entries}
	if len(entries) > limit {
		page.Entries = entries[:limit]
		page.NextCursor = encodeCursor(strconv.FormatInt(page.Entries[limit-1].ID, 10))
		w.Header().Set("Link", links(r, page.NextCursor))
	}
	return s.writeJSON(w, r, http.StatusOK, page)
}
