package registry

import (
	"context"
	"fmt"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
	"comet/store"
)

// Updated is a changed agent and what its author should know about it.
type Updated struct {
	// Detail is the agent as the change left it, whatever others do to it next.
	Detail   models.AgentDetail
	Warnings []errs.Field
}

// Update changes an agent (CHE·NU §2.3). Changing an L0 or L1 needs the admin
// scope. is_active: false passes the guards of Deactivate, is_active: true
// restores, and a new parent must be active and one level above. Rules are
// judged in the order 404, 403, 400, 409, 422, and the precondition last. A
// patch that changes nothing leaves no trace.
func (r *Registry) Update(ctx context.Context, by models.Principal, id string, p models.AgentPatch, pre models.Precondition) (Updated, error) {
	fields := input.Validate(p)
	checkNulls(&fields, p)
	if p.Capabilities.Set {
		r.checkCapabilities(&fields, p.Capabilities.Value)
	}
	var out Updated
	err := r.store.Write(ctx, func(tx *store.Tx) error {
		if movesChains(p) {
			if err := tx.LockChains(); err != nil {
				return err
			}
		}
		before, err := tx.Agent(id)
		if err != nil {
			return err
		}
		if err := requireRank(by, before.Level); err != nil {
			return err
		}
		v := append(errs.Violations(nil), fields...)
		checkImmutable(&v, before, p)
		after := apply(before, p)
		if err := checkChange(tx, &v, before, after, p); err != nil {
			return err
		}
		if err := v.Err(); err != nil {
			return err
		}
		if pre != nil {
			if err := pre(before.Version); err != nil {
				return err
			}
		}
		if err := save(ctx, tx, by, before, after); err != nil {
			return err
		}
		out.Detail, err = tx.AgentDetail(id)
		return err
	})
	if err == nil && p.Capabilities.Set {
		out.Warnings = r.warnings(out.Detail.Capabilities)
	}
	return out, err
}

// Deactivate is the soft delete of an agent (CHE·NU §2.4): errs.ProtectedAgent
// for L0 and L1, errs.ActiveChildren above active agents. An agent that is
// inactive already stays as it is.
func (r *Registry) Deactivate(ctx context.Context, by models.Principal, id string, pre models.Precondition) error {
	return r.store.Write(ctx, func(tx *store.Tx) error {
		if err := tx.LockChains(); err != nil {
			return err
		}
		before, err := tx.Agent(id)
		if err != nil {
			return err
		}
		var v errs.Violations
		after := before
		after.IsActive = false
		if err := checkDeactivation(tx, &v, before, after); err != nil {
			return err
		}
		if err := v.Err(); err != nil {
			return err
		}
		if pre != nil {
			if err := pre(before.Version); err != nil {
				return err
			}
		}
		return save(ctx, tx, by, before, after)
	})
}

// movesChains reports whether a patch names what the ledger decides by, so that no
// decision may be under way: it locks chains before agents, and so must the patch.
func movesChains(p models.AgentPatch) bool {
	return p.ParentID.Set || p.TokenBudget.Set || p.BudgetScope.Set || p.IsActive.Set
}

// checkNulls refuses null for members that have no empty value.
func checkNulls(v *errs.Violations, p models.AgentPatch) {
	for _, m := range []struct {
		pointer string
		null    bool
	}{
		{"/name", p.Name.Null}, {"/capabilities", p.Capabilities.Null}, {"/is_active", p.IsActive.Null},
		{"/budget_scope", p.BudgetScope.Null}, {"/id", p.ID.Null}, {"/level", p.Level.Null}, {"/frequency_hz", p.FrequencyHz.Null},
	} {
		if m.null {
			v.Add(errs.InvalidRequest, m.pointer, "not_null", "%s must not be null", m.pointer[1:])
		}
	}
}

// checkImmutable accepts id, level and frequency_hz with the value they have.
func checkImmutable(v *errs.Violations, a models.Agent, p models.AgentPatch) {
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
	if a.Level == models.LevelSystem {
		for _, m := range []struct {
			field string
			value bool
		}{
			{"sphere_id", p.SphereID.Set && !p.SphereID.Null},
			{"parent_id", p.ParentID.Set && !p.ParentID.Null},
			{"token_budget", p.TokenBudget.Set && !p.TokenBudget.Null},
		} {
			if m.value {
				v.Add(errs.InvalidRequest, "/"+m.field, "null_for_l0", "%s of the L0 agent is always null", m.field)
			}
		}
		checkRootScope(v, p.BudgetScope)
		return
	}
	for _, m := range []struct {
		field string
		null  bool
	}{{"sphere_id", p.SphereID.Null}, {"parent_id", p.ParentID.Null}, {"token_budget", p.TokenBudget.Null}} {
		if m.null {
			v.Add(errs.InvalidRequest, "/"+m.field, "not_null", "%s of an L%d agent must not be null", m.field, a.Level)
		}
	}
}

// apply returns the agent with the patch's members in place; null empties text.
func apply(a models.Agent, p models.AgentPatch) models.Agent {
	set(&a.Name, p.Name)
	set(&a.Description, p.Description)
	set(&a.Type, p.Type)
	set(&a.IsActive, p.IsActive)
	setValue(&a.BudgetScope, p.BudgetScope)
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

func set[T any](field *T, o models.Optional[T]) {
	if o.Set {
		*field = o.Value
	}
}

func setValue[T any](field *T, o models.Optional[T]) {
	if o.Set && !o.Null {
		*field = o.Value
	}
}

func setPointer[T any](field **T, o models.Optional[T]) {
	if o.Set && !o.Null {
		*field = &o.Value
	}
}

// checkChange judges the changed agent against its level and the tree.
func checkChange(tx *store.Tx, v *errs.Violations, before, after models.Agent, p models.AgentPatch) error {
	if after.Level == models.LevelSystem {
		return checkDeactivation(tx, v, before, after)
	}
	if p.TokenBudget.Set {
		checkBudget(v, after.Level, after.TokenBudget)
	}
	moved := !equal(before.ParentID, after.ParentID)
	restored := after.IsActive && !before.IsActive
	if (moved || restored) && !v.Has("/parent_id") {
		if err := checkParent(v, after, tx.AgentShared); err != nil {
			return err
		}
	}
	return checkDeactivation(tx, v, before, after)
}

// checkDeactivation judges the step from active to inactive (CHE·NU §2.4). The
// transaction has locked the agent, so no child can appear meanwhile.
func checkDeactivation(tx *store.Tx, v *errs.Violations, before, after models.Agent) error {
	if after.IsActive || !before.IsActive && before.Level > models.LevelOrchestrator {
		return nil
	}
	if before.Level <= models.LevelOrchestrator {
		v.Add(errs.ProtectedAgent, "/is_active", "protected", "%q is an L%d agent and cannot be deleted or deactivated", before.ID, before.Level)
		return nil
	}
	children, err := tx.HasActiveChildren(before.ID)
	if err != nil {
		return err
	}
	if children {
		v.Add(errs.ActiveChildren, "/is_active", "active_children", "%q has active children; move or deactivate them first", before.ID)
	}
	return nil
}

// save writes a changed agent with its audit line and events; without a change
// it writes nothing.
func save(ctx context.Context, tx *store.Tx, by models.Principal, before, after models.Agent) error {
	changes := diff(before, after)
	if len(changes) == 0 {
		return nil
	}
	after.Version, after.UpdatedAt = before.Version+1, tx.Now()
	if err := tx.UpdateAgent(before, after); err != nil {
		return err
	}
	action := actionOf(before, after)
	deactivated := action == models.AuditDeactivated
	if err := audit(ctx, tx, by, after, action, changes); err != nil {
		return err
	}
	data := models.AgentChanged{ID: after.ID, Version: after.Version, Actor: by.Name, Changes: changes}
	if !deactivated || len(changes) > 1 {
		if err := tx.Emit(models.EventAgentUpdated, after.ID, data); err != nil {
			return err
		}
	}
	if deactivated {
		return tx.Emit(models.EventAgentDeactivated, after.ID, data)
	}
	return nil
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
