package bench

import (
	"context"
	"database/sql"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/events"
	"comet/internal/registry"
	"comet/internal/requestid"
	"comet/models"
)

const (
	parentSQL = "SELECT " + columns + " FROM agents WHERE id = ?"
	insertSQL = `INSERT INTO agents (` + columns + `, search_text)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`
	indexSQL = "INSERT INTO agent_capabilities (capability, agent_id) VALUES (?, ?), (?, ?), (?, ?) ON CONFLICT DO NOTHING"
	auditSQL = `INSERT INTO audit (agent_id, at, actor, actor_id, action, request_id, version, changes, reason)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`
	eventSQL = "INSERT INTO events (id, type, key, at, data) VALUES (?, ?, ?, ?, ?)"
)

// rawWriter creates agents with the store's statements, in one transaction per request, on one
// connection with synchronous=FULL.
type rawWriter struct {
	clock func() time.Time

	mu                                                          sync.Mutex
	begin, commit, rollback, parent, insert, index, audit, emit *sql.Stmt
}

func openRawWriter(b *testing.B, g testDatabase) *rawWriter {
	b.Helper()
	conn, err := g.raw(b, 1).Conn(detached())
	require.NoError(b, err)
	prepare := func(query string) *sql.Stmt {
		st, err := conn.PrepareContext(detached(), query)
		require.NoError(b, err, query)
		return st
	}
	b.Cleanup(func() { _ = conn.Close() })
	return &rawWriter{
		clock: g.clock, begin: prepare("BEGIN IMMEDIATE"), commit: prepare("COMMIT"), rollback: prepare("ROLLBACK"),
		parent: prepare(parentSQL), insert: prepare(insertSQL), index: prepare(indexSQL), audit: prepare(auditSQL), emit: prepare(eventSQL),
	}
}

func (h *rawWriter) mount(r chi.Router) { r.Post("/bench/raw/agents", h.create) }

// rawDraft is the body of a create request.
type rawDraft struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"`
	Level        int      `json:"level"`
	SphereID     int      `json:"sphere_id"`
	FrequencyHz  int      `json:"frequency_hz"`
	Capabilities []string `json:"capabilities"`
	Description  string   `json:"description"`
	ParentID     string   `json:"parent_id"`
	TokenBudget  int64    `json:"token_budget"`
}

type rawCreated struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
	Status    string    `json:"status"`
}

func (h *rawWriter) create(w http.ResponseWriter, r *http.Request) {
	var d rawDraft
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	at := h.clock().UTC().Truncate(time.Microsecond)
	if err := h.transact(r.Context(), d.agent(at)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, http.StatusCreated, rawCreated{ID: d.ID, Name: d.Name, CreatedAt: at, Status: "active"})
}

func (h *rawWriter) transact(ctx context.Context, a models.Agent) error {
	p, _ := auth.From(ctx)
	rows, err := rowsOf(a, p, requestid.From(ctx))
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := h.begin.ExecContext(ctx); err != nil {
		return err
	}
	if err := h.write(ctx, a, rows); err != nil {
		_, _ = h.rollback.ExecContext(ctx)
		return err
	}
	_, err = h.commit.ExecContext(ctx)
	return err
}

// agentRows are the arguments of the statements that create an agent.
type agentRows struct{ insert, index, audit, emit []any }

func rowsOf(a models.Agent, p models.Principal, requestID string) (rows agentRows, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return rows, err
	}
	capabilities, changes, data := mustJSON(a.Capabilities), mustJSON(creation(a)), mustJSON(snapshot(a, p.Name))
	at := a.CreatedAt.UnixMicro()
	for _, c := range a.Capabilities {
		rows.index = append(rows.index, models.CapabilityKey(c), a.ID)
	}
	return agentRows{
		index: rows.index,
		insert: []any{
			a.ID, a.Name, int(a.Level), *a.SphereID, a.FrequencyHz, capabilities, a.Description, a.Type, *a.ParentID, *a.TokenBudget,
			string(a.BudgetScope), a.IsActive, a.Version, at, at, strings.ToLower(a.ID + "\x1f" + a.Name + "\x1f" + a.Description),
		},
		audit: []any{a.ID, at, p.Name, p.TokenID, string(models.AuditCreated), requestID, a.Version, changes, ""},
		emit:  []any{id.String(), string(events.AgentCreated), a.ID, at, data},
	}, nil
}

func (h *rawWriter) write(ctx context.Context, a models.Agent, rows agentRows) error {
	var parent rawAgent
	if err := h.parent.QueryRowContext(ctx, *a.ParentID).Scan(parent.dest()...); err != nil {
		return err
	}
	if _, err := h.insert.ExecContext(ctx, rows.insert...); err != nil {
		return err
	}
	if _, err := h.index.ExecContext(ctx, rows.index...); err != nil {
		return err
	}
	if _, err := h.audit.ExecContext(ctx, rows.audit...); err != nil {
		return err
	}
	_, err := h.emit.ExecContext(ctx, rows.emit...)
	return err
}

func (d rawDraft) agent(at time.Time) models.Agent {
	return models.Agent{
		ID: d.ID, Name: d.Name, Level: models.Level(d.Level), SphereID: &d.SphereID, FrequencyHz: d.FrequencyHz,
		Capabilities: d.Capabilities, Description: d.Description, ParentID: &d.ParentID, TokenBudget: &d.TokenBudget,
		BudgetScope: models.ScopeOwn, IsActive: true, Version: 1, CreatedAt: at, UpdatedAt: at,
	}
}

// creation is the audit entry of a new agent.
func creation(a models.Agent) []models.Change {
	return []models.Change{
		{Field: "name", To: a.Name}, {Field: "level", To: a.Level}, {Field: "sphere_id", To: *a.SphereID},
		{Field: "frequency_hz", To: a.FrequencyHz}, {Field: "capabilities", To: a.Capabilities}, {Field: "parent_id", To: *a.ParentID},
		{Field: "token_budget", To: *a.TokenBudget}, {Field: "budget_scope", To: a.BudgetScope}, {Field: "is_active", To: a.IsActive},
		{Field: "description", To: a.Description},
	}
}

// snapshot is the event of a new agent.
func snapshot(a models.Agent, actor string) registry.AgentSnapshot {
	return registry.AgentSnapshot{
		AgentID: a.ID, ID: a.ID, Name: a.Name, Description: a.Description, Level: a.Level, SphereID: a.SphereID, FrequencyHz: a.FrequencyHz, Capabilities: a.Capabilities,
		Type: a.Type, ParentID: a.ParentID, TokenBudget: a.TokenBudget, BudgetScope: a.BudgetScope, IsActive: a.IsActive, Version: a.Version,
		CreatedAt: a.CreatedAt, Actor: actor,
	}
}

func mustJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return string(text)
}
