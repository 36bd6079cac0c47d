package registry

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
)

// broadcast is the address of all agents, and no id.
const broadcast = "broadcast"

// checkDraft checks the rules of a create request that need no other agents: its fields, and
// the fields that depend on its level (CHE·NU §2.2, §4.2, §5.1).
func (r *Registry) checkDraft(d models.AgentDraft) errs.Violations {
	v := input.Validate(d)
	if d.ID != nil && *d.ID == broadcast {
		v.Add(errs.InvalidRequest, "/id", "reserved", "id must not be %s, which addresses all agents", broadcast)
	}
	r.checkCapabilities(&v, d.Capabilities)
	if d.Level == nil || !d.Level.Valid() {
		return v
	}
	level := *d.Level
	if d.FrequencyHz != nil {
		checkFrequency(&v, level, *d.FrequencyHz)
	}
	if level == models.LevelSystem {
		v.Add(errs.SystemAgentExists, "/level", "single_root", "there is one L0 agent, %s; a second cannot be created", models.RootAgentID)
		return v
	}
	if d.SphereID == nil && level == models.LevelOrchestrator {
		v.Add(errs.InvalidRequest, "/sphere_id", "required", "sphere_id is required for an L%d agent", level)
	}
	if d.ParentID == nil && level != models.LevelOrchestrator {
		v.Add(errs.InvalidRequest, "/parent_id", "required", "parent_id is required: the parent of an L%d agent must be an L%d agent", level, level-1)
	}
	if d.TokenBudget.Null {
		v.Add(errs.InvalidRequest, "/token_budget", "not_null", "token_budget of an L%d agent must not be null; leave it out for the default of %d", level, *level.DefaultBudget())
	}
	if d.BudgetScope.Null {
		v.Add(errs.InvalidRequest, "/budget_scope", "not_null", "budget_scope must not be null; leave it out for %s", models.ScopeOwn)
	}
	checkBudget(&v, level, d.TokenBudget.Pointer())
	return v
}

// fromDraft returns the agent a valid draft describes, with the defaults of its level. Its sphere may be
// missing.
func fromDraft(d models.AgentDraft) models.Agent {
	a := models.Agent{
		ID: *d.ID, Name: *d.Name, Level: *d.Level, SphereID: d.SphereID, FrequencyHz: *cmp.Or(d.FrequencyHz, new(d.Level.Frequencies()[0])),
		Capabilities: d.Capabilities, Description: d.Description, Type: d.Type, ParentID: cmp.Or(d.ParentID, new(models.RootAgentID)),
		TokenBudget: cmp.Or(d.TokenBudget.Pointer(), d.Level.DefaultBudget()), BudgetScope: models.ScopeOwn, IsActive: true,
		SelfRegistered: d.SelfRegistered, Version: 1,
	}
	d.BudgetScope.Apply(&a.BudgetScope)
	if a.Capabilities == nil {
		a.Capabilities = []string{}
	}
	return a
}

func checkFrequency(v *errs.Violations, level models.Level, hz int) {
	if level.AllowsFrequency(hz) {
		return
	}
	allowed := make([]string, 0, 2)
	for _, f := range level.Frequencies() {
		allowed = append(allowed, fmt.Sprintf("%d Hz", f))
	}
	v.Add(errs.InvalidFrequency, "/frequency_hz", "frequency_level", "an L%d agent runs at %s, not %d Hz", level, strings.Join(allowed, " or "), hz)
}

// checkRootScope rejects any budget scope but own for the L0 agent.
func checkRootScope(v *errs.Violations, scope models.Optional[models.BudgetScope]) {
	if scope.Set && !scope.Null && scope.Value != models.ScopeOwn && !v.Has("/budget_scope") {
		v.Add(errs.InvalidRequest, "/budget_scope", "own_for_l0", "budget_scope of the L0 agent is always %s; its budget is unlimited", models.ScopeOwn)
	}
}

// checkBudget compares with the level's maximum; the minimum is a field rule.
func checkBudget(v *errs.Violations, level models.Level, budget *int64) {
	if most := level.MaxBudget(); budget != nil && most != nil && *budget > *most {
		v.Add(errs.BudgetExceedsMaximum, "/token_budget", "level_max", "the token budget of an L%d agent is at most %d, not %d", level, *most, *budget)
	}
}

// checkCapabilities rejects capabilities outside the predefined set if the server is strict.
func (r *Registry) checkCapabilities(v *errs.Violations, names []string) {
	if !r.opts.StrictCapabilities {
		return
	}
	for _, w := range capabilityWarnings(names) {
		w.Code = errs.InvalidRequest
		*v = append(*v, w)
	}
}

// warnings lists the capabilities that should carry the custom: prefix.
func (r *Registry) warnings(names []string) []errs.Field {
	if r.opts.StrictCapabilities {
		return nil
	}
	return capabilityWarnings(names)
}

// capabilityWarnings returns warnings for names within the limits; other rules reject the rest.
func capabilityWarnings(names []string) []errs.Field {
	var out []errs.Field
	standard := strings.Fields(standardCapabilities)
	for i, name := range names[:min(len(names), MaxCapabilities)] {
		if !slices.Contains(standard, name) && models.CapabilityKey(name) == name {
			shown := input.ClipTo(name, input.MaxCapability)
			detail := fmt.Sprintf("%q is not a predefined capability; write %q", shown, "custom:"+shown)
			if meant := input.DidYouMean(name, standard); meant != "" {
				detail = fmt.Sprintf("%q is not a predefined capability%s Otherwise write %q", shown, meant, "custom:"+shown)
			}
			out = append(out, errs.Field{Pointer: fmt.Sprintf("/capabilities/%d", i), Rule: "custom_prefix", Detail: detail})
		}
	}
	return out
}

// checkParent validates an agent's parent (CHE·NU §3.2). lookup returns it or errs.NotFound.
func checkParent(v *errs.Violations, a models.Agent, lookup func(string) (models.Agent, error)) error {
	if a.ParentID == nil {
		return nil
	}
	parent, err := lookup(*a.ParentID)
	if errs.Is(err, errs.NotFound) {
		v.Add(errs.ParentNotFound, "/parent_id", "exists", "there is no agent %q", *a.ParentID)
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case parent.Level != a.Level-1:
		v.Add(errs.InvalidParentLevel, "/parent_id", "parent_level", "the parent of an L%d agent must be an L%d agent; %q is an L%d agent", a.Level, a.Level-1, parent.ID, parent.Level)
	case a.IsActive && !parent.IsActive:
		v.Add(errs.ParentInactive, "/parent_id", "parent_active", "the parent %q is inactive", parent.ID)
	}
	return nil
}

// members lists the fields of an agent in the order of the specification, as changes from nothing.
func members(a models.Agent) []models.Change {
	return []models.Change{
		{Field: "name", To: a.Name},
		{Field: "level", To: a.Level},
		{Field: "sphere_id", To: deref(a.SphereID)},
		{Field: "frequency_hz", To: a.FrequencyHz},
		{Field: "capabilities", To: append([]string{}, a.Capabilities...)},
		{Field: "description", To: a.Description},
		{Field: "type", To: a.Type},
		{Field: "parent_id", To: deref(a.ParentID)},
		{Field: "token_budget", To: deref(a.TokenBudget)},
		{Field: "budget_scope", To: a.BudgetScope},
		{Field: "is_active", To: a.IsActive},
		{Field: "self_registered", To: a.SelfRegistered},
	}
}

func diff(before, after models.Agent) []models.Change {
	var out []models.Change
	was := members(before)
	for i, m := range members(after) {
		if !reflect.DeepEqual(was[i].To, m.To) {
			out = append(out, models.Change{Field: m.Field, From: was[i].To, To: m.To})
		}
	}
	return out
}

// creation lists a new agent's fields, the optional ones last.
func creation(a models.Agent) []models.Change {
	isOptional := func(m models.Change) bool {
		return m.Field == "description" || m.Field == "type" || m.Field == "self_registered"
	}
	optional := slices.DeleteFunc(members(a), func(m models.Change) bool { return !isOptional(m) || m.To == "" || m.To == false })
	return append(slices.DeleteFunc(members(a), isOptional), optional...)
}

func deref[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

// Spheres are numbered MinSphere to MaxSphere (CHE·NU §2.2).
const (
	MinSphere = 1
	MaxSphere = 9
)

// standardCapabilities are the predefined capabilities of CHE·NU §6.1 and of the protocols' tables.
const standardCapabilities = `
	budgeting expense_tracking savings invoicing accounting payroll tax_planning
	email chat notifications reminders
	data_analysis reporting forecasting
	writing editing design media_production
	scheduling task_management project_planning
	web_search web_fetch code_read code_write code_exec file_ops
	text_gen summarize translate reason plan`

// MaxCapabilities is the maximum number of capabilities of an agent.
const MaxCapabilities = 256
