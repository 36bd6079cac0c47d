package registry

import (
	"cmp"
	"slices"
	"strconv"

	"comet/internal/errs"
	"comet/internal/registry/roster"
	"comet/models"
)

type step struct {
	entry  int
	before *models.Agent // nil for a new agent
	after  models.Agent
}

// plan has the changes that an import makes to the tree.
type plan struct {
	doc        *roster.Document
	tree       map[string]models.Agent // as it will be
	entryOf    map[string]int          // the entry that describes an agent
	steps      []step
	unchanged  int // entries that describe their agent as it is
	violations errs.Violations
	warnings   []errs.Field
	bad        map[string]bool // pointers of violations
}

// plan applies the document to all agents in memory and checks the resulting tree, so that the order
// of the entries does not matter. The error is errs.MissingScope.
func (r *Registry) plan(by models.Principal, doc *roster.Document, found errs.Violations, all []models.Agent) (*plan, error) {
	p := &plan{doc: doc, tree: make(map[string]models.Agent, len(all)+len(doc.Agents)), entryOf: map[string]int{}, bad: map[string]bool{}}
	for _, v := range found {
		p.bad[v.Pointer] = true
	}
	p.violations = append(p.violations, found...)
	for _, a := range all {
		p.tree[a.ID] = a
	}
	for i, e := range doc.Agents {
		if err := r.planEntry(p, by, i, e); err != nil {
			return nil, err
		}
	}
	for i, e := range doc.Agents {
		if e.ID != nil && !p.isBad(i, "id") && !p.isBad(i, "level") && e.Level != nil {
			p.checkPlace(i, p.tree[*e.ID])
		}
	}
	p.checkOrphans(all)
	slices.SortStableFunc(p.violations, func(a, b errs.Field) int { return a.Line - b.Line })
	return p, nil
}

// planEntry checks one entry without the others and adds it to the plan.
func (r *Registry) planEntry(p *plan, by models.Principal, i int, e roster.Entry) error {
	if e.ID == nil || p.isBad(i, "id") || e.Level == nil || p.isBad(i, "level") {
		return nil
	}
	before, exists := p.tree[*e.ID]
	after := p.describe(i, e)
	p.entryOf[after.ID] = i
	r.checkEntry(p, i, e, after)
	if exists {
		if e.FrequencyHz == nil {
			after.FrequencyHz = before.FrequencyHz
		}
		p.checkUnchangeable(i, e, before)
		after.Version, after.CreatedAt, after.UpdatedAt, after.SelfRegistered = before.Version, before.CreatedAt, before.UpdatedAt, before.SelfRegistered
	} else if after.Level == models.LevelSystem {
		p.add(i, "level", errs.SystemAgentExists, "single_root", "there is one L0 agent, %s; a second cannot be created", models.RootAgentID)
	}
	p.tree[after.ID] = after
	switch {
	case !exists:
		p.steps = append(p.steps, step{entry: i, after: after})
	case len(diff(before, after)) > 0:
		p.steps = append(p.steps, step{entry: i, before: &before, after: after})
	default:
		p.unchanged++
		return nil
	}
	if err := requireRank(by, after.Level); err != nil {
		return errs.New(errs.MissingScope, "line %d: changing the L%d agent %q needs the scope %q",
			p.doc.Line(pointer(i, "id")), after.Level, after.ID, models.ScopeAdmin).With("scope", models.ScopeAdmin)
	}
	return nil
}

// describe returns the agent an entry describes; members that are bad or missing are zero.
func (p *plan) describe(i int, e roster.Entry) models.Agent {
	d := e.AgentDraft
	d.Name = cmp.Or(d.Name, new(string))
	if d.FrequencyHz == nil && p.isBad(i, "frequency_hz") {
		d.FrequencyHz = new(int)
	}
	a := fromDraft(d)
	if *d.Level != models.LevelOrchestrator || p.isBad(i, "parent_id") { // no default parent
		a.ParentID = d.ParentID
	}
	a.IsActive = e.Active()
	return a
}

// checkEntry checks the rules that depend on the level of an entry.
func (r *Registry) checkEntry(p *plan, i int, e roster.Entry, a models.Agent) {
	if e.FrequencyHz != nil && !p.isBad(i, "frequency_hz") {
		p.collect(i, func(v *errs.Violations) { checkFrequency(v, a.Level, a.FrequencyHz) })
	}
	p.collect(i, func(v *errs.Violations) { r.checkCapabilities(v, a.Capabilities) })
	for _, w := range r.warnings(a.Capabilities) {
		w.Pointer = pointer(i, w.Pointer[1:])
		w.Line = p.doc.Line(w.Pointer)
		p.warnings = append(p.warnings, w)
	}
	if a.Level == models.LevelSystem {
		for _, m := range []struct {
			field string
			set   bool
		}{{"sphere_id", e.SphereID != nil}, {"parent_id", e.ParentID != nil}, {"token_budget", e.TokenBudget.Set}} {
			if m.set {
				p.add(i, m.field, errs.InvalidRequest, "null_for_l0", "%s of the L0 agent is always null", m.field)
			}
		}
		p.collect(i, func(v *errs.Violations) { checkRootScope(v, e.BudgetScope) })
		return
	}
	if e.SphereID == nil {
		p.add(i, "sphere_id", errs.InvalidRequest, "required", "sphere_id is required for an L%d agent", a.Level)
	}
	if e.ParentID == nil && a.Level != models.LevelOrchestrator {
		p.add(i, "parent_id", errs.InvalidRequest, "required", "parent_id is required: the parent of an L%d agent must be an L%d agent", a.Level, a.Level-1)
	}
	p.collect(i, func(v *errs.Violations) { checkBudget(v, a.Level, e.TokenBudget.Pointer()) })
}

// checkUnchangeable compares the immutable members with those of the known agent (CHE·NU §2.3).
func (p *plan) checkUnchangeable(i int, e roster.Entry, before models.Agent) {
	if *e.Level != before.Level {
		p.add(i, "level", errs.ImmutableField, "immutable", "level of %q cannot be changed from %d to %d", before.ID, before.Level, *e.Level)
	}
	if e.FrequencyHz != nil && *e.FrequencyHz != before.FrequencyHz {
		p.add(i, "frequency_hz", errs.ImmutableField, "immutable", "frequency_hz of %q cannot be changed from %d to %d", before.ID, before.FrequencyHz, *e.FrequencyHz)
	}
}

// checkPlace checks the parent of an agent in the resulting tree.
func (p *plan) checkPlace(i int, a models.Agent) {
	if !a.IsActive && a.Level <= models.LevelOrchestrator {
		p.add(i, "is_active", errs.ProtectedAgent, "protected", "%q is an L%d agent and cannot be deleted or deactivated", a.ID, a.Level)
	}
	if a.Level == models.LevelSystem || p.isBad(i, "parent_id") {
		return
	}
	p.collect(i, func(v *errs.Violations) {
		_ = checkParent(v, a, func(id string) (models.Agent, error) {
			if parent, ok := p.tree[id]; ok {
				return parent, nil
			}
			return models.Agent{}, errs.New(errs.NotFound, "no such agent")
		})
	})
}

// checkOrphans finds active agents that the document does not list under agents that it deactivates.
// all are the agents before the import.
func (p *plan) checkOrphans(all []models.Agent) {
	blamed := map[int]bool{}
	for _, a := range all {
		if _, listed := p.entryOf[a.ID]; listed || !a.IsActive || a.ParentID == nil || p.tree[*a.ParentID].IsActive {
			continue
		}
		if i, ok := p.entryOf[*a.ParentID]; ok && !blamed[i] {
			blamed[i] = true
			p.add(i, "is_active", errs.ActiveChildren, "active_children", "%q has active children that the document does not list", *a.ParentID)
		}
	}
}

// add records a violation at a member of an entry, once a member.
func (p *plan) add(i int, field string, code errs.Code, rule, format string, args ...any) {
	p.collect(i, func(v *errs.Violations) { v.Add(code, "/"+field, rule, format, args...) })
}

// collect moves the violations that check finds to the entry they belong to.
func (p *plan) collect(i int, check func(*errs.Violations)) {
	var found errs.Violations
	check(&found)
	for _, v := range found {
		v.Pointer = pointer(i, v.Pointer[1:])
		v.Line = p.doc.Line(v.Pointer)
		if p.bad[v.Pointer] && v.Rule != "immutable" {
			continue
		}
		p.bad[v.Pointer] = true
		p.violations = append(p.violations, v)
	}
}

// pointer names a member of an entry.
func pointer(entry int, field string) string { return "/agents/" + strconv.Itoa(entry) + "/" + field }

func (p *plan) isBad(i int, field string) bool { return p.bad[pointer(i, field)] }
