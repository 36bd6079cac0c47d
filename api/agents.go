package api

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/go-json-experiment/json"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/registry"
	"comet/models"
)

const agentsPath = "/api/v1/agents"

// agentItem is an agent in a list (CHE·NU §2.1).
type agentItem struct {
	ID           string       `json:"id" example:"finance-personal"`                             // The agent's id.
	Name         string       `json:"name" example:"Personal Finance Agent"`                     // The display name.
	Level        models.Level `json:"level" example:"2"`                                         // The level, 0 to 3.
	SphereID     *int         `json:"sphere_id" example:"1"`                                     // The sphere; null only for L0.
	FrequencyHz  int          `json:"frequency_hz" example:"555"`                                // The frequency in Hz.
	Capabilities []string     `json:"capabilities" example:"budgeting,expense_tracking,savings"` // What the agent can do.
	ParentID     *string      `json:"parent_id" example:"orch-personnel"`                        // The agent directly above; null only for L0.
	TokenBudget  *int64       `json:"token_budget" example:"20000"`                              // Tokens per UTC day. Null means unlimited, only for L0.
	// What token_budget limits: the agent's own use (`own`), or the use of the agent and all agents
	// below it (`subtree`).
	BudgetScope     models.BudgetScope `json:"budget_scope" example:"own" enums:"own,subtree"`
	IsActive        bool               `json:"is_active" example:"true"`                 // Whether the agent is active.
	Type            string             `json:"type,omitempty" example:"research"`        // The agent type of the envelope protocol; absent if it has none.
	ChildCount      *int               `json:"child_count,omitempty" example:"10"`       // Number of agents directly below; only in a list with `counts=true`.
	DescendantCount *int               `json:"descendant_count,omitempty" example:"287"` // Number of all agents below; only in a list with `counts=true`.
	Usage           *nodeUsage         `json:"usage,omitempty"`                          // Only in a list with `usage=true`.
}

// agentList is one page of agents (CHE·NU §2.1).
type agentList struct {
	Agents     []agentItem `json:"agents"`                                                      // The agents on the page.
	Total      *int64      `json:"total,omitempty" example:"287"`                               // Number of agents that the filters select.
	Limit      int         `json:"limit" example:"100"`                                         // The maximum number of agents on the page.
	Offset     *int        `json:"offset,omitempty" example:"0"`                                // Absent if the request has a cursor.
	NextCursor string      `json:"next_cursor,omitempty" example:"eyJpZCI6Im9yY2gtc29jaWFsIn0"` // Absent on the last page.
}

// agentCreated is the response to a create request (CHE·NU §2.2).
type agentCreated struct {
	ID        string       `json:"id" example:"custom-assistant"`   // The agent's id.
	Name      string       `json:"name" example:"Custom Assistant"` // The display name.
	CreatedAt time.Time    `json:"created_at" example:"2026-01-10T15:30:00Z"`
	Status    string       `json:"status" example:"active" enums:"active"` // Always `active`.
	Warnings  []errs.Field `json:"warnings,omitempty"`                     // Fields that were accepted but should be corrected.
}

// agentDetail is one agent with its children and statistics (CHE·NU §2.5).
type agentDetail struct {
	agentItem
	Description       string            `json:"description" example:"L2 Specialist for personal finance management"` // A text about the agent.
	TokensUsedToday   int64             `json:"tokens_used_today" example:"3450"`                                    // Tokens that the agent itself has used today, less those that were reset.
	CreatedAt         time.Time         `json:"created_at" example:"2026-01-10T15:30:00Z"`
	UpdatedAt         time.Time         `json:"updated_at" example:"2026-01-10T15:30:00Z"`
	Children          []models.AgentRef `json:"children"`                                    // The active agents directly below, at most 1,000.
	ChildrenTruncated bool              `json:"children_truncated,omitempty" example:"true"` // True if there are more than 1,000 children.
	Stats             models.AgentStats `json:"stats"`
	SelfRegistered    bool              `json:"self_registered,omitempty" example:"true"` // True for an agent that registered itself without a token or other proof: it cannot call tools, and gets only tasks that name it or whose requirements no other agent meets.
	Warnings          []errs.Field      `json:"warnings,omitempty"`                       // Fields of an update that were accepted but should be corrected.
}

func newAgentItem(a models.Agent) agentItem {
	return agentItem{
		ID: a.ID, Name: a.Name, Level: a.Level, SphereID: a.SphereID, FrequencyHz: a.FrequencyHz, Capabilities: a.Capabilities,
		ParentID: a.ParentID, TokenBudget: a.TokenBudget, BudgetScope: a.BudgetScope, IsActive: a.IsActive, Type: a.Type,
	}
}

func newAgentDetail(d models.AgentDetail) agentDetail {
	return agentDetail{
		agentItem: newAgentItem(d.Agent), Description: d.Description, TokensUsedToday: d.TokensUsedToday, CreatedAt: d.CreatedAt,
		UpdatedAt: d.UpdatedAt, Children: d.Children, ChildrenTruncated: d.ChildrenTruncated, Stats: d.Stats, SelfRegistered: d.SelfRegistered,
	}
}

func detailReply(d models.AgentDetail, warnings []errs.Field) reply {
	view := newAgentDetail(d)
	view.Warnings = warnings
	return reply{version: d.Version, body: view}
}

// listAgents lists agents (CHE·NU §2.1).
//
//	@Summary		List agents
//	@Description	Returns agents in pages, by `limit` and `offset` or by `cursor`, whose cost does not grow with the position. The `Link` header with `rel="next"` and `next_cursor` lead to the next page. `total` is counted unless a cursor is sent. Without `active` the list includes inactive agents.
//	@Param			sphere_id		query	int			false	"Only agents of this sphere"	minimum(1)	maximum(9)	example(1)
//	@Param			level			query	int			false	"Only agents of this level"	enums(0,1,2,3)	example(3)
//	@Param			frequency		query	int			false	"Only agents at this frequency in Hz; reserved frequencies select no agents"	minimum(0)	maximum(999)	example(555)
//	@Param			active			query	bool		false	"Only active agents, or only inactive ones"	example(true)
//	@Param			parent_id		query	string		false	"Only direct children of this agent"	maxlength(64)	example(orch-personnel)
//	@Param			capability		query	[]string	false	"Only agents with this capability, with or without its `custom:` prefix; repeat the parameter to require several"	collectionFormat(multi)	example(budgeting)
//	@Param			q				query	string		false	"Only agents whose id, name or description contains this text, ignoring case"	maxlength(200)	example(finance)
//	@Param			sort			query	string		false	"Sort order; a leading `-` reverses it"	enums(id,-id,name,-name,level,-level,created_at,-created_at)	default(id)
//	@Param			limit			query	int			false	"Maximum number of entries on the page"	minimum(1)	maximum(1000)	default(100)
//	@Param			offset			query	int			false	"Number of agents to skip"	minimum(0)	maximum(10000000)	default(0)
//	@Param			cursor			query	string		false	"`next_cursor` of the previous page"	maxlength(2000)
//	@Param			total			query	bool		false	"Whether to return `total`; by default only without a cursor"
//	@Param			counts			query	bool		false	"Whether to include how many agents are below each agent"	default(false)
//	@Param			usage			query	bool		false	"Whether to include budgets and today's usage"	default(false)
//	@Success		200	{object}	agentList	"A page of results"
//	@Failure		400	"A query parameter is unknown, repeated or invalid"
func (s *Server) listAgents(r request) (any, error) {
	q, err := agentQuery(r.Request)
	if err != nil {
		return nil, err
	}
	q.Root = r.caller.AgentID
	page, err := s.core.Registry.List(r.Context(), q)
	if err != nil {
		return nil, err
	}
	list := agentList{Agents: views(page.Agents, newAgentItem), Total: page.Total, Limit: q.Limit}
	if err := s.addToAgents(r, list.Agents); err != nil {
		return nil, err
	}
	if q.After == nil {
		list.Offset = &q.Offset
	}
	if page.More {
		list.NextCursor = agentCursor(q, page.Agents[len(page.Agents)-1])
	}
	return reply{next: list.NextCursor, body: list}, nil
}

// addToAgents adds what the parameters counts and usage request to the agents of a page.
func (s *Server) addToAgents(r request, agents []agentItem) error {
	q := newQuery(r.Request, agentParameters...)
	ids := make([]string, len(agents))
	for i, a := range agents {
		ids[i] = a.ID
	}
	if q.Bool("counts") {
		children, descendants, err := s.core.Stats.Below(r.Context(), ids)
		if err != nil {
			return err
		}
		for i, id := range ids {
			agents[i].ChildCount, agents[i].DescendantCount = new(children[id]), new(descendants[id])
		}
	}
	if !q.Bool("usage") {
		return nil
	}
	used, err := s.core.Stats.Usage(r.Context(), ids)
	for i, a := range agents {
		u := used[a.ID]
		agents[i].Usage = &nodeUsage{a.TokenBudget, u.Additional, a.BudgetScope, u.Own - u.Forgiven, u.Own + u.Below, u.Reserved}
	}
	return err
}

// createAgent creates an agent (CHE·NU §2.2).
//
//	@Summary		Create an agent
//	@Description	Creates an agent. The scope `agents:write` allows agents of level 2 and 3; level 1 requires `admin`. A capability that is neither predefined nor prefixed with `custom:` is accepted and listed in `warnings`.
//	@Param			body			body	models.AgentDraft	true	"The agent to create"
//	@Success		201	{object}	agentCreated	"Created"
//	@Header			201	{string}	ETag
//	@Failure		400	"Invalid frequency for level, Parent not found, Invalid parent level, or a field is missing or malformed"
//	@Failure		409	"Agent ID already exists, the parent is inactive, an agent of level 0 exists, or the Idempotency-Key was used with a different request"
//	@Failure		422	"Token budget exceeds maximum, or the quota of the token is exhausted"
func (s *Server) createAgent(r request, d models.AgentDraft, once *models.Idempotency) (registry.Created, error) {
	return s.core.Registry.Create(r.Context(), r.caller, d, once)
}

func createdAgent(c registry.Created) reply {
	return reply{status: http.StatusCreated, location: agentURL(c.Agent.ID), version: c.Agent.Version, body: agentCreated{
		ID: c.Agent.ID, Name: c.Agent.Name, CreatedAt: c.Agent.CreatedAt, Status: "active", Warnings: c.Warnings,
	}}
}

// getAgent returns one agent (CHE·NU §2.5).
//
//	@Summary		Get an agent
//	@Description	Returns an agent. `children` contains its active direct children, at most 1,000. `tokens_used_today` and `stats` cover the current UTC day; `tokens_used_today` equals `used_today` of the agent's usage.
//	@Success		200	{object}	agentDetail	"The agent"
func (s *Server) getAgent(r request) (any, error) {
	d, err := s.core.Registry.Get(r.Context(), r.id)
	return detailReply(d, nil), err
}

// updateAgent updates an agent (CHE·NU §2.3).
//
//	@Summary		Update an agent
//	@Description	Changes only the members that the body contains. `id`, `level` and `frequency_hz` are immutable: a member with the current value is accepted, another value is an error. `is_active: false` deactivates the agent under the same conditions as DELETE; `is_active: true` restores it. Agents of level 0 and 1 require the scope `admin`.
//	@Accept			json,application/merge-patch+json
//	@Param			If-Match	header	string				false	"Update the agent only if this entity tag has its current version"
//	@Param			body		body	registry.AgentPatch	true	"The members to change"
//	@Success		200	{object}	agentDetail	"The updated agent"
//	@Header			200	{string}	ETag
//	@Failure		400	"Immutable field, Parent not found, Invalid parent level, or a malformed field"
//	@Failure		409	"The agent has active children or is protected, or its parent is inactive"
//	@Failure		412	"The agent has another version"
//	@Failure		422	"Token budget exceeds maximum, or the agent cannot be restored because the quota of the token that created it is exhausted"
func (s *Server) updateAgent(r request, p registry.AgentPatch) (any, error) {
	updated, err := s.core.Registry.Update(r.Context(), r.caller, r.id, p, r.pre)
	return detailReply(updated.Detail, updated.Warnings), err
}

// deleteAgent deactivates an agent (CHE·NU §2.4).
//
//	@Summary		Delete an agent
//	@Description	Deactivates the agent: its data stays, with `is_active: false`. Agents of level 0 and 1 and agents with active children cannot be deleted.
//	@Param			If-Match	header	string	false	"Delete the agent only if this entity tag has its current version"
//	@Success		204	"Deactivated"
//	@Failure		400	"A header is malformed"
//	@Failure		409	"The agent has active children or is protected"
//	@Failure		412	"The agent has another version"
func (s *Server) deleteAgent(r request) error {
	err := s.core.Registry.Deactivate(r.Context(), r.caller, r.id, r.pre)
	if e, ok := errors.AsType[*errs.Error](err); ok {
		for i := range e.Fields { // the request has no body
			e.Fields[i].Pointer = ""
		}
	}
	return err
}

func agentURL(id string) string { return agentsPath + "/" + url.PathEscape(id) }

const (
	maxOffset     = 10_000_000
	maxSearchText = 200
	maxCursor     = 2000
)

// agentParameters are the query parameters of a list of agents.
var agentParameters = []string{ //nolint:gochecknoglobals // a constant list
	"sphere_id", "level", "frequency", "active", "parent_id", "capability", "q", "sort", "limit", "offset", "cursor", "total", "counts", "usage",
}

// agentQuery reads the query parameters of a list of agents.
func agentQuery(r *http.Request) (registry.AgentQuery, error) {
	q := newQuery(r, agentParameters...)
	out := registry.AgentQuery{
		SphereID:     q.OptInt("sphere_id", registry.MinSphere, registry.MaxSphere),
		Level:        q.OptInt("level", int(models.LevelSystem), int(models.LevelAssistant)),
		FrequencyHz:  q.OptInt("frequency", 0, 999),
		Active:       q.OptBool("active"),
		ParentID:     q.OptString("parent_id", input.MaxID),
		Capabilities: q.Strings("capability", 10, input.MaxCapability),
		Limit:        q.pageLimit(),
		Offset:       q.Int("offset", 0, maxOffset, 0),
		Text:         orZero(q.OptString("q", maxSearchText)),
	}
	sort := q.Enum("sort", "id", "id", "-id", "name", "-name", "level", "-level", "created_at", "-created_at")
	out.Sort, out.Descending = strings.CutPrefix(sort, "-")
	if key, ok := q.cursor(maxCursor); ok {
		readCursor(q, &out, key)
	}
	out.Count = out.After == nil
	if total := q.OptBool("total"); total != nil {
		out.Count = *total
	}
	_, _ = q.Bool("counts"), q.Bool("usage") // addToAgents reads them
	return out, q.Err()
}

// cursor is the content of a cursor: the last agent of a page and the fingerprint of its list.
type cursor struct {
	ID    string `json:"i"`
	Name  string `json:"n,omitzero"`
	Level int    `json:"l,omitzero"`
	At    int64  `json:"t,omitzero"` // microseconds since 1970
	List  uint64 `json:"f"`
}

// agentCursor returns the cursor of the page after last.
func agentCursor(q registry.AgentQuery, last models.Agent) string {
	c := cursor{ID: last.ID, List: fingerprint(q)}
	switch q.Sort {
	case "name":
		c.Name = last.Name
	case "level":
		c.Level = int(last.Level)
	case "created_at":
		c.At = last.CreatedAt.UnixMicro()
	case "id":
	}
	text, err := json.Marshal(c)
	if err != nil {
		return "" // cannot happen: strings from the database are valid UTF-8
	}
	return encodeCursor(string(text))
}

func readCursor(q *query, out *registry.AgentQuery, key string) {
	var c cursor
	err := json.Unmarshal([]byte(key), &c)
	switch {
	case err != nil || c.ID == "" || !storable(c.ID+c.Name):
		q.failCursor()
	case c.List != fingerprint(*out):
		q.Fail("cursor", "cursor", "cursor was issued for other filters or another order; start again without cursor")
	case q.Has("offset"):
		q.Fail("offset", "exclusive", "offset cannot be combined with cursor")
	default:
		out.After = &registry.AgentPosition{ID: c.ID, Name: c.Name, Level: c.Level, CreatedAt: time.UnixMicro(c.At).UTC()}
	}
}

// fingerprint identifies the filters and the order of a list.
func fingerprint(q registry.AgentQuery) uint64 {
	text, err := json.Marshal([]any{q.SphereID, q.Level, q.FrequencyHz, q.Active, q.ParentID, q.Capabilities, q.Text, q.Sort, q.Descending},
		json.Deterministic(true))
	if err != nil {
		return 0
	}
	return xxhash.Sum64(text)
}
