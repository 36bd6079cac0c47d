package registry_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/registry"
	"comet/internal/registry/registrytest"
	"comet/models"
	"comet/store/storetest"
)

func TestBootstrap(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		r := registry.New(db.Store, nil)
		var wg sync.WaitGroup
		for range 4 { // replicas that start at the same moment
			wg.Go(func() {
				if err := r.Bootstrap(t.Context()); err != nil {
					t.Errorf("bootstrap: %v", err)
				}
			})
		}
		wg.Wait()
		f := &fixture{r, db}
		all := f.all(t)
		require.Empty(t, registrytest.BrokenRules(all))
		require.Len(t, all, 10)
		require.Equal(t, "nova", all[0].ID)
		require.Equal(t, "NOVA", all[0].Name)
		spheres := map[string]int{}
		for _, a := range all[1:] {
			require.Equal(t, models.LevelOrchestrator, a.Level)
			require.Equal(t, int64(100_000), *a.TokenBudget)
			spheres[a.ID] = *a.SphereID
		}
		require.Equal(t, map[string]int{
			"orch-personnel": 1, "orch-business": 2, "orch-government": 3, "orch-creative-studio": 4, "orch-community": 5,
			"orch-social": 6, "orch-entertainment": 7, "orch-my-team": 8, "orch-scholar": 9,
		}, spheres)
		for _, a := range all {
			require.Len(t, f.trail(t, a.ID), 1)
			require.Len(t, f.events(t, a.ID), 1)
		}
		f.requireUntouched(t, func() { require.NoError(t, r.Bootstrap(t.Context())) })
	})
}

func TestCreate(t *testing.T) {
	t.Parallel()

	t.Run("WhatIsLeftOutTakesItsLevelsDefaults", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			for _, d := range []models.AgentDraft{draft("l1", 1, ""), specialist("l2", "l1"), assistant("l3", "l2")} {
				created, err := f.Create(t.Context(), admin(), d, nil)
				require.NoError(t, err)
				require.Empty(t, created.Warnings)
				a := f.agent(t, *d.ID)
				require.Equal(t, a, created.Agent, "the answer is what was stored")
				require.Equal(t, []string{}, a.Capabilities)
				require.True(t, a.IsActive)
				require.EqualValues(t, 1, a.Version)
				require.Equal(t, f.db.Clock.Now(), a.CreatedAt)
				require.Equal(t, f.db.Clock.Now(), a.UpdatedAt)
			}
			require.Equal(t, "nova", *f.agent(t, "l1").ParentID, "every orchestrator stands under nova")
			require.EqualValues(t, 100_000, *f.agent(t, "l1").TokenBudget)
			require.EqualValues(t, 25_000, *f.agent(t, "l2").TokenBudget)
			require.EqualValues(t, 10_000, *f.agent(t, "l3").TokenBudget)
		})
	})

	t.Run("AFrequencyBelongsToOneLevel", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("spec", "orch-social"))
			parents := map[models.Level]string{1: "nova", 2: "orch-social", 3: "spec"}
			allowed := map[models.Level]map[int]bool{1: {888: true}, 2: {555: true, 666: true}, 3: {444: true}}
			for level, parent := range parents {
				for _, hz := range []int{-1, 0, 111, 222, 333, 444, 555, 556, 600, 666, 777, 888, 999} {
					d := draft(idOf("f", int(level), hz), level, parent)
					d.FrequencyHz = &hz
					_, err := f.Create(t.Context(), admin(), d, nil)
					if allowed[level][hz] {
						require.NoError(t, err, "L%d at %d Hz", level, hz)
					} else {
						require.Equal(t, []string{"invalid-frequency", "frequency_level@/frequency_hz"}, broken(err), "L%d at %d Hz", level, hz)
					}
				}
			}
		})
	})

	t.Run("ABudgetLiesBetween1000AndItsLevelsMaximum", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("spec", "orch-social"))
			parents := map[models.Level]string{1: "nova", 2: "orch-social", 3: "spec"}
			for level, most := range map[models.Level]int64{1: 500_000, 2: 100_000, 3: 50_000} {
				for i, c := range []struct {
					budget int64
					want   []string
				}{
					{999, []string{"invalid-request", "min@/token_budget"}},
					{0, []string{"invalid-request", "min@/token_budget"}},
					{-1, []string{"invalid-request", "min@/token_budget"}},
					{1000, nil},
					{most, nil},
					{most + 1, []string{"token-budget-exceeds-maximum", "level_max@/token_budget"}},
				} {
					d := draft(idOf("b", int(level), i), level, parents[level])
					d.TokenBudget = models.Some(c.budget)
					_, err := f.Create(t.Context(), admin(), d, nil)
					require.Equal(t, c.want, broken(err), "L%d with %d", level, c.budget)
				}
			}
		})
	})

	t.Run("TheBudgetScopeIsOwnOrSubtreeOfEveryLevel", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("spec", "orch-social"))
			parents := map[models.Level]string{1: "nova", 2: "orch-social", 3: "spec"}
			for level, parent := range parents {
				for i, c := range []struct {
					scope models.Optional[models.BudgetScope]
					kept  models.BudgetScope
					want  []string
				}{
					{models.Optional[models.BudgetScope]{}, models.ScopeOwn, nil},
					{models.Some(models.ScopeOwn), models.ScopeOwn, nil},
					{models.Some(models.ScopeSubtree), models.ScopeSubtree, nil},
					{models.Some(models.BudgetScope("")), "", []string{"invalid-request", "oneof@/budget_scope"}},
					{models.Some(models.BudgetScope("OWN")), "", []string{"invalid-request", "oneof@/budget_scope"}},
					{null[models.BudgetScope](), "", []string{"invalid-request", "not_null@/budget_scope"}},
				} {
					d := draft(idOf("s", int(level), i), level, parent)
					d.BudgetScope = c.scope
					_, err := f.Create(t.Context(), admin(), d, nil)
					require.Equal(t, c.want, broken(err), "L%d with %+v", level, c.scope)
					if c.want == nil {
						require.Equal(t, c.kept, f.agent(t, *d.ID).BudgetScope)
					}
				}
			}
			_, err := f.Create(t.Context(), admin(), models.AgentDraft{
				ID: new("nova-2"), Name: new("x"), Level: new(models.LevelSystem), FrequencyHz: new(999), BudgetScope: models.Some(models.ScopeSubtree),
			}, nil)
			require.Equal(t, errs.SystemAgentExists, errs.CodeOf(err), "a second root, whatever its scope")
		})
	})

	t.Run("AParentStandsOneLevelAbove", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("spec", "orch-social"), assistant("help", "spec"), specialist("gone", "orch-social"))
			f.deactivate(t, "gone")
			for parent, want := range map[string]map[models.Level]errs.Code{
				"nova":          {1: "", 2: errs.InvalidParentLevel, 3: errs.InvalidParentLevel},
				"orch-social":   {1: errs.InvalidParentLevel, 2: "", 3: errs.InvalidParentLevel},
				"spec":          {1: errs.InvalidParentLevel, 2: errs.InvalidParentLevel, 3: ""},
				"help":          {1: errs.InvalidParentLevel, 2: errs.InvalidParentLevel, 3: errs.InvalidParentLevel},
				"no-such-agent": {1: errs.ParentNotFound, 2: errs.ParentNotFound, 3: errs.ParentNotFound},
				"gone":          {1: errs.InvalidParentLevel, 2: errs.InvalidParentLevel, 3: errs.ParentInactive},
				"":              {1: "", 2: errs.InvalidRequest, 3: errs.InvalidRequest},
			} {
				for level, code := range want {
					_, err := f.Create(t.Context(), admin(), draft(idOf("p"+parent, int(level), 0), level, parent), nil)
					require.Equal(t, code, errs.CodeOf(err), "L%d under %q", level, parent)
				}
			}
		})
	})

	t.Run("OrchestratorsNeedTheAdminScopeAndASecondRootIsRefusedToAll", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.requireUntouched(t, func() {
				_, err := f.Create(t.Context(), writer(), draft("orch-x", 1, "nova"), nil)
				require.Equal(t, errs.MissingScope, errs.CodeOf(err))
				require.Equal(t, models.ScopeAdmin, errs.From(err).Meta["scope"])
				for _, by := range []models.Principal{writer(), admin()} {
					_, err = f.Create(t.Context(), by, draft("nova-2", 0, ""), nil)
					require.Equal(t, errs.SystemAgentExists, errs.CodeOf(err))
				}
			})
		})
	})

	t.Run("TheLowestClassWinsAndAllOfItIsReported", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("spec", "orch-social"), assistant("help", "spec"), specialist("gone", "orch-social"))
			f.deactivate(t, "gone")
			for name, c := range map[string]struct {
				spoil func(*models.AgentDraft)
				want  []string
			}{
				"400 before 409 before 422": {
					func(d *models.AgentDraft) {
						d.ID, d.TokenBudget, d.FrequencyHz = new("help"), models.Some(int64(60_000)), new(555)
					},
					[]string{"invalid-frequency", "frequency_level@/frequency_hz"},
				},
				"409 before 422, taken id": {
					func(d *models.AgentDraft) { d.ID, d.TokenBudget = new("help"), models.Some(int64(60_000)) },
					[]string{"agent-id-exists", "unique@/id"},
				},
				"409 before 422, inactive parent": {
					func(d *models.AgentDraft) { d.ParentID, d.TokenBudget = new("gone"), models.Some(int64(60_000)) },
					[]string{"parent-inactive", "parent_active@/parent_id"},
				},
				"a taken id and an inactive parent": {
					func(d *models.AgentDraft) { d.ID, d.ParentID = new("help"), new("gone") },
					[]string{"agent-id-exists", "unique@/id", "parent_active@/parent_id"},
				},
				"every 400 at once, the tree's too": {
					func(d *models.AgentDraft) {
						d.Name, d.SphereID, d.FrequencyHz, d.ParentID = new(" "), new(10), new(777), new("no-such-agent")
						d.TokenBudget = models.Some(int64(1))
					},
					[]string{
						"invalid-frequency", "not_blank@/name", "max@/sphere_id", "min@/token_budget",
						"frequency_level@/frequency_hz", "exists@/parent_id",
					},
				},
				"an invalid field and a parent of another level": {
					func(d *models.AgentDraft) { d.Name, d.ParentID = nil, new("help") },
					[]string{"invalid-parent-level", "required@/name", "parent_level@/parent_id"},
				},
				"an invalid root": {
					func(d *models.AgentDraft) { d.Level, d.Name = new(models.LevelSystem), nil },
					[]string{"invalid-frequency", "required@/name", "frequency_level@/frequency_hz"},
				},
			} {
				d := assistant("fresh", "spec")
				c.spoil(&d)
				f.requireUntouched(t, func() {
					_, err := f.Create(t.Context(), admin(), d, nil)
					require.Equal(t, c.want, broken(err), name)
				})
			}
		})
	})

	t.Run("TheIdOfADeactivatedAgentStaysTaken", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("spec", "orch-social"))
			f.deactivate(t, "spec")
			_, err := f.Create(t.Context(), writer(), specialist("spec", "orch-social"), nil)
			require.Equal(t, []string{"agent-id-exists", "unique@/id"}, broken(err))
		})
	})

	t.Run("OfManyWhoWantOneIdOneGetsIt", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			results := make([]error, 16)
			var wg sync.WaitGroup
			for i := range results {
				wg.Go(func() { _, results[i] = f.Create(t.Context(), writer(), specialist("wanted", "orch-social"), nil) })
			}
			wg.Wait()
			won := 0
			for _, err := range results {
				if err == nil {
					won++
					continue
				}
				require.Equal(t, []string{"agent-id-exists", "unique@/id"}, broken(err))
			}
			require.Equal(t, 1, won)
			require.Len(t, f.trail(t, "wanted"), 1)
			require.Len(t, f.events(t, "wanted"), 1)
		})
	})
}
