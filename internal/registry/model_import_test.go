package registry_test

import (
	"maps"
	"slices"

	"comet/internal/errs"
	"comet/models"
)

// finding is a rule that a roster breaks, on its line.
type finding struct {
	line int
	code errs.Code
}

// judgement is the prediction of the model for an import.
type judgement struct {
	m        *model
	by       models.Principal
	entries  []rosterEntry
	text     rendered
	tree     map[string]models.Agent
	listed   map[string]int
	bad      map[[2]any]bool // entry and member
	findings []finding
}

// load imports a roster, all or nothing.
func (m *model) load(by models.Principal, entries []rosterEntry) errs.Code {
	j := &judgement{
		m: m, by: by, entries: entries, text: render(entries), tree: maps.Clone(m.agents), listed: map[string]int{}, bad: map[[2]any]bool{},
	}
	first := map[string]bool{}
	for i, e := range entries {
		for _, member := range fieldErrors(e.AgentDraft) {
			j.find(i, member, errs.InvalidRequest)
		}
		if first[*e.ID] {
			j.find(i, "id", errs.InvalidRequest)
		}
		first[*e.ID] = true
	}
	for i := range entries {
		if j.readable(i) && !j.lay(i) {
			return errs.MissingScope
		}
	}
	for i := range entries {
		if j.readable(i) {
			j.judgePlace(i)
		}
	}
	j.judgeOrphans()
	if len(j.findings) == 0 {
		for i := range entries {
			m.put(j.tree[*entries[i].ID])
		}
		return ""
	}
	slices.SortStableFunc(j.findings, func(a, b finding) int { return a.line - b.line })
	var n named
	for _, f := range j.findings {
		n = append(n, f.code)
	}
	return n.worst()
}

func (j *judgement) readable(i int) bool {
	return !j.bad[[2]any{i, "id"}] && !j.bad[[2]any{i, "level"}]
}

// find records a broken rule, one a member; an immutable member is reported
// beside what else is wrong with it.
func (j *judgement) find(i int, member string, code errs.Code) {
	if j.bad[[2]any{i, member}] && code != errs.ImmutableField {
		return
	}
	j.bad[[2]any{i, member}] = true
	j.findings = append(j.findings, finding{j.text.line(i, member), code})
}

// lay adds an entry to the tree and checks it alone; it returns false for a change that
// requires the scope admin.
func (j *judgement) lay(i int) bool {
	e := j.entries[i]
	a := described(e)
	if !frequencyFits(a.Level, a.FrequencyHz) {
		j.find(i, "frequency_hz", errs.InvalidFrequency)
	}
	j.judgeLevel(i, e)
	before, exists := j.tree[a.ID]
	if exists {
		a.Version, a.CreatedAt, a.UpdatedAt = before.Version, before.CreatedAt, before.UpdatedAt
		if a.Level != before.Level {
			j.find(i, "level", errs.ImmutableField)
		}
		if a.FrequencyHz != before.FrequencyHz {
			j.find(i, "frequency_hz", errs.ImmutableField)
		}
	} else if a.Level == 0 {
		j.find(i, "level", errs.SystemAgentExists)
	}
	j.tree[a.ID], j.listed[a.ID] = a, i
	changes := !exists || !same(before, a)
	return !changes || a.Level > 1 || isAdmin(j.by)
}

func (j *judgement) judgeLevel(i int, e rosterEntry) {
	if *e.Level == 0 {
		for member, set := range map[string]bool{"sphere_id": e.SphereID != nil, "parent_id": e.ParentID != nil, "token_budget": e.TokenBudget.Set} {
			if set {
				j.find(i, member, errs.InvalidRequest)
			}
		}
		if e.BudgetScope.Set && e.BudgetScope.Value != "own" {
			j.find(i, "budget_scope", errs.InvalidRequest)
		}
		return
	}
	if e.SphereID == nil {
		j.find(i, "sphere_id", errs.InvalidRequest)
	}
	if e.ParentID == nil && *e.Level > 1 {
		j.find(i, "parent_id", errs.InvalidRequest)
	}
	if e.TokenBudget.Set && e.TokenBudget.Value > maxBudget(*e.Level) {
		j.find(i, "token_budget", errs.BudgetExceedsMaximum)
	}
}

func (j *judgement) judgePlace(i int) {
	a := j.tree[*j.entries[i].ID]
	if !a.IsActive && a.Level <= 1 {
		j.find(i, "is_active", errs.ProtectedAgent)
	}
	if a.Level == 0 || a.ParentID == nil || j.bad[[2]any{i, "parent_id"}] {
		return
	}
	if code := place(j.tree, a); code != "" {
		j.find(i, "parent_id", code)
	}
}

// judgeOrphans looks at the active agents that are not listed.
func (j *judgement) judgeOrphans() {
	for id, a := range j.m.agents {
		if _, listed := j.listed[id]; listed || !a.IsActive || a.ParentID == nil || j.tree[*a.ParentID].IsActive {
			continue
		}
		if i, ok := j.listed[*a.ParentID]; ok {
			j.find(i, "is_active", errs.ActiveChildren)
		}
	}
}
