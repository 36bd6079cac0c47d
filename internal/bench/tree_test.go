package bench

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/models"
)

// unlimitedBudget is a budget that no benchmark exhausts.
const unlimitedBudget = 1_000_000_000_000

// tree is a part of the hierarchy: heads (L1) under nova, specialists under each head, and
// assistants under each specialist.
type tree struct {
	name                           string
	heads, specialists, assistants int
	// scoped is the level whose budgets have scope subtree; 0 for none.
	scoped models.Level
}

// agent returns an id from the position in the tree: one number for a head, two for a specialist,
// three for an assistant.
func (t tree) agent(place ...int) string {
	name := t.name
	for _, n := range place {
		name += fmt.Sprintf("-%d", n)
	}
	return name
}

// all returns the agents of some levels, level by level.
func (t tree) all(levels ...models.Level) (ids []string) {
	for _, level := range levels {
		for i := range t.heads {
			if level == models.LevelOrchestrator {
				ids = append(ids, t.agent(i))
				continue
			}
			for j := range t.specialists {
				if level == models.LevelSpecialist {
					ids = append(ids, t.agent(i, j))
					continue
				}
				for k := range t.assistants {
					ids = append(ids, t.agent(i, j, k))
				}
			}
		}
	}
	return ids
}

// insert creates the agents, one level per statement.
func (t tree) insert(b *testing.B, db *sql.DB) {
	b.Helper()
	name := "'" + t.name + "-' || "
	s, a := t.specialists, t.assistants
	head := fmt.Sprintf("%s(i / %d)", name, max(1, s))
	specialist := fmt.Sprintf("%s(i / %d) || '-' || (i / %d %% %d)", name, max(1, s*a), max(1, a), max(1, s))
	for _, l := range []struct {
		level      models.Level
		hertz, n   int
		id, parent string
	}{
		{models.LevelOrchestrator, 888, t.heads, name + "i", "'" + models.RootAgentID + "'"},
		{models.LevelSpecialist, 555, t.heads * s, fmt.Sprintf("%s || '-' || (i %% %d)", head, max(1, s)), head},
		{models.LevelAssistant, 444, t.heads * s * a, fmt.Sprintf("%s || '-' || (i %% %d)", specialist, max(1, a)), specialist},
	} {
		scope := models.ScopeOwn
		if l.level == t.scoped {
			scope = models.ScopeSubtree
		}
		statement := fmt.Sprintf(`WITH RECURSIVE numbers (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM numbers WHERE i + 1 < %d)
			INSERT INTO agents (id, name, level, sphere_id, frequency_hz, parent_id, token_budget, budget_scope, created_at, updated_at, search_text)
			SELECT %s, 'An agent of the tree', %d, 1, %d, %s, %d, '%s', %d, %[8]d, '' FROM numbers`,
			l.n, l.id, l.level, l.hertz, l.parent, unlimitedBudget, scope, day().UnixMicro())
		if l.n > 0 {
			_, err := db.ExecContext(b.Context(), statement)
			require.NoError(b, err)
		}
	}
}
