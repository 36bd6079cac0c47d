package registry_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/registry"
	"comet/models"
)

func null[T any]() models.Optional[T] { return models.Optional[T]{Set: true, Null: true} }

func TestUpdate(t *testing.T) {
	t.Parallel()

	t.Run("OnlyMembersThatArePresentChangeAnything", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			d := assistant("help", "spec")
			d.Description, d.Type, d.Capabilities = "as it was", "research", []string{"email"}
			f.create(t, specialist("spec", "orch-social"), d)
			want := f.agent(t, "help")
			f.db.Clock.Advance(90)
			updated, err := f.Update(t.Context(), writer(), "help", registry.AgentPatch{
				Name: models.Some("Updated Assistant Name"), TokenBudget: models.Some(int64(25_000)),
			}, nil)
			require.NoError(t, err)
			want.Name, want.TokenBudget, want.Version, want.UpdatedAt = "Updated Assistant Name", new(int64(25_000)), 2, f.db.Now()
			require.Equal(t, want, f.agent(t, "help"))
			require.Equal(t, want, updated.Detail.Agent)
		})
	})

	t.Run("NullEmptiesTextAndIsRefusedElsewhere", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			d := specialist("spec", "orch-social")
			d.Description, d.Type = "as it was", "research"
			f.create(t, d)
			f.requireUntouched(t, func() {
				err := f.patch(t, "spec", registry.AgentPatch{
					Name: null[string](), Capabilities: null[[]string](), IsActive: null[bool](), ID: null[string](), Level: null[models.Level](),
					FrequencyHz: null[int](), SphereID: null[int](), ParentID: null[string](), TokenBudget: null[int64](), Description: null[string](),
					BudgetScope: null[models.BudgetScope](),
				})
				require.Equal(t, []string{
					"invalid-request", "not_null@/name", "not_null@/capabilities", "not_null@/budget_scope", "not_null@/is_active", "not_null@/id",
					"not_null@/level", "not_null@/frequency_hz", "not_null@/sphere_id", "not_null@/parent_id", "not_null@/token_budget",
				}, broken(err))
			})
			require.NoError(t, f.patch(t, "spec", registry.AgentPatch{Description: null[string](), Type: null[string]()}))
			require.Empty(t, f.agent(t, "spec").Description)
			require.Empty(t, f.agent(t, "spec").Type)
		})
	})

	t.Run("AnImmutableMemberIsAcceptedWithTheValueItHas", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("spec", "orch-social"))
			f.requireUntouched(t, func() {
				require.NoError(t, f.patch(t, "spec", registry.AgentPatch{
					ID: models.Some("spec"), Level: models.Some(models.LevelSpecialist), FrequencyHz: models.Some(555),
				}))
				err := f.patch(t, "spec", registry.AgentPatch{
					ID: models.Some("other"), Level: models.Some(models.LevelAssistant), FrequencyHz: models.Some(666), Name: models.Some("new"),
				})
				require.Equal(t, []string{"immutable-field", "immutable@/id", "immutable@/level", "immutable@/frequency_hz"}, broken(err))
			})
		})
	})

	t.Run("FoundersNeedTheAdminScope", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			for _, id := range []string{"nova", "orch-social"} {
				f.requireUntouched(t, func() {
					err := f.patch(t, id, registry.AgentPatch{Name: models.Some("")})
					require.Equal(t, errs.MissingScope, errs.CodeOf(err), "403 before 400")
				})
				_, err := f.Update(t.Context(), admin(), id, registry.AgentPatch{Name: models.Some("Renamed")}, nil)
				require.NoError(t, err)
				require.Equal(t, "Renamed", f.agent(t, id).Name)
			}
			require.Equal(t, errs.NotFound, errs.CodeOf(f.patch(t, "no-such-agent", registry.AgentPatch{Name: models.Some("")})), "404 before 400")
		})
	})

	t.Run("TheBudgetScopeIsOwnOrSubtree", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("spec", "orch-social"))
			require.Equal(t, models.ScopeOwn, f.agent(t, "spec").BudgetScope, "what is left out")
			for _, scope := range []models.BudgetScope{models.ScopeSubtree, models.ScopeOwn} {
				updated, err := f.Update(t.Context(), writer(), "spec", registry.AgentPatch{BudgetScope: models.Some(scope)}, nil)
				require.NoError(t, err)
				require.Equal(t, scope, updated.Detail.BudgetScope)
				require.Equal(t, scope, f.agent(t, "spec").BudgetScope)
			}
			f.requireUntouched(t, func() {
				for _, scope := range []models.BudgetScope{"", "Subtree", "both"} {
					p := registry.AgentPatch{BudgetScope: models.Some(scope), Name: models.Some("never stored")}
					require.Equal(t, []string{"invalid-request", "oneof@/budget_scope"}, broken(f.patch(t, "spec", p)), "%q", scope)
				}
				err := f.patch(t, "orch-social", registry.AgentPatch{BudgetScope: models.Some(models.ScopeSubtree)})
				require.Equal(t, errs.MissingScope, errs.CodeOf(err), "an orchestrator's is the admin's to change")
			})
			_, err := f.Update(t.Context(), admin(), "orch-social", registry.AgentPatch{BudgetScope: models.Some(models.ScopeSubtree)}, nil)
			require.NoError(t, err)
		})
	})

	t.Run("TheRootsBudgetScopeIsOwn", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.requireUntouched(t, func() {
				_, err := f.Update(t.Context(), admin(), "nova", registry.AgentPatch{BudgetScope: models.Some(models.ScopeOwn)}, nil)
				require.NoError(t, err, "the value it has")
				_, err = f.Update(t.Context(), admin(), "nova", registry.AgentPatch{BudgetScope: models.Some(models.ScopeSubtree), TokenBudget: models.Some(int64(5000))}, nil)
				require.Equal(t, []string{"invalid-request", "null_for_l0@/token_budget", "own_for_l0@/budget_scope"}, broken(err))
				_, err = f.Update(t.Context(), admin(), "nova", registry.AgentPatch{BudgetScope: models.Some(models.BudgetScope("both"))}, nil)
				require.Equal(t, []string{"invalid-request", "oneof@/budget_scope"}, broken(err))
				_, err = f.Update(t.Context(), admin(), "nova", registry.AgentPatch{BudgetScope: null[models.BudgetScope]()}, nil)
				require.Equal(t, []string{"invalid-request", "not_null@/budget_scope"}, broken(err))
			})
		})
	})

	t.Run("TheRootHasNoSphereParentAndBudget", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.requireUntouched(t, func() {
				_, err := f.Update(t.Context(), admin(), "nova", registry.AgentPatch{
					SphereID: null[int](), ParentID: null[string](), TokenBudget: null[int64](),
				}, nil)
				require.NoError(t, err)
				_, err = f.Update(t.Context(), admin(), "nova", registry.AgentPatch{
					SphereID: models.Some(1), ParentID: models.Some("orch-social"), TokenBudget: models.Some(int64(5000)),
				}, nil)
				require.Equal(t, []string{"invalid-request", "null_for_l0@/sphere_id", "null_for_l0@/parent_id", "null_for_l0@/token_budget"}, broken(err))
			})
		})
	})

	t.Run("400Before409Before422AndThePreconditionLast", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("spec", "orch-social"), assistant("help", "spec"))
			stale := func(version int64) error { return errs.New(errs.PreconditionFailed, "at %d", version) }
			f.requireUntouched(t, func() {
				p := registry.AgentPatch{TokenBudget: models.Some(int64(100_001)), IsActive: models.Some(false), SphereID: models.Some(0)}
				for _, want := range [][]string{
					{"invalid-request", "min@/sphere_id"},
					{"active-children", "active_children@/is_active"},
					{"token-budget-exceeds-maximum", "level_max@/token_budget"},
					{"precondition-failed"},
				} {
					_, err := f.Update(t.Context(), writer(), "spec", p, stale)
					require.Equal(t, want, broken(err))
					switch want[0] {
					case "invalid-request":
						p.SphereID.Value = 2
					case "active-children":
						p.IsActive.Value = true
					case "token-budget-exceeds-maximum":
						p.TokenBudget.Value = 100_000
					}
				}
				require.Equal(t, errs.PreconditionFailed, errs.CodeOf(f.Deactivate(t.Context(), writer(), "help", stale)))
				require.Equal(t, errs.ActiveChildren, errs.CodeOf(f.Deactivate(t.Context(), writer(), "spec", stale)))
			})
			seen := int64(0)
			_, err := f.Update(t.Context(), writer(), "spec", registry.AgentPatch{Name: models.Some("new")}, func(v int64) error { seen = v; return nil })
			require.NoError(t, err)
			require.EqualValues(t, 1, seen, "it judges the version before the change")
		})
	})
}

func TestMove(t *testing.T) {
	t.Parallel()

	t.Run("AnAgentStandsUnderItsNewParentWithEverythingBelowIt", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("spec", "orch-social"), assistant("help", "spec"))
			require.NoError(t, f.patch(t, "spec", registry.AgentPatch{ParentID: models.Some("orch-business")}))
			above, err := f.Ancestors(t.Context(), "help")
			require.NoError(t, err)
			require.Equal(t, []string{"spec", "orch-business", "nova"}, []string{above[0].ID, above[1].ID, above[2].ID})
			before, err := f.Get(t.Context(), "orch-social")
			require.NoError(t, err)
			require.Empty(t, before.Children)
			after, err := f.Get(t.Context(), "orch-business")
			require.NoError(t, err)
			require.Equal(t, []models.AgentRef{{ID: "spec", Level: 2}}, after.Children)
			require.Equal(t, 1, *f.agent(t, "spec").SphereID, "the sphere is the agent's own")
		})
	})

	t.Run("TheNewParentMustExistBeActiveAndStandOneLevelAbove", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("spec", "orch-social"), assistant("help", "spec"), assistant("other", "spec"), specialist("gone", "orch-social"))
			f.deactivate(t, "gone")
			f.requireUntouched(t, func() {
				for _, c := range []struct {
					id, parent string
					want       []string
				}{
					{"help", "no-such-agent", []string{"parent-not-found", "exists@/parent_id"}},
					{"help", "Not An Id", []string{"invalid-request", "agent_id@/parent_id"}},
					{"help", "gone", []string{"parent-inactive", "parent_active@/parent_id"}},
					{"help", "orch-social", []string{"invalid-parent-level", "parent_level@/parent_id"}},
					{"help", "other", []string{"invalid-parent-level", "parent_level@/parent_id"}},
					{"help", "help", []string{"invalid-parent-level", "parent_level@/parent_id"}},
					{"spec", "help", []string{"invalid-parent-level", "parent_level@/parent_id"}},
					{"spec", "spec", []string{"invalid-parent-level", "parent_level@/parent_id"}},
					{"spec", "nova", []string{"invalid-parent-level", "parent_level@/parent_id"}},
				} {
					require.Equal(t, c.want, broken(f.patch(t, c.id, registry.AgentPatch{ParentID: models.Some(c.parent)})), "%s under %s", c.id, c.parent)
				}
				_, err := f.Update(t.Context(), admin(), "orch-social", registry.AgentPatch{ParentID: models.Some("orch-business")}, nil)
				require.Equal(t, errs.InvalidParentLevel, errs.CodeOf(err))
			})
		})
	})

	t.Run("AnInactiveAgentMayStandUnderAnInactiveParent", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("spec", "orch-social"), specialist("gone", "orch-social"), assistant("help", "spec"))
			f.deactivate(t, "gone", "help")
			require.NoError(t, f.patch(t, "help", registry.AgentPatch{ParentID: models.Some("gone")}))
			require.Equal(t, "gone", *f.agent(t, "help").ParentID)
		})
	})
}

func TestDeactivate(t *testing.T) {
	t.Parallel()

	// The two ways to deactivate.
	ways := map[string]func(*testing.T, *fixture, models.Principal, string) error{
		"DELETE": func(t *testing.T, f *fixture, by models.Principal, id string) error {
			t.Helper()
			return f.Deactivate(t.Context(), by, id, nil)
		},
		"PATCH": func(t *testing.T, f *fixture, by models.Principal, id string) error {
			t.Helper()
			_, err := f.Update(t.Context(), by, id, registry.AgentPatch{IsActive: models.Some(false)}, nil)
			return err
		},
	}
	for way, deactivate := range ways {
		t.Run(way+"PassesTheSameGuards", func(t *testing.T) {
			t.Parallel()
			onEveryDatabase(t, func(t *testing.T, f *fixture) {
				f.create(t, specialist("spec", "orch-social"), assistant("help", "spec"))
				f.requireUntouched(t, func() {
					for _, id := range []string{"nova", "orch-social", "orch-business"} {
						require.Equal(t, []string{"protected-agent", "protected@/is_active"}, broken(deactivate(t, f, admin(), id)))
					}
					require.Equal(t, []string{"active-children", "active_children@/is_active"}, broken(deactivate(t, f, writer(), "spec")))
					require.Equal(t, errs.NotFound, errs.CodeOf(deactivate(t, f, writer(), "no-such-agent")))
				})
				require.NoError(t, deactivate(t, f, writer(), "help"))
				require.NoError(t, deactivate(t, f, writer(), "spec"), "only active children count")
				require.False(t, f.agent(t, "spec").IsActive)
				f.requireUntouched(t, func() { require.NoError(t, deactivate(t, f, writer(), "spec"), "twice is fine") })
			})
		})
	}

	t.Run("ADeactivatedAgentMayBeChanged", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("spec", "orch-social"))
			f.deactivate(t, "spec")
			require.NoError(t, f.patch(t, "spec", registry.AgentPatch{Name: models.Some("retired")}))
			require.Equal(t, "retired", f.agent(t, "spec").Name)
			require.False(t, f.agent(t, "spec").IsActive)
		})
	})
}

func TestRestore(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, f *fixture) {
		restore := registry.AgentPatch{IsActive: models.Some(true)}
		f.create(t, specialist("spec", "orch-social"), specialist("rest", "orch-social"), assistant("help", "spec"))
		f.deactivate(t, "help", "spec")
		f.requireUntouched(t, func() {
			require.Equal(t, []string{"parent-inactive", "parent_active@/parent_id"}, broken(f.patch(t, "help", restore)))
			require.NoError(t, f.patch(t, "rest", restore), "an active agent stays as it is")
		})
		elsewhere := restore
		elsewhere.ParentID = models.Some("rest")
		require.NoError(t, f.patch(t, "help", elsewhere), "it may be restored under another parent")
		require.NoError(t, f.patch(t, "spec", restore))
		require.True(t, f.agent(t, "help").IsActive)
		require.True(t, f.agent(t, "spec").IsActive)
	})
}
