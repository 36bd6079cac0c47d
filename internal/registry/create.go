package registry

import (
	"cmp"
	"context"
	"time"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/requestid"
	"comet/models"
	"comet/store"
	"comet/store/quotas"
)

// Created is a new agent with the warnings about its fields.
type Created struct {
	Agent    models.Agent
	Warnings []errs.Field
}

// Create adds an agent (CHE·NU §2.2). A principal without the admin scope adds L2 and L3 only. It
// reports every broken rule of the lowest class at once: errs.InvalidRequest, InvalidFrequency,
// ParentNotFound, InvalidParentLevel before AgentExists, SystemAgentExists, ParentInactive before
// BudgetExceedsMaximum. With once, a repeated request has no second effect.
func (r *Registry) Create(ctx context.Context, by models.Principal, d models.AgentDraft, once *models.Idempotency) (Created, error) {
	if d.Level != nil && *d.Level == models.LevelOrchestrator {
		if err := requireRank(by, *d.Level); err != nil {
			return Created{}, err
		}
	}
	v := r.checkDraft(d)
	if err := v.Err(); err != nil && errs.CodeOf(err).IsInvalid() {
		return Created{}, r.completeReport(ctx, d, v)
	}
	var out Created
	err := r.store.Once(ctx, once, func(tx *store.Tx) (_ any, err error) {
		out, err = r.create(ctx, tx, by, d, v)
		return out, err
	})
	return out, err
}

// completeReport adds the violations of the tree's rules to those of an invalid request.
func (r *Registry) completeReport(ctx context.Context, d models.AgentDraft, v errs.Violations) error {
	if d.Level != nil && d.Level.Valid() && d.ParentID != nil && !v.Has("/parent_id") && *d.Level != models.LevelSystem {
		err := checkParent(&v, models.Agent{Level: *d.Level, ParentID: d.ParentID}, func(id string) (models.Agent, error) {
			return r.store.Agents(ctx).Get(id)
		})
		if err != nil {
			return err
		}
	}
	return v.Err()
}

// create is Create inside the transaction; found are violations that are no invalid requests.
func (r *Registry) create(ctx context.Context, tx *store.Tx, by models.Principal, d models.AgentDraft, found errs.Violations) (Created, error) {
	v := append(errs.Violations(nil), found...)
	if *d.Level == models.LevelSystem {
		return Created{}, v.Err()
	}
	a := fromDraft(d)
	a.CreatedAt, a.UpdatedAt = tx.Now(), tx.Now()
	if err := authorize(tx.Agents().Confine, by, nil, a); err != nil {
		return Created{}, err
	}
	var parent models.Agent
	lock := func(id string) (_ models.Agent, err error) {
		parent, err = tx.Agents().LockShared(id)
		return parent, err
	}
	if err := checkParent(&v, a, lock); err != nil {
		return Created{}, err
	}
	if len(v) > 0 {
		return Created{}, r.addIDTaken(tx, a.ID, v)
	}
	a.SphereID = cmp.Or(a.SphereID, parent.SphereID)
	if err := r.insert(ctx, tx, by, a); err != nil {
		if errs.Is(err, errs.AgentExists) {
			err = errs.Violations{taken(a.ID)}.Err()
		}
		return Created{}, err
	}
	return Created{Agent: a, Warnings: r.warnings(a.Capabilities)}, quotas.Add(tx, by, "agents", a.ID)
}

// addIDTaken adds the violation that the id is taken, which precedes one of the budget.
func (r *Registry) addIDTaken(tx *store.Tx, id string, v errs.Violations) error {
	exists, err := tx.Agents().Exists(id)
	if err != nil {
		return err
	}
	if exists {
		v = append(errs.Violations{taken(id)}, v...)
	}
	return v.Err()
}

func taken(id string) errs.Field {
	return errs.Field{Code: errs.AgentExists, Pointer: "/id", Rule: "unique", Detail: "an agent with the id \"" + id + "\" already exists"}
}

// insert writes a new agent, its audit entry and its event.
func (r *Registry) insert(ctx context.Context, tx *store.Tx, by models.Principal, a models.Agent) error {
	if err := tx.Agents().Insert(a); err != nil {
		return err
	}
	if err := audit(ctx, tx, by, a, models.AuditCreated, creation(a)); err != nil {
		return err
	}
	tx.After(func() { r.changed(a) })
	return tx.Events().Emit(events.AgentCreated, a.ID, snapshot(a, by))
}

func snapshot(a models.Agent, by models.Principal) AgentSnapshot {
	return AgentSnapshot{
		AgentID: a.ID, ID: a.ID, Name: a.Name, Description: a.Description, Level: a.Level, SphereID: a.SphereID,
		FrequencyHz: a.FrequencyHz, Capabilities: a.Capabilities, Type: a.Type, ParentID: a.ParentID, TokenBudget: a.TokenBudget,
		BudgetScope: a.BudgetScope, IsActive: a.IsActive, Version: a.Version, CreatedAt: a.CreatedAt, Actor: by.Name,
	}
}

func audit(ctx context.Context, tx *store.Tx, by models.Principal, a models.Agent, action models.AuditAction, changes []models.Change) error {
	return tx.Agents().Audit(models.AuditEntry{
		AgentID: a.ID, Actor: by.Name, ActorID: by.TokenID, Action: action,
		RequestID: requestid.From(ctx), Version: a.Version, Changes: changes,
	})
}

// AgentSnapshot is the data of agent.created: the whole agent.
type AgentSnapshot struct {
	AgentID      string             `json:"agent_id"`       // The agent's id.
	ID           string             `json:"id"`             // The same as agent_id.
	Description  string             `json:"description"`    // What the agent does.
	Name         string             `json:"name"`           // The display name.
	Level        models.Level       `json:"level"`          // The level, 0 to 3.
	SphereID     *int               `json:"sphere_id"`      // The sphere, null only for L0.
	FrequencyHz  int                `json:"frequency_hz"`   // The frequency in Hz.
	Capabilities []string           `json:"capabilities"`   // What the agent can do.
	Type         string             `json:"type,omitempty"` // The agent type of the envelope protocol.
	ParentID     *string            `json:"parent_id"`      // The agent directly above, null only for L0.
	TokenBudget  *int64             `json:"token_budget"`   // Tokens per UTC day; null is unlimited, only for L0.
	BudgetScope  models.BudgetScope `json:"budget_scope"`   // Whose use counts against the budget.
	IsActive     bool               `json:"is_active"`      // Whether the agent is active.
	Version      int64              `json:"version"`        // The agent's version after the change.
	CreatedAt    time.Time          `json:"created_at"`     // When it was created.
	Actor        string             `json:"actor"`          // The name of the token that made the change.
}
