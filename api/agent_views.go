package api

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/go-json-experiment/json"

	"comet/internal/errs"
	"comet/internal/registry"
	"comet/models"
)

// agentItem is an agent in a list (CHE·NU §2.1).
type agentItem struct {
	ID           string       `json:"id" example:"finance-personal"`
	Name         string       `json:"name" example:"Personal Finance Agent"`
	Level        models.Level `json:"level" example:"2"`
	SphereID     *int         `json:"sphere_id" example:"1"` // Null only for L0.
	FrequencyHz  int          `json:"frequency_hz" example:"555"`
	Capabilities []string     `json:"capabilities" example:"budgeting,expense_tracking,savings"`
	ParentID     *string      `json:"parent_id" example:"orch-personnel"` // Null only for L0.
	TokenBudget  *int64       `json:"token_budget" example:"20000"`       // Tokens a UTC day. Null is unlimited, only for L0.
	// BudgetScope says what token_budget is held against: the agent's own use, or
	// also what it and all below it use together.
	BudgetScope models.BudgetScope `json:"budget_scope" example:"own" enums:"own,subtree"`
	IsActive    bool               `json:"is_active" example:"true"`
	Type        string             `json:"type,omitempty" example:"research"`
}

// agentList is one page of agents (CHE·NU §2.1).
type agentList struct {
	Agents     []agentItem `json:"agents"`
	Total      *int64      `json:"total,omitempty" example:"287"` // How many agents the filters select.
	Limit      int         `json:"limit" example:"100"`
	Offset     *int        `json:"offset,omitempty" example:"0"`                                // Absent on a page by cursor.
	NextCursor string      `json:"next_cursor,omitempty" example:"eyJpZCI6Im9yY2gtc29jaWFsIn0"` // Absent on the last page.
}

// agentCreated is the answer to a create request (CHE·NU §2.2).
type agentCreated struct {
	ID        string       `json:"id" example:"custom-assistant"`
	Name      string       `json:"name" example:"Custom Assistant"`
	CreatedAt time.Time    `json:"created_at" example:"2026-01-10T15:30:00Z"`
	Status    string       `json:"status" example:"active" enums:"active"`
	Warnings  []errs.Field `json:"warnings,omitempty"` // What was accepted but should be mended.
}

// agentDetail is one agent with what is known of it (CHE·NU §2.5).
type agentDetail struct {
	ID           string       `json:"id" example:"finance-personal"`
	Name         string       `json:"name" example:"Personal Finance Agent"`
	Level        models.Level `json:"level" example:"2"`
	SphereID     *int         `json:"sphere_id" example:"1"` // Null only for L0.
	FrequencyHz  int          `json:"frequency_hz" example:"555"`
	Capabilities []string     `json:"capabilities" example:"budgeting,expense_tracking,savings"`
	Description  string       `json:"description" example:"L2 Specialist for personal finance management"`
	Type         string       `json:"type,omitempty" example:"research"`
	ParentID     *string      `json:"parent_id" example:"orch-personnel"` // Null only for L0.
	TokenBudget  *int64       `json:"token_budget" example:"20000"`       // Tokens a UTC day. Null is unlimited, only for L0.
	// BudgetScope says what token_budget is held against: the agent's own use, or
	// also what it and all below it use together.
	BudgetScope       models.BudgetScope `json:"budget_scope" example:"own" enums:"own,subtree"`
	TokensUsedToday   int64              `json:"tokens_used_today" example:"3450"`
	IsActive          bool               `json:"is_active" example:"true"`
	CreatedAt         time.Time          `json:"created_at" example:"2026-01-10T15:30:00Z"`
	UpdatedAt         time.Time          `json:"updated_at" example:"2026-01-10T15:30:00Z"`
	Children          []models.AgentRef  `json:"children"`
	ChildrenTruncated bool               `json:"children_truncated,omitempty" example:"true"` // There are more than 1,000.
	Stats             models.AgentStats  `json:"stats"`
	Warnings          []errs.Field       `json:"warnings,omitempty"` // What a change brought that should be mended.
}

func newAgentItem(a models.Agent) agentItem {
	return agentItem{
		ID: a.ID, Name: a.Name, Level: a.Level, SphereID: a.SphereID, FrequencyHz: a.FrequencyHz, Capabilities: a.Capabilities,
		ParentID: a.ParentID, TokenBudget: a.TokenBudget, BudgetScope: a.BudgetScope, IsActive: a.IsActive, Type: a.Type,
	}
}

func newAgentList(page models.AgentPage, q models.AgentQuery) agentList {
	list := agentList{Agents: make([]agentItem, len(page.Agents)), Total: page.Total, Limit: q.Limit}
	for i, a := range page.Agents {
		list.Agents[i] = newAgentItem(a)
	}
	if q.After == nil {
		list.Offset = &q.Offset
	}
	return list
}

func newAgentCreated(c registry.Created) agentCreated {
	return agentCreated{ID: c.Agent.ID, Name: c.Agent.Name, CreatedAt: c.Agent.CreatedAt, Status: "active", Warnings: c.Warnings}
}

func newAgentDetail(d models.AgentDetail) agentDetail {
	return agentDetail{
		ID: d.ID, Name: d.Name, Level: d.Level, SphereID: d.SphereID, FrequencyHz: d.FrequencyHz, Capabilities: d.Capabilities,
		Description: d.Description, Type: d.Type, ParentID: d.ParentID, TokenBudget: d.TokenBudget, BudgetScope: d.BudgetScope,
		TokensUsedToday: d.TokensUsedToday, IsActive: d.IsActive, CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt, Children: d.Children,
		ChildrenTruncated: d.ChildrenTruncated, Stats: d.Stats,
	}
}

// writeDetail answers with an agent.
func (s *Server) writeDetail(w http.ResponseWriter, r *http.Request, d models.AgentDetail, warnings []errs.Field) error {
	view := newAgentDetail(d)
	view.Warnings = warnings
	return s.writeEntity(w, r, http.StatusOK, d.Version, view)
}

const (
	defaultLimit  = 100
	maxLimit      = 1000
	maxOffset     = 10_000_000
	maxSearchText = 200
	maxCursor     = 2000
)

// agentQuery reads the parameters of a list of agents.
func agentQuery(r *http.Request) (models.AgentQuery, error) {
	q := newQuery(r, "sphere_id", "level", "frequency", "active", "parent_id", "capability", "q",
		"sort", "limit", "offset", "cursor", "total")
	out := models.AgentQuery{
		SphereID:     q.OptInt("sphere_id", models.MinSphere, models.MaxSphere),
		Level:        q.OptInt("level", int(models.LevelSystem), int(models.LevelAssistant)),
		FrequencyHz:  q.OptInt("frequency", 0, 999),
		Active:       q.OptBool("active"),
		ParentID:     q.OptString("parent_id", models.MaxIDLength),
		Capabilities: q.Strings("capability", 10, models.MaxCapabilityLength),
		Limit:        q.Int("limit", 1, maxLimit, defaultLimit),
		Offset:       q.Int("offset", 0, maxOffset, 0),
	}
	if text := q.OptString("q", maxSearchText); text != nil {
		out.Text = *text
	}
	sort := q.Enum("sort", "id", "id", "-id", "name", "-name", "level", "-level", "created_at", "-created_at")
	sort, out.Descending = strings.CutPrefix(sort, "-")
	out.Sort = models.AgentSort(sort)
	if text := q.OptString("cursor", maxCursor); text != nil {
		readCursor(q, &out, *text)
	}
	out.Count = out.After == nil
	if total := q.OptBool("total"); total != nil {
		out.Count = *total
	}
	return out, q.Err()
}

// cursor is what an opaque cursor holds: the last agent of a page and a
// fingerprint of the list it was a page of.
type cursor struct {
	ID    string `json:"i"`
	Name  string `json:"n,omitzero"`
	Level int    `json:"l,omitzero"`
	At    int64  `json:"t,omitzero"` // microseconds since 1970
	List  uint64 `json:"f"`
}

// agentCursor names the place behind the last agent of a page.
func agentCursor(q models.AgentQuery, last models.Agent) string {
	c := cursor{ID: last.ID, List: fingerprint(q)}
	switch q.Sort {
	case models.SortName:
		c.Name = last.Name
	case models.SortLevel:
		c.Level = int(last.Level)
	case models.SortCreatedAt:
		c.At = last.CreatedAt.UnixMicro()
	case models.SortID:
	}
	text, err := json.Marshal(c)
	if err != nil {
		return "" // strings from the database are valid UTF-8
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func readCursor(q *query, out *models.AgentQuery, text string) {
	var c cursor
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	switch {
	case err != nil || c.ID == "" || !storable(c.ID+c.Name):
		q.Fail("cursor", "cursor", "cursor is not one this server gave out")
	case c.List != fingerprint(*out):
		q.Fail("cursor", "cursor", "cursor belongs to a list with other filters or another order")
	case q.Has("offset"):
		q.Fail("offset", "exclusive", "offset and cursor exclude each other")
	default:
		out.After = &models.AgentPosition{ID: c.ID, Name: c.Name, Level: c.Level, CreatedAt: time.UnixMicro(c.At).UTC()}
	}
}

// fingerprint tells lists with other filters or another order apart.
func fingerprint(q models.AgentQuery) uint64 {
	text, err := json.Marshal([]any{q.SphereID, q.Level, q.FrequencyHz, q.Active, q.ParentID, q.Capabilities, q.Text, q.Sort, q.Descending},
		json.Deterministic(true))
	if err != nil {
		return 0
	}
	return xxhash.Sum64(text)
}

// links makes the Link header of a page that has a next one (RFC 8288).
func links(r *http.Request, next string) string {
	values := r.URL.Query()
	values.Del("offset")
	values.Del("cursor")
	first := *r.URL
	first.RawQuery = values.Encode()
	values.Set("cursor", next)
	following := url.URL{Path: first.Path, RawQuery: values.Encode()}
	return "<" + following.RequestURI() + `>; rel="next", <` + (&url.URL{Path: first.Path, RawQuery: first.RawQuery}).RequestURI() + `>; rel="first"`
}
