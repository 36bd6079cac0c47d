package registry

import (
	"cmp"
	"context"
	"fmt"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/input"
	"comet/models"
	"comet/store"
	"comet/store/quotas"
)

// Updated is a changed agent with the warnings about its fields.
type Updated struct {
	// Detail is the agent directly after the change, without later changes.
	Detail   models.AgentDetail
	Warnings []errs.Field
}

// Update changes an agent (CHE·NU §2.3). Changing an L0 or L1 needs the admin scope. is_active: false
// passes the guards of Deactivate, is_active: true restores, and a new parent must be active and one
// level above. Rules are checked in the order 404, 403, 400, 409, 422, then the precondition, and last the
// quota of a restored agent. A patch that changes nothing writes no audit entry and no event.
func (r *Registry) Update(ctx context.Context, by models.Principal, id string, p AgentPatch, pre models.Precondition) (Updated, error) {
	fields := input.ValidatePatch(p)
	if p.Capabilities.Set {
		r.checkCapabilities(&fields, p.Capabilities.Value)
	}
	var out Updated
	err := r.store.Write(ctx, func(tx *store.Tx) error {
		err := r.change(ctx, tx, by, id, p, fields, pre, false)
		if err == nil {
			out.Detail, err = tx.Agents().Detail(id, tx.Now())
		}
		if err == nil && p.ParentID.Set && !p.SphereID.Set {
			out.Warnings, err = sphereWarning(tx, out.Detail.Agent)
		}
		return err
	})
	if err == nil && p.Capabilities.Set {
		out.Warnings = append(out.Warnings, r.warnings(out.Detail.Capabilities)...)
	}
	return out, err
}

// Deactivate is the soft delete of an agent (CHE·NU §2.4): errs.ProtectedAgent for L0 and L1,
// errs.ActiveChildren above active agents. An agent that is inactive already stays as it is.
func (r *Registry) Deactivate(ctx context.Context, by models.Principal, id string, pre models.Precondition) error {
	return r.store.Write(ctx, func(tx *store.Tx) error {
		return r.change(ctx, tx, by, id, AgentPatch{IsActive: models.Some(false)}, nil, pre, true)
	})
}

// change changes an agent; found contains the violations that need no database. A deletion needs no rank,
// because no principal may delete an L0 or L1.
func (r *Registry) change(ctx context.Context, tx *store.Tx, by models.Principal, id string, p AgentPatch, found errs.Violations, pre models.Precondition, deletion bool) error {
	// The ledger's decisions depend on these fields, and it locks chains before agents.
	if p.ParentID.Set || p.TokenBudget.Set || p.BudgetScope.Set || p.IsActive.Set {
		if err := tx.Agents().LockChains(); err != nil {
			return err
		}
	}
	before, err := tx.Agents().Lock(id)
	if err == nil && !deletion {
		err = requireRank(by, before.Level)
	}
	if err != nil {
		return err
	}
	v := append(errs.Violations(nil), found...)
	checkImmutable(&v, before, p)
	after := apply(before, p)
	if err := authorize(tx.Agents().Confine, by, &before, after); err != nil {
		return err
	}
	if err := checkChange(tx, &v, before, after, p); err != nil {
		return err
	}
	if err := cmp.Or(v.Err(), pre.Check(before.Version)); err != nil {
		return err
	}
	if err := r.save(ctx, tx, by, before, after); err != nil || actionOf(before, after) != models.AuditRestored {
		return err
	}
	return quotas.Restore(tx, by, id)
}

// sphereWarning returns a warning if an agent is in another sphere than its parent.
func sphereWarning(tx *store.Tx, a models.Agent) ([]errs.Field, error) {
	parent, err := tx.Agents().Get(*cmp.Or(a.ParentID, new(models.RootAgentID)))
	if err != nil || parent.SphereID == nil || a.SphereID == nil || *parent.SphereID == *a.SphereID {
		return nil, err
	}
	return []errs.Field{{Pointer: "/sphere_id", Rule: "sphere_of_parent", Detail: fmt.Sprintf(
		"%q stays in sphere %d, and its parent is in sphere %d; set sphere_id, too, to move it there", a.ID, *a.SphereID, *parent.SphereID)}}, nil
}

// checkImmutable accepts id, level and frequency_hz with the value they have.
func checkImmutable(v *errs.Violations, a models.Agent, p AgentPatch) {
	refuse := func(field string, has, wanted any) {
		v.Add(errs.ImmutableField, "/"+field, "immutable", "%s cannot be changed from %v to %v", field, has, wanted)
	}
	if p.ID.Set && !p.ID.Null && p.ID.Value != a.ID {
		refuse("id", fmt.Sprintf("%q", a.ID), input.Quote(p.ID.Value))
	}
	if p.Level.Set && !p.Level.Null && p.Level.Value != a.Level {
		refuse("level", a.Level, p.Level.Value)
	}
	if p.FrequencyHz.Set && !p.FrequencyHz.Null && p.FrequencyHz.Value != a.FrequencyHz {
		refuse("frequency_hz", a.FrequencyHz, p.FrequencyHz.Value)
	}
	if p.SelfRegistered.Value && !a.SelfRegistered {
		refuse("self_registered", false, true)
	}
	root := a.Level == models.LevelSystem
	for _, m := range []struct {
		field     string
		set, null bool
	}{
		{"sphere_id", p.SphereID.Set, p.SphereID.Null},
		{"parent_id", p.ParentID.Set, p.ParentID.Null},
		{"token_budget", p.TokenBudget.Set, p.TokenBudget.Null},
	} {
		switch {
		case root && m.set && !m.null:
			v.Add(errs.InvalidRequest, "/"+m.field, "null_for_l0", "%s of the L0 agent is always null", m.field)
		case !root && m.null:
			v.Add(errs.InvalidRequest, "/"+m.field, "not_null", "%s of an L%d agent must not be null", m.field, a.Level)
		}
	}
	if root {
		checkRootScope(v, p.BudgetScope)
	}
}

// apply returns the agent with the patch's members in place; null empties text.
func apply(a models.Agent, p AgentPatch) models.Agent {
	p.Name.Apply(&a.Name)
	p.Description.Apply(&a.Description)
	p.Type.Apply(&a.Type)
	p.IsActive.Apply(&a.IsActive)
	p.SelfRegistered.Apply(&a.SelfRegistered)
	p.BudgetScope.Apply(&a.BudgetScope)
	if p.Capabilities.Set && !p.Capabilities.Null {
		a.Capabilities = p.Capabilities.Value
		if a.Capabilities == nil {
			a.Capabilities = []string{}
		}
	}
	setPointer(&a.SphereID, p.SphereID)
	setPointer(&a.ParentID, p.ParentID)
	setPointer(&a.TokenBudget, p.TokenBudget)
	return a
}

func setPointer[T any](field **T, o models.Optional[T]) {
	if o.Set && !o.Null {
		*field = &o.Value
	}
}

// checkChange checks the changed agent against the rules of its level and the tree.
func checkChange(tx *store.Tx, v *errs.Violations, before, after models.Agent, p AgentPatch) error {
	if after.Level == models.LevelSystem {
		return checkDeactivation(tx, v, before, after)
	}
	if p.TokenBudget.Set {
		checkBudget(v, after.Level, after.TokenBudget)
	}
	moved := deref(before.ParentID) != deref(after.ParentID)
	restored := after.IsActive && !before.IsActive
	if (moved || restored) && !v.Has("/parent_id") {
		if err := checkParent(v, after, tx.Agents().LockShared); err != nil {
			return err
		}
	}
	return checkDeactivation(tx, v, before, after)
}

// checkDeactivation checks whether an agent may be deactivated (CHE·NU §2.4). The transaction
// has locked the agent, so no child can be added concurrently.
func checkDeactivation(tx *store.Tx, v *errs.Violations, before, after models.Agent) error {
	if after.IsActive || !before.IsActive && before.Level > models.LevelOrchestrator {
		return nil
	}
	if before.Level <= models.LevelOrchestrator {
		v.Add(errs.ProtectedAgent, "/is_active", "protected", "%q is an L%d agent and cannot be deleted or deactivated", before.ID, before.Level)
		return nil
	}
	children, err := tx.Agents().HasActiveChildren(before.ID)
	if err == nil && children {
		v.Add(errs.ActiveChildren, "/is_active", "active_children", "%q has active children; move or deactivate them first", before.ID)
	}
	return err
}

// save writes a changed agent with its audit entry and events, without a change nothing.
func (r *Registry) save(ctx context.Context, tx *store.Tx, by models.Principal, before, after models.Agent) error {
	changes := diff(before, after)
	if len(changes) == 0 {
		return nil
	}
	after.Version, after.UpdatedAt = before.Version+1, tx.Now()
	if err := tx.Agents().Update(before, after); err != nil {
		return err
	}
	tx.After(func() { r.changed(after) })
	action := actionOf(before, after)
	err := audit(ctx, tx, by, after, action, changes)
	if err == nil && after.TokenBudget != nil && *after.TokenBudget > *cmp.Or(before.TokenBudget, after.TokenBudget) {
		err = tx.Ledger().Rearm(after.ID)
	}
	data := AgentChanged{snapshot(after, by), changes}
	deactivated := action == models.AuditDeactivated
	if err == nil && (!deactivated || len(changes) > 1) {
		err = tx.Events().Emit(events.AgentUpdated, after.ID, data)
	}
	if err == nil && deactivated {
		err = tx.Events().Emit(events.AgentDeactivated, after.ID, data)
	}
	return err
}

func actionOf(before, after models.Agent) models.AuditAction {
	switch {
	case before.IsActive && !after.IsActive:
		return models.AuditDeactivated
	case after.IsActive && !before.IsActive:
		return models.AuditRestored
	}
	return models.AuditUpdated
}

// AgentPatch is a request to change the members that are present (CHE·NU §2.3). The immutable ones
// may be sent with their present values.
type AgentPatch struct {
	Name         models.Optional[string]             `json:"name" validate:"omitnil,notblank,printable,max=120" swaggertype:"string" example:"Updated Assistant Name" minLength:"1" maxLength:"120"`              // The display name.
	Description  models.Optional[string]             `json:"description" validate:"omitnil,text,max=2000" swaggertype:"string" example:"Helps organise daily stand-ups" maxLength:"2000" extensions:"x-nullable"` // What the agent does; null removes it.
	Type         models.Optional[string]             `json:"type" validate:"omitempty,word" swaggertype:"string" example:"research" maxLength:"64" extensions:"x-nullable"`                                       // The agent type of the envelope protocol; null removes it.
	Capabilities models.Optional[[]string]           `json:"capabilities" validate:"omitnil,max=256,unique,dive,capability" swaggertype:"array,string" example:"scheduling,reminders"`                            // What the agent can do; replaces the whole list.
	SphereID     models.Optional[int]                `json:"sphere_id" validate:"omitnil,min=1,max=9" swaggertype:"integer" example:"2" minimum:"1" maximum:"9" extensions:"x-nullable"`                          // The sphere; null only for L0.
	ParentID     models.Optional[string]             `json:"parent_id" validate:"omitnil,agentid" swaggertype:"string" example:"project-business" maxLength:"64" extensions:"x-nullable"`                         // The agent directly above; null only for L0.
	TokenBudget  models.Optional[int64]              `json:"token_budget" validate:"omitnil,min=1000" swaggertype:"integer" example:"25000" minimum:"1000" maximum:"500000" extensions:"x-nullable"`              // Tokens per UTC day; null is unlimited, only for L0.
	BudgetScope  models.Optional[models.BudgetScope] `json:"budget_scope" validate:"omitnil,oneof=own subtree" swaggertype:"string" example:"subtree" enums:"own,subtree"`                                        // Whose use counts against the budget: the agent's own, or also that of its descendants.
	IsActive     models.Optional[bool]               `json:"is_active" swaggertype:"boolean" example:"false"`                                                                                                     // false deletes the agent, true restores it.
	// false makes an agent that registered itself one that needs a token or a key. true is accepted only if it is the current value.
	SelfRegistered models.Optional[bool] `json:"self_registered" swaggertype:"boolean" example:"false"`

	ID          models.Optional[string]       `json:"id" swaggertype:"string" example:"custom-assistant" maxLength:"64"` // Immutable.
	Level       models.Optional[models.Level] `json:"level" swaggertype:"integer" example:"3" minimum:"0" maximum:"3"`   // Immutable.
	FrequencyHz models.Optional[int]          `json:"frequency_hz" swaggertype:"integer" example:"444"`                  // Immutable.
}

// AgentChanged is the data of agent.updated and agent.deactivated: the agent after the change.
type AgentChanged struct {
	AgentSnapshot
	Changes []models.Change `json:"changes"` // The changed members.
}
