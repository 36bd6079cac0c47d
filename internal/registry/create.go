package registry

import (
	"context"

	"comet/internal/errs"
	"comet/internal/requestid"
	"comet/models"
	"comet/store"
)

// Created is a new agent and what its author should know about it.
type Created struct {
	Agent    models.Agent
	Warnings []errs.Field
}

// Create adds an agent (CHE·NU §2.2). A principal without the admin scope adds
// L2 and L3 only. It reports every broken rule of the lowest class at once:
// errs.InvalidRequest, InvalidFrequency, ParentNotFound, InvalidParentLevel
// before AgentExists, SystemAgentExists, ParentInactive before
// BudgetExceedsMaximum. With once, a repeated request has no second effect.
func (r *Registry) Create(ctx context.Context, by models.Principal, d models.AgentDraft, once *models.Idempotency) (Created, error) {
	if d.Level != nil && *d.Level == models.LevelOrchestrator {
		if err := requireRank(by, *d.Level); err != nil {
			return Created{}, err
		}
	}
	v := r.checkDraft(d)
	if err := v.Err(); err != nil && errs.CodeOf(err).Class() == errs.ClassInvalid {
		return Created{}, r.completeReport(ctx, d, v)
	}
	var out Created
	err := r.store.Write(ctx, func(tx *store.Tx) error {
		return tx.Idempotent(once, func() (any, error) {
			var err error
			out, err = r.create(ctx, tx, by, d, v)
			return out, err
		})
	})
	return out, err
}

// completeReport adds what only the tree knows to a request that is invalid
// already, so that its author can mend everything in one go.
func (r *Registry) completeReport(ctx context.Context, d models.AgentDraft, v errs.Violations) error {
	if d.Level != nil && d.Level.Valid() && d.ParentID != nil && !v.Has("/parent_id") && *d.Level != models.LevelSystem {
		err := checkParent(&v, models.Agent{Level: *d.Level, ParentID: d.ParentID}, func(id string) (models.Agent, error) {
			return r.store.Agent(ctx, id)
		})
		if err != nil {
			return err
		}
	}
	return v.Err()
}

// create is Create inside the transaction; found are the violations so far, none
// of them of the class of invalid requests.
func (r *Registry) create(ctx context.Context, tx *store.Tx, by models.Principal, d models.AgentDraft, found errs.Violations) (Created, error) {
	v := append(errs.Violations(nil), found...)
	if *d.Level == models.LevelSystem {
		return Created{}, v.Err()
	}
	a := fromDraft(d)
	a.CreatedAt, a.UpdatedAt = tx.Now(), tx.Now()
	if err := checkParent(&v, a, tx.AgentShared); err != nil {
		return Created{}, err
	}
	if len(v) > 0 {
		return Created{}, r.takenToo(tx, a.ID, v)
	}
	if err := insert(ctx, tx, by, a); err != nil {
		if errs.Is(err, errs.AgentExists) {
			err = idTaken(a.ID)
		}
		return Created{}, err
	}
	return Created{Agent: a, Warnings: r.warnings(a.Capabilities)}, nil
}

// takenToo adds that the id is taken, which counts for more than a budget that
// is too high.
func (r *Registry) takenToo(tx *store.Tx, id string, v errs.Violations) error {
	exists, err := tx.AgentExists(id)
	if err != nil {
		return err
	}
	if exists {
		v = append(errs.Violations{taken(id)}, v...)
	}
	return v.Err()
}

func idTaken(id string) error { return errs.Violations{taken(id)}.Err() }

func taken(id string) errs.Violation {
	return errs.Violation{Code: errs.AgentExists, Field: errs.Field{
		Pointer: "/id", Rule: "unique", Detail: "an agent with the id \"" + id + "\" already exists",
	}}
}

// insert writes a new agent, its audit line and its event.
func insert(ctx context.Context, tx *store.Tx, by models.Principal, a models.Agent) error {
	if err := tx.InsertAgent(a); err != nil {
		return err
	}
	if err := audit(ctx, tx, by, a, models.AuditCreated, creation(a)); err != nil {
		return err
	}
	return tx.Emit(models.EventAgentCreated, a.ID, models.AgentSnapshot{
		ID: a.ID, Name: a.Name, Level: a.Level, SphereID: a.SphereID, FrequencyHz: a.FrequencyHz, Capabilities: a.Capabilities,
		Type: a.Type, ParentID: a.ParentID, TokenBudget: a.TokenBudget, BudgetScope: a.BudgetScope, IsActive: a.IsActive,
		Version: a.Version, CreatedAt: a.CreatedAt, Actor: by.Name,
	})
}

func audit(ctx context.Context, tx *store.Tx, by models.Principal, a models.Agent, action models.AuditAction, changes []models.Change) error {
	return tx.Audit(models.AuditEntry{
		AgentID: a.ID, Actor: by.Name, ActorID: by.TokenID, Action: action,
		RequestID: requestid.From(ctx), Version: a.Version, Changes: changes,
	})
}
