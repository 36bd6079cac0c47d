package store

import (
	"context"
	"database/sql"
	"strings"

	"comet/models"
)

// Agents returns one page of the agents that q selects. Pages after a position
// cost the same at any depth; an offset costs what it skips.
func (s *Store) Agents(ctx context.Context, q models.AgentQuery) (models.AgentPage, error) {
	page := models.AgentPage{Agents: []models.Agent{}}
	if q.FrequencyHz != nil {
		if _, ok := models.LevelOfFrequency(*q.FrequencyHz); !ok { // reserved: nobody has it
			if q.Count {
				page.Total = new(int64)
			}
			return page, nil
		}
	}
	query, args := s.pageQuery(q)
	page.Agents = make([]models.Agent, 0, q.Limit+1)
	scan := agentScanner()
	err := s.query(ctx, query, args, func(rows *sql.Rows) error {
		a, err := scan(rows)
		page.Agents = append(page.Agents, a)
		return err
	})
	if err != nil {
		return page, err
	}
	if len(page.Agents) > q.Limit {
		page.Agents, page.More = page.Agents[:q.Limit], true
	}
	if q.Count {
		page.Total = new(int64)
		query, args := s.countQuery(q)
		err = s.queryRow(ctx, query, args, page.Total)
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
func (s *Store) conditions(q models.AgentQuery) []condition {
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
		l, _ := models.LevelOfFrequency(*q.FrequencyHz)
		level = new(int(l))
	}
	if level != nil {
		equal("level", *level)
	}
	if q.FrequencyHz != nil {
		equal("frequency_hz", *q.FrequencyHz)
	}
	if q.Active != nil {
		truth := s.dialect.isTrue("is_active")
		if !*q.Active {
			truth = s.dialect.isFalse("is_active")
		}
		cs = append(cs, condition{"", truth, nil})
	}
	if q.Text != "" {
		cs = append(cs, condition{"", s.dialect.contains("search_text"), []any{strings.ToLower(q.Text)}})
	}
	return cs
}

// byCapability reports whether the list is read from the first capability's own
// index, which names its agents in the order of their ids.
func byCapability(q models.AgentQuery) bool { return len(q.Capabilities) > 0 && q.ParentID == nil }

// source returns the tables of the list and the column that orders it by id.
func (s *Store) source(q models.AgentQuery) (from, id string) {
	if byCapability(q) {
		return "agent_capabilities " + s.dialect.joinInOrder + " agents ON id = agent_id", "agent_id"
	}
	return "agents", "id"
}

// pageQuery builds the statement for one page and one row more. On SQLite,
// which keeps no statistics, only one equality may choose an index: the first,
// because the index that starts with it is also in id order. Otherwise the
// planner would rather sort a sphere than walk it.
func (s *Store) pageQuery(q models.AgentQuery) (string, []any) {
	from, id := s.source(q)
	column, ascending := sortColumn(q.Sort), !q.Descending
	where, args := []string{}, []any{}
	indexed := byCapability(q)
	for _, c := range s.conditions(q) {
		text := c.sql
		if c.column != "" && (indexed || (column != "id" && c.column != "parent_id")) {
			text = s.dialect.noIndex + text
		}
		indexed = indexed || c.column != ""
		where, args = append(where, text), append(args, c.args...)
	}
	if q.After != nil {
		compare := " > "
		if !ascending {
			compare = " < "
		}
		if column == "id" {
			where, args = append(where, id+compare+"?"), append(args, q.After.ID)
		} else {
			where = append(where, "("+column+", id)"+compare+"(?, ?)")
			args = append(args, sortKey(q.Sort, *q.After), q.After.ID)
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
	query := "SELECT " + agentColumns + " FROM " + from + whereClause(where) + " ORDER BY " + order + " LIMIT ?"
	args = append(args, q.Limit+1)
	if q.Offset > 0 && q.After == nil {
		query += " OFFSET ?"
		args = append(args, q.Offset)
	}
	return s.dialect.bind(query), args
}

func (s *Store) countQuery(q models.AgentQuery) (string, []any) {
	var where []string
	var args []any
	for _, c := range s.conditions(q) {
		where, args = append(where, c.sql), append(args, c.args...)
	}
	from, _ := s.source(q)
	if byCapability(q) && len(where) == 1 { // its index knows how many there are
		from = "agent_capabilities"
	}
	return s.dialect.bind("SELECT count(*) FROM " + from + whereClause(where)), args
}

func whereClause(terms []string) string {
	if len(terms) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(terms, " AND ")
}

func sortColumn(sort models.AgentSort) string {
	switch sort {
	case models.SortName, models.SortLevel, models.SortCreatedAt:
		return string(sort)
	}
	return "id"
}

func sortKey(sort models.AgentSort, p models.AgentPosition) any {
	switch sort {
	case models.SortName:
		return p.Name
	case models.SortLevel:
		return p.Level
	default:
		return micros(p.CreatedAt)
	}
}

// Subtree returns up to limit agents from root down to depth levels below it,
// level by level and by id, or errs.NotFound. activeOnly leaves inactive agents
// below the root out, and so whatever stands under them.
func (s *Store) Subtree(ctx context.Context, root string, depth int, activeOnly bool, limit int) ([]models.Agent, error) {
	filter := ""
	if activeOnly {
		filter = " AND " + s.dialect.isTrue("a.is_active")
	}
	var all []models.Agent
	scan := agentScanner()
	err := s.query(ctx, s.dialect.bind(`WITH RECURSIVE tree (tid, depth) AS (
			SELECT id, 0 FROM agents WHERE id = ?
			UNION ALL
			SELECT a.id, depth + 1 FROM agents a JOIN tree ON a.parent_id = tree.tid WHERE depth < ?`+filter+`)
		SELECT `+agentColumns+` FROM tree JOIN agents ON id = tid ORDER BY depth, id LIMIT ?`), []any{root, depth, limit},
		func(rows *sql.Rows) error {
			a, err := scan(rows)
			all = append(all, a)
			return err
		})
	if err == nil && len(all) == 0 {
		return nil, agentMissing(translate(sql.ErrNoRows), root)
	}
	return all, err
}

// EachAgent calls fn for every agent in the order (level, id), without holding
// all of them, and stops at the first error of fn, which it returns.
func (s *Store) EachAgent(ctx context.Context, fn func(models.Agent) error) error {
	scan := agentScanner()
	return s.query(ctx, "SELECT "+agentColumns+" FROM agents ORDER BY level, id", nil, func(rows *sql.Rows) error {
		a, err := scan(rows)
		if err != nil {
			return err
		}
		return fn(a)
	})
}
