package registry_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/registry"
	"comet/internal/registry/roster"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// TestAnExportCanBeImported holds the export to what an import takes.
func TestAnExportCanBeImported(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "sqlite")
	reg := registry.New(db.Store, nil)
	require.NoError(t, reg.Bootstrap(t.Context()))
	require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
		for i := range roster.MaxAgents {
			a := models.Agent{
				ID: fmt.Sprintf("spec-%05d", i), Name: "Specialist", Level: models.LevelSpecialist, SphereID: new(1), FrequencyHz: 555,
				Capabilities: []string{}, ParentID: new([]string{"orch-personnel", "orch-business"}[i%2]), TokenBudget: new(int64(1000)),
				IsActive: true, Version: 1, CreatedAt: tx.Now(), UpdatedAt: tx.Now(),
			}
			if err := tx.Agents().Insert(a); err != nil {
				return err
			}
		}
		return nil
	}))
	_, err := reg.Export(t.Context(), models.RootAgentID)
	require.True(t, errs.Is(err, errs.InvalidParameter), "it would be refused by every import")
	require.Equal(t, "root", errs.From(err).Fields[0].Parameter)
	part, err := reg.Export(t.Context(), "orch-personnel")
	require.NoError(t, err)
	require.Len(t, part, 1+roster.MaxAgents/2)
}

// TestACreateThatNamesItselfItsParentTakesNoLocks sends requests that are refused
// for their budget and for their id, which is also their parent's: none may wait
// for another.
func TestACreateThatNamesItselfItsParentTakesNoLocks(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		reg := registry.New(db.Store, nil)
		require.NoError(t, reg.Bootstrap(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				for range 20 {
					_, err := reg.Create(ctx, models.System(), models.AgentDraft{
						ID: new("orch-social"), Name: new("Twin"), Level: new(models.LevelSpecialist), SphereID: new(6), FrequencyHz: new(555),
						ParentID: new("orch-social"), TokenBudget: models.Some(int64(200_000)),
					}, nil)
					if !errs.Is(err, errs.AgentExists) {
						t.Errorf("the id is taken, which counts for more than the budget: %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}
