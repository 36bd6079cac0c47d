package registry_test

import (
	"strings"

	"comet/internal/errs"
	"comet/internal/registry"
	"comet/models"
)

// patchErrors checks the members of a patch, alone and against the agent.
func patchErrors(a models.Agent, p registry.AgentPatch) named {
	var n named
	rule := func(broken bool, code errs.Code) {
		if broken {
			n = append(n, code)
		}
	}
	value := func(set, null bool) bool { return set && !null }
	rule(p.Name.Null || p.Capabilities.Null || p.IsActive.Null || p.BudgetScope.Null || p.ID.Null || p.Level.Null || p.FrequencyHz.Null, errs.InvalidRequest)
	rule(value(p.Name.Set, p.Name.Null) && strings.TrimSpace(p.Name.Value) == "", errs.InvalidRequest)
	rule(repeated(p.Capabilities.Value), errs.InvalidRequest)
	rule(value(p.ParentID.Set, p.ParentID.Null) && !idForm.MatchString(p.ParentID.Value), errs.InvalidRequest)
	rule(value(p.TokenBudget.Set, p.TokenBudget.Null) && p.TokenBudget.Value < 1000, errs.InvalidRequest)
	rule(value(p.BudgetScope.Set, p.BudgetScope.Null) && (!scopeFits(p.BudgetScope.Value) || a.Level == 0 && p.BudgetScope.Value != "own"), errs.InvalidRequest)
	rule(value(p.ID.Set, p.ID.Null) && p.ID.Value != a.ID, errs.ImmutableField)
	rule(value(p.Level.Set, p.Level.Null) && p.Level.Value != a.Level, errs.ImmutableField)
	rule(value(p.FrequencyHz.Set, p.FrequencyHz.Null) && p.FrequencyHz.Value != a.FrequencyHz, errs.ImmutableField)
	if a.Level == 0 {
		rule(value(p.SphereID.Set, p.SphereID.Null) || value(p.ParentID.Set, p.ParentID.Null) || value(p.TokenBudget.Set, p.TokenBudget.Null), errs.InvalidRequest)
	} else {
		rule(p.SphereID.Null || p.ParentID.Null || p.TokenBudget.Null, errs.InvalidRequest)
	}
	return n
}

func patched(a models.Agent, p registry.AgentPatch) models.Agent {
	assign(&a.Name, p.Name)
	assign(&a.Description, p.Description)
	assign(&a.Type, p.Type)
	assign(&a.IsActive, p.IsActive)
	if p.Capabilities.Set && !p.Capabilities.Null {
		a.Capabilities = append([]string{}, p.Capabilities.Value...)
	}
	if p.SphereID.Set && !p.SphereID.Null {
		a.SphereID = new(p.SphereID.Value)
	}
	if p.ParentID.Set && !p.ParentID.Null {
		a.ParentID = new(p.ParentID.Value)
	}
	if p.TokenBudget.Set && !p.TokenBudget.Null {
		a.TokenBudget = new(p.TokenBudget.Value)
	}
	if !p.BudgetScope.Null {
		assign(&a.BudgetScope, p.BudgetScope)
	}
	return a
}

func assign[T any](field *T, o models.Optional[T]) {
	if o.Set {
		*field = o.Value
	}
}
