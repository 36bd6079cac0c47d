package registrytest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/registry/registrytest"
	"comet/models"
)

func tree() []models.Agent {
	return []models.Agent{
		{ID: "nova", Level: 0, FrequencyHz: 999, BudgetScope: "own", IsActive: true, Version: 1},
		{ID: "orch", Level: 1, FrequencyHz: 888, SphereID: new(1), TokenBudget: new(int64(500_000)), ParentID: new("nova"), BudgetScope: "own", IsActive: true, Version: 1},
		{ID: "spec", Level: 2, FrequencyHz: 666, SphereID: new(9), TokenBudget: new(int64(1000)), ParentID: new("orch"), BudgetScope: "subtree", IsActive: true, Version: 1},
		{ID: "help", Level: 3, FrequencyHz: 444, SphereID: new(5), TokenBudget: new(int64(50_000)), ParentID: new("spec"), BudgetScope: "own", IsActive: true, Version: 7},
	}
}

func TestBrokenRules(t *testing.T) {
	t.Parallel()
	require.Empty(t, registrytest.BrokenRules(tree()))

	for name, spoil := range map[string]func([]models.Agent) []models.Agent{
		"no root":                func(a []models.Agent) []models.Agent { return a[1:] },
		"two roots":              func(a []models.Agent) []models.Agent { return append(a, a[0]) },
		"a root of another name": func(a []models.Agent) []models.Agent { a[0].ID = "x"; a[1].ParentID = new("x"); return a },
		"a parent that is missing": func(a []models.Agent) []models.Agent {
			return append(a[:2], a[3])
		},
		"a parent of another level":         func(a []models.Agent) []models.Agent { a[3].ParentID = new("orch"); return a },
		"no parent":                         func(a []models.Agent) []models.Agent { a[2].ParentID = nil; return a },
		"a cycle":                           func(a []models.Agent) []models.Agent { a[1].ParentID = new("help"); return a },
		"an active agent under an inactive": func(a []models.Agent) []models.Agent { a[2].IsActive = false; return a },
		"an inactive orchestrator":          func(a []models.Agent) []models.Agent { a[1].IsActive = false; return a },
		"a frequency of another level":      func(a []models.Agent) []models.Agent { a[3].FrequencyHz = 555; return a },
		"a budget below the minimum":        func(a []models.Agent) []models.Agent { a[2].TokenBudget = new(int64(999)); return a },
		"a budget above the maximum":        func(a []models.Agent) []models.Agent { a[3].TokenBudget = new(int64(50_001)); return a },
		"no budget":                         func(a []models.Agent) []models.Agent { a[2].TokenBudget = nil; return a },
		"a budget for the root":             func(a []models.Agent) []models.Agent { a[0].TokenBudget = new(int64(5000)); return a },
		"no budget scope":                   func(a []models.Agent) []models.Agent { a[2].BudgetScope = ""; return a },
		"another budget scope":              func(a []models.Agent) []models.Agent { a[2].BudgetScope = "all"; return a },
		"a root that counts its subtree":    func(a []models.Agent) []models.Agent { a[0].BudgetScope = "subtree"; return a },
		"no sphere":                         func(a []models.Agent) []models.Agent { a[3].SphereID = nil; return a },
		"a sphere that does not exist":      func(a []models.Agent) []models.Agent { a[3].SphereID = new(10); return a },
		"a level that does not exist":       func(a []models.Agent) []models.Agent { a[3].Level = 4; return a },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NotEmpty(t, registrytest.BrokenRules(spoil(tree())))
		})
	}
}
