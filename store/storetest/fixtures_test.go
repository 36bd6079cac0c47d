package storetest_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rule runs one case of the contract on a fresh database of every kind.
func rule(t *testing.T, name string, fn func(t *testing.T, db *storetest.DB)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, fn)
	})
}

// overlapping runs one case on the databases whose transactions overlap. SQLite
// has one writer and belongs to one process, so the case has no meaning there.
func overlapping(t *testing.T, name string, fn func(t *testing.T, db *storetest.DB)) {
	t.Helper()
	for _, database := range storetest.Databases() {
		if database == "sqlite" {
			continue
		}
		t.Run(name+"/"+database, func(t *testing.T) {
			t.Parallel()
			fn(t, storetest.Open(t, database))
		})
	}
}

func nova(db *storetest.DB) models.Agent {
	return models.Agent{
		ID: models.RootAgentID, Name: "NOVA", Level: models.LevelSystem, FrequencyHz: 999, Capabilities: []string{},
		BudgetScope: models.ScopeOwn, IsActive: true, Version: 1, CreatedAt: db.Now(), UpdatedAt: db.Now(),
	}
}

func orchestrator(db *storetest.DB, id string, sphere int) models.Agent {
	return below(db, id, models.LevelOrchestrator, 888, models.RootAgentID, sphere)
}

func specialist(db *storetest.DB, id, parent string) models.Agent {
	return below(db, id, models.LevelSpecialist, 555, parent, 1)
}

func assistant(db *storetest.DB, id, parent string) models.Agent {
	return below(db, id, models.LevelAssistant, 444, parent, 1)
}

func below(db *storetest.DB, id string, level models.Level, hz int, parent string, sphere int) models.Agent {
	return models.Agent{
		ID: id, Name: id, Level: level, SphereID: new(sphere), FrequencyHz: hz, Capabilities: []string{"plan"},
		ParentID: new(parent), TokenBudget: new(int64(5000)), BudgetScope: models.ScopeOwn, IsActive: true, Version: 1,
		CreatedAt: db.Now(), UpdatedAt: db.Now(),
	}
}

// insert stores the agents in one transaction.
func insert(t *testing.T, db *storetest.DB, agents ...models.Agent) {
	t.Helper()
	write(t, db, func(tx *store.Tx) error {
		for _, a := range agents {
			if err := tx.Agents().Insert(a); err != nil {
				return err
			}
		}
		return nil
	})
}

// smallTree stores nova, orch-a with two specialists and an assistant under the
// first of them, and orch-b.
func smallTree(t *testing.T, db *storetest.DB) {
	t.Helper()
	insert(t, db, nova(db), orchestrator(db, "orch-a", 1), orchestrator(db, "orch-b", 2),
		specialist(db, "finance", "orch-a"), specialist(db, "health", "orch-a"), assistant(db, "bills", "finance"))
}

func write(t *testing.T, db *storetest.DB, fn func(*store.Tx) error) {
	t.Helper()
	require.NoError(t, db.Write(t.Context(), fn))
}

// tryInsert returns the code of an insert's error, "" for none.
func tryInsert(db *storetest.DB, a models.Agent) errs.Code {
	return errs.CodeOf(db.Write(context.Background(), func(tx *store.Tx) error { return tx.Agents().Insert(a) }))
}

func requireAgent(t *testing.T, db *storetest.DB, id string, want bool) {
	t.Helper()
	_, err := db.Agents(t.Context()).Get(id)
	if want {
		require.NoError(t, err)
	} else {
		require.Equal(t, errs.NotFound, errs.CodeOf(err), "%s: %v", id, err)
	}
}

func ids(agents []models.Agent) []string {
	out := make([]string, 0, len(agents))
	for _, a := range agents {
		out = append(out, a.ID)
	}
	return out
}
