package store

import (
	"database/sql"
	"slices"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/models"
	"comet/store/columns"
	"comet/store/filter"
	"comet/store/sqlerr"
)

// List returns one page of the agents that q selects. Pages after a position
// cost the same at any depth; an offset costs what it skips.
func (r agentReader) List(q AgentQuery) (page AgentPage, err error) {
	if q.FrequencyHz != nil {
		if _, ok := levelOfFrequency(*q.FrequencyHz); !ok { // reserved: no agent has it
			page.Agents = []models.Agent{}
			if q.Count {
				page.Total = new(int64)
			}
			return page, nil
		}
	}
	query, args := r.pageQuery(q)
	if page.Agents, err = list[models.Agent](r.reader, query, args...); err != nil {
		return page, err
	}
	if len(page.Agents) > q.Limit {
		page.Agents, page.More = page.Agents[:q.Limit], true
	}
	if q.Count {
		query, args := r.countQuery(q)
		total, err := one[int64](r.reader, query, args...)
		page.Total = &total
		return page, err
	}
	return page, err
}

// condition is one term of a WHERE clause.
type condition struct {
	column string // of an equality, else ""
	sql    string
	args   []any
}

// conditions lists the filters of q, the most selective first.
func (r agentReader) conditions(q AgentQuery) []condition {
	var cs []condition
	equal := func(column string, value any) {
		cs = append(cs, condition{column, column + " = ?", []any{value}})
	}
	if q.ParentID != nil {
		equal("parent_id", *q.ParentID)
	}
	for i, c := range q.Capabilities {
		text := "EXISTS (SELECT 1 FROM agent_capabilities AS o WHERE o.capability = ? AND o.agent_id = id)"
		if i == 0 && byCapability(q) {
			text = "capability = ?"
		}
		cs = append(cs, condition{"", text, []any{models.CapabilityKey(c)}})
	}
	if q.SphereID != nil {
		equal("sphere_id", *q.SphereID)
	}
	level := q.Level
	if q.FrequencyHz != nil && level == nil { // a frequency belongs to one level, whose index knows it
		l, _ := levelOfFrequency(*q.FrequencyHz)
		level = new(int(l))
	}
	if level != nil {
		equal("level", *level)
	}
	if q.FrequencyHz != nil {
		equal("frequency_hz", *q.FrequencyHz)
	}
	if q.Active != nil {
		truth := "is_active = TRUE"
		if !*q.Active {
			truth = "is_active = FALSE"
		}
		cs = append(cs, condition{"", truth, nil})
	}
	if q.Root != nil {
		cs = append(cs, condition{"", "id " + InSubtree, []any{*q.Root}})
	}
	if q.Text != "" {
		cs = append(cs, condition{"", r.engine.contains + "(search_text, ?) > 0", []any{strings.ToLower(q.Text)}})
	}
	return cs
}

// InSubtree is the condition after a column: an agent, the argument, or one below it.
const InSubtree = `IN (WITH RECURSIVE tree (tid) AS (SELECT id FROM agents WHERE id = ?
	UNION ALL SELECT a.id FROM agents a JOIN tree ON a.parent_id = tree.tid) SELECT tid FROM tree)`

// byCapability reports whether the list is read from the first capability's own
// index, which names its agents in the order of their ids.
func byCapability(q AgentQuery) bool { return len(q.Capabilities) > 0 && q.ParentID == nil }

// source returns the tables of the list and the column that orders it by id.
func (r agentReader) source(q AgentQuery) (from, id string) {
	if byCapability(q) {
		return "agent_capabilities " + r.engine.joinInOrder + " agents ON id = agent_id", "agent_id"
	}
	return "agents", "id"
}

// pageQuery builds the statement for one page and one row more. On SQLite, which keeps no
// statistics, only one equality may choose an index: the first, because the index that starts with
// it is also in id order. Otherwise the planner would rather sort a sphere than walk it.
func (r agentReader) pageQuery(q AgentQuery) (string, []any) {
	from, id := r.source(q)
	column, ascending := sortColumn(q.Sort), !q.Descending
	var where filter.Clause
	indexed := byCapability(q)
	for _, c := range r.conditions(q) {
		text := c.sql
		if c.column != "" && (indexed || (column != "id" && c.column != "parent_id")) {
			text = r.engine.noIndex + text
		}
		indexed = indexed || c.column != ""
		where.And(text, c.args...)
	}
	if q.After != nil {
		compare := " > "
		if !ascending {
			compare = " < "
		}
		if column == "id" {
			where.And(id+compare+"?", q.After.ID)
		} else {
			where.And("("+column+", id)"+compare+"(?, ?)", sortKey(q.Sort, *q.After), q.After.ID)
		}
	}
	direction := ""
	if !ascending {
		direction = " DESC"
	}
	order := id + direction
	if column != "id" {
		order = column + direction + ", " + order
	}
	query := "SELECT " + columns.List[models.Agent]() + " FROM " + from + where.SQL() + " ORDER BY " + order + " LIMIT ?"
	args := append(where.Args, q.Limit+1)
	if q.Offset > 0 && q.After == nil {
		query += " OFFSET ?"
		args = append(args, q.Offset)
	}
	return query, args
}

func (r agentReader) countQuery(q AgentQuery) (string, []any) {
	var where filter.Clause
	conditions := r.conditions(q)
	for _, c := range conditions {
		where.And(c.sql, c.args...)
	}
	from, _ := r.source(q)
	if byCapability(q) && len(conditions) == 1 { // its index knows how many there are
		from = "agent_capabilities"
	}
	return "SELECT count(*) FROM " + from + where.SQL(), where.Args
}

func sortColumn(sort string) string {
	switch sort {
	case "name", "level", "created_at":
		return sort
	}
	return "id"
}

func sortKey(sort string, p AgentPosition) any {
	switch sort {
	case "name":
		return p.Name
	case "level":
		return p.Level
	default:
		return p.CreatedAt
	}
}

// Ancestors returns the agents above id, its parent first and nova last; an
// empty list for nova, errs.NotFound for an unknown id.
func (r agentReader) Ancestors(id string) ([]models.Agent, error) {
	chain, err := list[models.Agent](r.reader, `WITH RECURSIVE chain (cid, pid, depth) AS (
			SELECT id, parent_id, 0 FROM agents WHERE id = ?
			UNION ALL
			SELECT a.id, a.parent_id, depth + 1 FROM agents a JOIN chain ON a.id = chain.pid WHERE depth < 8)
		SELECT `+columns.List[models.Agent]()+` FROM chain JOIN agents ON id = cid ORDER BY depth`, id)
	if err != nil {
		return nil, err
	}
	if len(chain) == 0 {
		return nil, agentMissing(sqlerr.Translate(sql.ErrNoRows), id)
	}
	return chain[1:], nil
}

// Confine returns errs.ForeignAgent if a principal is bound to an agent and id is neither that agent nor
// one below it. Unknown agents are below no agent.
func (r agentReader) Confine(by models.Principal, id string) error {
	if by.AgentID == nil || *by.AgentID == id {
		return nil
	}
	above, err := r.Ancestors(id)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return err
	}
	if slices.ContainsFunc(above, func(a models.Agent) bool { return a.ID == *by.AgentID }) {
		return nil
	}
	return errs.New(errs.ForeignAgent, "this token is bound to the agent %q; it may use only that agent and the agents below it", *by.AgentID)
}

// Subtree returns up to limit agents from root down to depth levels below it,
// level by level and by id, or errs.NotFound. activeOnly leaves out inactive agents
// below the root and all agents below them.
func (r agentReader) Subtree(root string, depth int, activeOnly bool, limit int) ([]models.Agent, error) {
	only := ""
	if activeOnly {
		only = " AND a.is_active = TRUE"
	}
	all, err := list[models.Agent](r.reader, `WITH RECURSIVE tree (tid, depth) AS (
			SELECT id, 0 FROM agents WHERE id = ?
			UNION ALL
			SELECT a.id, depth + 1 FROM agents a JOIN tree ON a.parent_id = tree.tid WHERE depth < ?`+only+`)
		SELECT `+columns.List[models.Agent]()+` FROM tree JOIN agents ON id = tid ORDER BY depth, id LIMIT ?`, root, depth, limit)
	if err == nil && len(all) == 0 {
		return nil, agentMissing(sqlerr.Translate(sql.ErrNoRows), root)
	}
	return all, err
}

// Chains returns, for each of the agents that exist, the agent itself and those above it, as they
// stand now.
func (r agentReader) Chains(ids []string) (map[string][]string, error) {
	type link struct{ Leaf, ID string }
	links, err := list[link](r.reader, `WITH RECURSIVE chain (leaf, cid, pid, depth) AS (
			SELECT id, id, parent_id, 0 FROM agents WHERE id `+r.engine.in+`
			UNION ALL
			SELECT leaf, a.id, a.parent_id, depth + 1 FROM agents a JOIN chain ON a.id = chain.pid WHERE depth < 8)
		SELECT leaf, cid FROM chain`, Keys(ids))
	chains := make(map[string][]string, len(ids))
	for _, l := range links {
		chains[l.Leaf] = append(chains[l.Leaf], l.ID)
	}
	return chains, err
}

// levelOfFrequency returns the only level that allows hz; ok is false for a
// reserved or unknown frequency (CHE·NU §4.1).
func levelOfFrequency(hz int) (level models.Level, ok bool) {
	for l := models.LevelSystem; l <= models.LevelAssistant; l++ {
		if l.AllowsFrequency(hz) {
			return l, true
		}
	}
	return 0, false
}

// AgentQuery selects a page of agents. Nil filters do not filter.
type AgentQuery struct {
	SphereID     *int
	Level        *int
	FrequencyHz  *int
	Active       *bool
	ParentID     *string
	Root         *string  // the agent itself and those below it
	Capabilities []string // all are required; with or without custom:
	Text         string   // part of id, name or description, ignoring case

	Sort       string // id, name, level or created_at; the id breaks ties
	Descending bool
	Limit      int // 1-1000
	Offset     int
	// After is the position after which the page starts; it replaces Offset.
	After *AgentPosition
	// Count asks for the total.
	Count bool
}

// AgentPosition is a position in a sorted list: the sort key and the id.
type AgentPosition struct {
	Name      string
	Level     int
	CreatedAt time.Time
	ID        string
}

// AgentPage is one page of a list.
type AgentPage struct {
	Agents []models.Agent
	// Total is the number of agents the filters select, nil if not asked for.
	Total *int64
	// More reports whether a next page exists.
	More bool
}
