package registry_test

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/internal/registry"
	"comet/models"
)

// model is a simple registry: a map and the rules of the document. It predicts the response to
// every request.
type model struct {
	agents map[string]models.Agent
	now    time.Time
	// lines is the expected number of audit entries.
	lines int
}

// named is a broken rule; the one that is reported is the first of the lowest
// class that has a name of its own.
type named []errs.Code

func (n named) worst() errs.Code {
	ranks := map[errs.Code]int{
		errs.AgentExists: 1, errs.SystemAgentExists: 1, errs.ProtectedAgent: 1, errs.ActiveChildren: 1, errs.ParentInactive: 1,
		errs.BudgetExceedsMaximum: 2,
	}
	for rank := range 3 {
		code := errs.Code("")
		for _, c := range n {
			if ranks[c] == rank && (code == "" || code == errs.InvalidRequest) {
				code = c
			}
		}
		if code != "" {
			return code
		}
	}
	return ""
}

var idForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

func frequencyFits(level models.Level, hz int) bool {
	rules := map[models.Level][]int{0: {999}, 1: {888}, 2: {555, 666}, 3: {444}}
	return slices.Contains(rules[level], hz)
}

func maxBudget(level models.Level) int64 {
	return []int64{0, 500_000, 100_000, 50_000}[level]
}

func defaultBudget(level models.Level) *int64 {
	if level == 0 {
		return nil
	}
	return new([]int64{0, 100_000, 25_000, 10_000}[level])
}

func scopeFits(scope models.BudgetScope) bool { return scope == "own" || scope == "subtree" }

func repeated(names []string) bool {
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return true
		}
	}
	return false
}

func isAdmin(p models.Principal) bool { return slices.Contains(p.Scopes, models.ScopeAdmin) }

// fieldErrors checks the members of a draft one by one and returns the invalid ones.
func fieldErrors(d models.AgentDraft) []string {
	var bad []string
	if d.Name == nil || strings.TrimSpace(*d.Name) == "" {
		bad = append(bad, "name")
	}
	if *d.Level > 3 {
		bad = append(bad, "level")
	}
	if d.SphereID != nil && (*d.SphereID < 1 || *d.SphereID > 9) {
		bad = append(bad, "sphere_id")
	}
	if d.ParentID != nil && !idForm.MatchString(*d.ParentID) {
		bad = append(bad, "parent_id")
	}
	if d.TokenBudget.Set && d.TokenBudget.Value < 1000 {
		bad = append(bad, "token_budget")
	}
	if d.BudgetScope.Set && !scopeFits(d.BudgetScope.Value) {
		bad = append(bad, "budget_scope")
	}
	if repeated(d.Capabilities) {
		bad = append(bad, "capabilities")
	}
	return bad
}

// place checks an agent's parent in a tree.
func place(tree map[string]models.Agent, a models.Agent) errs.Code {
	parent, ok := tree[*a.ParentID]
	switch {
	case !ok:
		return errs.ParentNotFound
	case parent.Level != a.Level-1:
		return errs.InvalidParentLevel
	case a.IsActive && !parent.IsActive:
		return errs.ParentInactive
	}
	return ""
}

func (m *model) create(by models.Principal, d models.AgentDraft) errs.Code {
	if *d.Level == 1 && !isAdmin(by) {
		return errs.MissingScope
	}
	var n named
	bad := fieldErrors(d)
	for range bad {
		n = append(n, errs.InvalidRequest)
	}
	if *d.Level > 3 {
		return n.worst()
	}
	if !frequencyFits(*d.Level, *d.FrequencyHz) {
		n = append(n, errs.InvalidFrequency)
	}
	if *d.Level == 0 {
		return append(n, errs.SystemAgentExists).worst()
	}
	if d.SphereID == nil && *d.Level == 1 || d.ParentID == nil && *d.Level > 1 {
		n = append(n, errs.InvalidRequest)
	}
	a := described(rosterEntry{AgentDraft: d})
	inactive := false
	if a.ParentID != nil && !slices.Contains(bad, "parent_id") {
		switch code := place(m.agents, a); code {
		case "":
		case errs.ParentInactive:
			inactive = true
		default:
			n = append(n, code)
		}
	}
	if _, taken := m.agents[a.ID]; taken {
		n = append(n, errs.AgentExists)
	}
	if inactive {
		n = append(n, errs.ParentInactive)
	}
	if d.TokenBudget.Set && d.TokenBudget.Value > maxBudget(a.Level) {
		n = append(n, errs.BudgetExceedsMaximum)
	}
	if len(n) == 0 {
		if a.SphereID == nil {
			a.SphereID = m.agents[*a.ParentID].SphereID
		}
		m.put(a)
	}
	return n.worst()
}

// described is the agent an entry describes.
func described(e rosterEntry) models.Agent {
	a := models.Agent{
		ID: *e.ID, Level: *e.Level, SphereID: e.SphereID, FrequencyHz: *e.FrequencyHz, Capabilities: []string{}, Description: e.Description,
		Type: e.Type, ParentID: e.ParentID, TokenBudget: e.TokenBudget.Pointer(), IsActive: e.active == nil || *e.active, Version: 1,
	}
	if e.Name != nil {
		a.Name = *e.Name
	}
	if len(e.Capabilities) > 0 {
		a.Capabilities = e.Capabilities
	}
	if a.ParentID == nil && a.Level == 1 {
		a.ParentID = new("nova")
	}
	if a.TokenBudget == nil {
		a.TokenBudget = defaultBudget(a.Level)
	}
	if a.BudgetScope = e.BudgetScope.Value; !e.BudgetScope.Set {
		a.BudgetScope = "own"
	}
	return a
}

// put stores a new or changed agent.
func (m *model) put(a models.Agent) {
	if before, exists := m.agents[a.ID]; exists {
		if same(before, a) {
			return
		}
		a.Version, a.CreatedAt = before.Version+1, before.CreatedAt
	} else {
		a.Version, a.CreatedAt = 1, m.now
	}
	a.UpdatedAt = m.now
	m.agents[a.ID] = a
	m.lines++
}

// same compares what can be changed.
func same(a, b models.Agent) bool {
	return a.Name == b.Name && a.Description == b.Description && a.Type == b.Type && a.IsActive == b.IsActive &&
		slices.Equal(a.Capabilities, b.Capabilities) && equal(a.SphereID, b.SphereID) && equal(a.ParentID, b.ParentID) && equal(a.TokenBudget, b.TokenBudget) &&
		a.BudgetScope == b.BudgetScope
}

func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

func (m *model) activeChildren(id string) bool {
	for _, a := range m.agents {
		if a.IsActive && a.ParentID != nil && *a.ParentID == id {
			return true
		}
	}
	return false
}

// deactivation checks whether an agent may be deactivated.
func (m *model) deactivation(before, after models.Agent) errs.Code {
	switch {
	case after.IsActive:
		return ""
	case before.Level <= 1:
		return errs.ProtectedAgent
	case before.IsActive && m.activeChildren(before.ID):
		return errs.ActiveChildren
	}
	return ""
}

func (m *model) remove(id string, pre models.Precondition) errs.Code {
	before, ok := m.agents[id]
	if !ok {
		return errs.NotFound
	}
	after := before
	after.IsActive = false
	if code := m.deactivation(before, after); code != "" {
		return code
	}
	if pre != nil && pre(before.Version) != nil {
		return errs.PreconditionFailed
	}
	m.put(after)
	return ""
}

func (m *model) update(by models.Principal, id string, p registry.AgentPatch, pre models.Precondition) errs.Code {
	before, ok := m.agents[id]
	if !ok {
		return errs.NotFound
	}
	if before.Level <= 1 && !isAdmin(by) {
		return errs.MissingScope
	}
	n := patchErrors(before, p)
	after := patched(before, p)
	if p.TokenBudget.Set && !p.TokenBudget.Null && before.Level > 0 && p.TokenBudget.Value > maxBudget(before.Level) {
		n = append(n, errs.BudgetExceedsMaximum)
	}
	moved := !equal(before.ParentID, after.ParentID)
	if before.Level > 0 && (moved || after.IsActive && !before.IsActive) && idForm.MatchString(*after.ParentID) {
		if code := place(m.agents, after); code != "" {
			n = append(n, code)
		}
	}
	if code := m.deactivation(before, after); code != "" && !p.IsActive.Null {
		n = append(n, code)
	}
	if len(n) > 0 {
		return n.worst()
	}
	if pre != nil && pre(before.Version) != nil {
		return errs.PreconditionFailed
	}
	m.put(after)
	return ""
}
