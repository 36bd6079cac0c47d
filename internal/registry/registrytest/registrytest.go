// Package registrytest checks the invariants of the agents, which hold after any sequence of
// concurrent changes. The tests of every package that changes agents use it; it shares no code
// with the rules of package registry.
package registrytest

import (
	"fmt"

	"comet/models"
)

// levelRules are the documents' tables (CHE·NU §3.2, §4.2, §5.1), written out
// once more.
var levelRules = [...]struct {
	frequencies []int
	maxBudget   int64
}{
	{frequencies: []int{999}},
	{frequencies: []int{888}, maxBudget: 500_000},
	{frequencies: []int{555, 666}, maxBudget: 100_000},
	{frequencies: []int{444}, maxBudget: 50_000},
}

// BrokenRules lists every rule of the tree that the agents break, one sentence
// each; they are all agents there are, as one read saw them.
func BrokenRules(agents []models.Agent) []string {
	c := checker{byID: make(map[string]models.Agent, len(agents))}
	roots := 0
	for _, a := range agents {
		if _, twice := c.byID[a.ID]; twice {
			c.fail(a, "is there twice")
		}
		c.byID[a.ID] = a
		if a.Level == 0 {
			roots++
		}
	}
	if roots != 1 {
		c.broken = append(c.broken, fmt.Sprintf("there are %d roots", roots))
	}
	for _, a := range agents {
		c.checkByItself(a)
		c.checkPlace(a)
	}
	return c.broken
}

type checker struct {
	byID   map[string]models.Agent
	broken []string
}

func (c *checker) fail(a models.Agent, format string, args ...any) {
	c.broken = append(c.broken, fmt.Sprintf("%s (L%d): ", a.ID, a.Level)+fmt.Sprintf(format, args...))
}

// checkByItself judges what an agent's level decides.
func (c *checker) checkByItself(a models.Agent) {
	if a.Level < 0 || int(a.Level) >= len(levelRules) {
		c.fail(a, "has no such level")
		return
	}
	rules := levelRules[a.Level]
	allowed := false
	for _, f := range rules.frequencies {
		allowed = allowed || f == a.FrequencyHz
	}
	if !allowed {
		c.fail(a, "runs at %d Hz", a.FrequencyHz)
	}
	if a.BudgetScope != models.ScopeOwn && (a.BudgetScope != models.ScopeSubtree || a.Level == 0) {
		c.fail(a, "holds its budget against %q", a.BudgetScope)
	}
	if a.Version < 1 {
		c.fail(a, "has version %d", a.Version)
	}
	if a.Level == 0 {
		if a.ID != models.RootAgentID || a.SphereID != nil || a.TokenBudget != nil || a.ParentID != nil {
			c.fail(a, "is no root")
		}
		return
	}
	if a.SphereID == nil || *a.SphereID < 1 || *a.SphereID > 9 {
		c.fail(a, "is in no sphere")
	}
	if a.TokenBudget == nil || *a.TokenBudget < 1000 || *a.TokenBudget > rules.maxBudget {
		c.fail(a, "has a budget out of bounds")
	}
}

// checkPlace judges an agent's place and that its chain ends at the root.
func (c *checker) checkPlace(a models.Agent) {
	if a.Level <= 1 && !a.IsActive {
		c.fail(a, "is inactive")
	}
	if a.Level == 0 {
		return
	}
	if a.ParentID == nil {
		c.fail(a, "has no parent")
		return
	}
	parent, ok := c.byID[*a.ParentID]
	switch {
	case !ok:
		c.fail(a, "stands under %s, which is not there", *a.ParentID)
	case parent.Level != a.Level-1:
		c.fail(a, "stands under %s of L%d", parent.ID, parent.Level)
	case a.IsActive && !parent.IsActive:
		c.fail(a, "is active under the inactive %s", parent.ID)
	}
	at := a
	for range len(c.byID) {
		if at.ParentID == nil {
			return
		}
		if at, ok = c.byID[*at.ParentID]; !ok {
			return
		}
	}
	c.fail(a, "stands in a cycle")
}
