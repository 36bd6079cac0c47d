package bench

import (
	"context"
	"database/sql"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"
)

// The statements are identical to the store's.
const (
	columns = `id, name, level, sphere_id, frequency_hz, capabilities, description, type, parent_id, token_budget, budget_scope,
	is_active, version, created_at, updated_at`

	detailSQL = `SELECT ` + columns + `,
		(SELECT coalesce(sum(tokens), 0) FROM usage_windows WHERE agent_id = ? AND hour >= 24 * d.since AND hour < 24 * d.since + 24) -
		(SELECT coalesce(sum(own), 0) FROM usage_resets WHERE agent_id = ? AND day = d.since),
		CASE WHEN level < 3 THEN (SELECT json_group_array(json_object('id', id, 'level', level)) FROM (SELECT id, level FROM agents
			WHERE parent_id = ? AND is_active = TRUE ORDER BY id LIMIT ?) AS c) ELSE '[]' END,
		CASE WHEN EXISTS (SELECT 1 FROM outcomes WHERE agent_id = ? AND at >= ?) THEN
			(SELECT json_array(count(DISTINCT session_id), coalesce(avg(duration_ms), 0),
				sum(CASE WHEN status = 'success' THEN 1 ELSE 0 END), sum(CASE WHEN status <> 'cancelled' THEN 1 ELSE 0 END))
			FROM outcomes WHERE agent_id = ? AND at >= ?) END
		FROM agents
		CROSS JOIN (SELECT coalesce((SELECT day FROM usage_accounts WHERE agent_id = ? AND day = ?), ?) AS since) AS d
		WHERE id = ?`

	pageSQL, countSQL, orderSQL = "SELECT " + columns + " FROM agents", "SELECT count(*) FROM agents", " ORDER BY id LIMIT ?"
	sphereLevelPage             = " WHERE sphere_id = ? AND +level = ?"
	sphereLevelCount            = " WHERE sphere_id = ? AND level = ?"
	activeOnly                  = " WHERE is_active = 1"
	capabilityPage              = "SELECT " + columns + " FROM agent_capabilities CROSS JOIN agents ON id = agent_id WHERE capability = ? ORDER BY agent_id LIMIT ?"
	capabilityCount             = "SELECT count(*) FROM agent_capabilities WHERE capability = ?"
)

// rawReads are hand-written handlers: one prepared statement each, scanned into structs and
// encoded by encoding/json.
type rawReads struct {
	db     *sql.DB
	detail *sql.Stmt
	lists  map[string]rawList
}

// rawList holds the statements of one list; params are the query parameters of both, in order.
type rawList struct {
	page, count *sql.Stmt
	params      []string
}

func openRawReads(b *testing.B, g testDatabase) *rawReads {
	b.Helper()
	db := g.raw(b, readConnections, "query_only(1)")
	prepare := func(query string) *sql.Stmt {
		st, err := db.PrepareContext(detached(), query)
		require.NoError(b, err, query)
		b.Cleanup(func() { _ = st.Close() })
		return st
	}
	all := prepare(countSQL)
	return &rawReads{db: db, detail: prepare(detailSQL), lists: map[string]rawList{
		"all":        {prepare(pageSQL + orderSQL), all, nil},
		"uncounted":  {prepare(pageSQL + orderSQL), nil, nil},
		"after":      {prepare(pageSQL + " WHERE id > ?" + orderSQL), nil, []string{"after"}},
		"offset":     {prepare(pageSQL + orderSQL + " OFFSET ?"), nil, nil},
		"placed":     {prepare(pageSQL + sphereLevelPage + orderSQL), prepare(countSQL + sphereLevelCount), []string{"sphere_id", "level"}},
		"active":     {prepare(pageSQL + activeOnly + orderSQL), prepare(countSQL + activeOnly), nil},
		"capability": {prepare(capabilityPage), prepare(capabilityCount), []string{"capability"}},
	}}
}

func (h *rawReads) mount(r chi.Router) {
	r.Get("/bench/raw/agents/{agent_id}", h.get)
	for name, list := range h.lists {
		r.Get("/bench/raw/lists/"+name, h.list(list))
	}
}

// rawAgent is an agent in a list; the table stores its capabilities as JSON.
type rawAgent struct {
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Level        int             `json:"level"`
	SphereID     *int            `json:"sphere_id"`
	FrequencyHz  int             `json:"frequency_hz"`
	Capabilities json.RawMessage `json:"capabilities"`
	ParentID     *string         `json:"parent_id"`
	TokenBudget  *int64          `json:"token_budget"`
	BudgetScope  string          `json:"budget_scope"`
	IsActive     bool            `json:"is_active"`
	Type         string          `json:"type,omitempty"`

	description          string
	version              int64
	createdAt, updatedAt int64
}

func (a *rawAgent) dest() []any {
	return []any{
		&a.ID, &a.Name, &a.Level, &a.SphereID, &a.FrequencyHz, (*[]byte)(&a.Capabilities), &a.description, &a.Type,
		&a.ParentID, &a.TokenBudget, &a.BudgetScope, &a.IsActive, &a.version, &a.createdAt, &a.updatedAt,
	}
}

// rawDetail is one agent.
type rawDetail struct {
	ID              string          `json:"id"`
	Name            string          `json:"name"`
	Level           int             `json:"level"`
	SphereID        *int            `json:"sphere_id"`
	FrequencyHz     int             `json:"frequency_hz"`
	Capabilities    json.RawMessage `json:"capabilities"`
	Description     string          `json:"description"`
	Type            string          `json:"type,omitempty"`
	ParentID        *string         `json:"parent_id"`
	TokenBudget     *int64          `json:"token_budget"`
	BudgetScope     string          `json:"budget_scope"`
	TokensUsedToday int64           `json:"tokens_used_today"`
	IsActive        bool            `json:"is_active"`
	CreatedAt       time.Time       `json:"created_at"`
	UpdatedAt       time.Time       `json:"updated_at"`
	Children        json.RawMessage `json:"children"`
	Stats           rawStats        `json:"stats"`
}

type rawStats struct {
	SessionsToday     int64    `json:"sessions_today"`
	AvgResponseTimeMS *int64   `json:"avg_response_time_ms"`
	SuccessRate       *float64 `json:"success_rate"`
}

func (h *rawReads) get(w http.ResponseWriter, r *http.Request) {
	id := chi.URLParam(r, "agent_id")
	a, d, err := h.readDetail(r.Context(), id)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	d.ID, d.Name, d.Level, d.SphereID, d.FrequencyHz, d.Capabilities = a.ID, a.Name, a.Level, a.SphereID, a.FrequencyHz, a.Capabilities
	d.Description, d.Type, d.ParentID, d.TokenBudget, d.IsActive = a.description, a.Type, a.ParentID, a.TokenBudget, a.IsActive
	d.BudgetScope = a.BudgetScope
	d.CreatedAt, d.UpdatedAt = time.UnixMicro(a.createdAt).UTC(), time.UnixMicro(a.updatedAt).UTC()
	answer(w, http.StatusOK, d)
}

func (h *rawReads) readDetail(ctx context.Context, id string) (a rawAgent, d rawDetail, err error) {
	var outcomes []byte
	midnight := day().Truncate(24 * time.Hour)
	dest := append(a.dest(), &d.TokensUsedToday, (*[]byte)(&d.Children), &outcomes)
	since, at := midnight.Unix()/86_400, midnight.UnixMicro()
	err = h.detail.QueryRowContext(ctx, id, id, id, 1001, id, at, id, at, id, since+1, since, id).Scan(dest...)
	var sums [4]float64
	if err == nil && outcomes != nil {
		err = json.Unmarshal(outcomes, &sums)
	}
	d.Stats.SessionsToday, d.Stats.AvgResponseTimeMS = int64(sums[0]), new(int64(math.Round(sums[1])))
	if sums[3] > 0 {
		d.Stats.SuccessRate = new(math.Round(sums[2]/sums[3]*1e4) / 1e4)
	}
	return a, d, err
}

// rawPage is one page of a list.
type rawPage struct {
	Agents []rawAgent `json:"agents"`
	Total  *int64     `json:"total,omitempty"`
	Limit  int        `json:"limit"`
	Offset *int       `json:"offset,omitempty"`
}

func (h *rawReads) list(l rawList) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		page, err := l.read(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer(w, http.StatusOK, page)
	}
}

func (l rawList) read(r *http.Request) (rawPage, error) {
	values := r.URL.Query()
	var args []any
	for _, p := range l.params {
		var arg any = values.Get(p)
		if n, err := strconv.Atoi(values.Get(p)); err == nil {
			arg = n
		}
		args = append(args, arg)
	}
	page := rawPage{Limit: 100}
	if l.count != nil {
		page.Total = new(int64)
		if err := l.count.QueryRowContext(r.Context(), args...).Scan(page.Total); err != nil {
			return page, err
		}
	}
	args = append(args, page.Limit+1)
	if !values.Has("after") {
		page.Offset = new(int)
	}
	if text := values.Get("offset"); text != "" {
		offset, err := strconv.Atoi(text)
		if err != nil {
			return page, err
		}
		*page.Offset, args = offset, append(args, offset)
	}
	rows, err := l.page.QueryContext(r.Context(), args...)
	if err != nil {
		return page, err
	}
	defer func() { _ = rows.Close() }()
	page.Agents = make([]rawAgent, 0, page.Limit+1)
	for rows.Next() {
		var a rawAgent
		if err := rows.Scan(a.dest()...); err != nil {
			return page, err
		}
		page.Agents = append(page.Agents, a)
	}
	page.Agents = page.Agents[:min(len(page.Agents), page.Limit)]
	return page, rows.Err()
}

// answer encodes v and writes the response.
func answer(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
