package api

import (
	"bytes"
	"cmp"
	"net/http"
	"strconv"
	"strings"

	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/input"
	"comet/internal/registry"
	"comet/internal/registry/roster"
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
	Reserved         int64 `json:"reserved,omitempty" example:"2000"` // Tokens of its reservations; only in a list of agents.
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
	h.Usage = newNodeUsage(n.ID, n.TokenBudget, n.BudgetScope, used)
	for i, c := range n.Children {
		h.Children[i].addUsage(c, used)
	}
}

func newNodeUsage(id string, budget *int64, scope models.BudgetScope, used usage.TreeUsage) *nodeUsage {
	return &nodeUsage{budget, used.Additional[id], scope, used.Used[id], used.SubtreeUsed[id], 0}
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

const contentTypeYAML = "application/yaml"

// rosterDocument is a roster as JSON; YAML has the same members.
type rosterDocument struct {
	Version int           `json:"version" validate:"required" example:"1" minimum:"1" maximum:"1"` // The version of the format, 1.
	Agents  []rosterEntry `json:"agents" validate:"required"`                                      // The agents.
}

// rosterEntry is one agent of a roster. Omitted members have their defaults.
type rosterEntry struct {
	ID           string             `json:"id" validate:"required" example:"finance-personal" minLength:"1" maxLength:"64"`          // The agent's id.
	Name         string             `json:"name" validate:"required" example:"Personal Finance Agent" minLength:"1" maxLength:"120"` // The display name.
	Level        int                `json:"level" validate:"required" example:"2" minimum:"0" maximum:"3"`                           // The level, 0 to 3.
	SphereID     *int               `json:"sphere_id" example:"1" minimum:"1" maximum:"9" extensions:"x-nullable"`                   // The sphere; null only for L0.
	FrequencyHz  int                `json:"frequency_hz" validate:"required" example:"555"`                                          // The frequency in Hz.
	ParentID     *string            `json:"parent_id" example:"orch-personnel" maxLength:"64" extensions:"x-nullable"`               // The agent directly above; null only for L0.
	TokenBudget  *int64             `json:"token_budget" example:"20000" minimum:"1000" maximum:"500000" extensions:"x-nullable"`    // Tokens per UTC day; null is unlimited, only for L0.
	BudgetScope  models.BudgetScope `json:"budget_scope" example:"subtree" enums:"own,subtree" default:"own"`                        // Whose use counts against the budget.
	Capabilities []string           `json:"capabilities" example:"budgeting,expense_tracking,savings"`                               // What the agent can do.
	Description  string             `json:"description" example:"L2 Specialist for personal finance management" maxLength:"2000"`    // A text about the agent.
	Type         string             `json:"type" example:"research" maxLength:"64"`                                                  // The agent type of the envelope protocol.
	IsActive     bool               `json:"is_active" example:"true" default:"true"`                                                 // Whether the agent is active.
}

// exportRoster exports agents as one document.
//
//	@Summary		Export the roster
//	@Description	Returns all agents, or those below `root`, ordered by level and id, as a document that `POST /api/v1/roster` accepts. A roster contains at most 10,000 agents; export a larger registry in parts. `format`, or else the `Accept` header, selects YAML or JSON; JSON is the default.
//	@Produce		json,application/yaml
//	@Param			root			query	string	false	"Id of the agent at the top of the exported tree"	maxlength(64)	default(nova)
//	@Param			format			query	string	false	"Format of the document"	enums(json,yaml)
//	@Success		200	{object}	rosterDocument	"The roster"
//	@Failure		400	"A query parameter is unknown or invalid, or there are more than 10,000 agents"
//	@Failure		404	"The root does not exist"
func (s *Server) exportRoster(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "root", "format")
	root := rosterRoot(q, caller(r))
	format := q.Enum("format", acceptedFormat(r), "json", "yaml")
	if err := q.Err(); err != nil {
		return err
	}
	if err := s.core.Registry.Confine(r.Context(), caller(r), root); err != nil {
		return err
	}
	agents, err := s.core.Registry.Export(r.Context(), root)
	if err != nil {
		return err
	}
	contentType, marshal := contentTypeJSON, roster.MarshalJSON
	if format == "yaml" {
		contentType, marshal = contentTypeYAML, roster.MarshalYAML
	}
	w.Header().Add("Vary", "Accept")
	return s.withBuffer(func(buf *bytes.Buffer) error {
		if err := marshal(buf, agents); err != nil {
			return err
		}
		s.writeBody(w, r, http.StatusOK, 0, contentType, buf.Bytes())
		return nil
	})
}

// rosterRoot reads the parameter root. It is the agent of a bound token by default, and nova for others.
func rosterRoot(q *query, by models.Principal) string {
	return *cmp.Or(q.OptString("root", input.MaxID), by.AgentID, new(models.RootAgentID))
}

// acceptedFormat returns the format that the Accept header prefers.
func acceptedFormat(r *http.Request) string {
	accept := r.Header.Get("Accept")
	yaml, json := strings.Index(accept, "yaml"), strings.Index(accept, "json")
	if yaml >= 0 && (json < 0 || yaml < json) {
		return "yaml"
	}
	return "json"
}

// importRoster creates and updates the agents of a document.
//
//	@Summary		Import a roster
//	@Description	Creates the agents that do not exist and updates the others, in one transaction: all or none. Agents that are not in the document do not change. With `dry_run` nothing changes and the response lists all violations with their lines. Changes of agents of level 0 and 1 require the scope `admin`.
//	@Accept			json,application/yaml
//	@Param			dry_run			query	bool			false	"Whether to validate only"	default(false)
//	@Param			Idempotency-Key	header	string			false	"Unique key that makes the request safe to retry: for 24 hours a repetition returns the stored response"	maxlength(255)
//	@Param			body			body	rosterDocument	true	"The roster"
//	@Success		200	{object}	registry.ImportReport	"The changes that were made, or would be made"
//	@Failure		400	"The document is invalid; `errors` lists the violations with their lines"
//	@Failure		409	"The document conflicts with existing agents, or the Idempotency-Key was used with a different request"
//	@Failure		422	"Token budget exceeds maximum, or the quota of the token, or of a token that created a restored agent, is exhausted"
func (s *Server) importRoster(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "dry_run")
	dryRun := q.Bool("dry_run")
	if err := q.Err(); err != nil {
		return err
	}
	body, mediaType, err := httpkit.ReadBody(w, r, httpkit.BodyRules{Limit: s.opts.MaxRoster, MediaTypes: []string{contentTypeJSON, contentTypeYAML, "application/x-yaml", "text/yaml"}})
	if err != nil {
		return err
	}
	format := input.YAML
	if mediaType == contentTypeJSON {
		format = input.JSON
	}
	return runOnce(s, w, r, body, func(once *models.Idempotency) (registry.ImportReport, error) {
		doc, violations := roster.Parse(body, format)
		if err := unreadableRoster(violations); err != nil {
			return registry.ImportReport{}, err
		}
		return s.core.Registry.Import(r.Context(), caller(r), doc, violations, dryRun, once)
	}, reportReply)
}

// reportReply returns the response with a report, which has a bounded number of violations and warnings.
func reportReply(report registry.ImportReport) reply {
	report.Violations, report.Warnings = errs.Violations(report.Violations).Capped(), errs.Violations(report.Warnings).Capped()
	return reply{body: report}
}

// unreadableRoster returns an error for a document that cannot be parsed, for which there is no
// report.
func unreadableRoster(violations errs.Violations) error {
	for _, v := range violations {
		if v.Code == errs.MalformedJSON || v.Code == errs.MalformedYAML {
			return violations.All()
		}
	}
	return nil
}
