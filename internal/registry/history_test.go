package registry_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/internal/registry"
	"comet/internal/requestid"
	"comet/models"
)

// kinds lists the types of an agent's events.
func kinds(recorded []models.Event) []models.EventType {
	out := []models.EventType{}
	for _, e := range recorded {
		out = append(out, e.Type)
	}
	return out
}

// change is a Change as it comes back from JSON.
func change(field string, from, to any) models.Change {
	return models.Change{Field: field, From: from, To: to}
}

func TestHistory(t *testing.T) {
	t.Parallel()

	t.Run("ACreationIsOneLineAndOneEventWithTheWholeAgent", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			d := assistant("help", "spec")
			d.Capabilities, d.Description, d.Type, d.TokenBudget = []string{"email", "own"}, "text", "research", models.Some(int64(15_000))
			d.BudgetScope = models.Some(models.ScopeSubtree)
			f.create(t, specialist("spec", "orch-social"))
			ctx := requestid.With(t.Context(), "req-1")
			_, err := f.Create(ctx, writer(), d, nil)
			require.NoError(t, err)

			lines := f.trail(t, "help")
			require.Len(t, lines, 1)
			require.Positive(t, lines[0].ID)
			lines[0].ID = 0
			require.Equal(t, models.AuditEntry{
				AgentID: "help", At: f.db.Clock.Now(), Actor: "writer", ActorID: "token-w", Action: models.AuditCreated, RequestID: "req-1", Version: 1,
				Changes: []models.Change{
					change("name", nil, "The help"), change("level", nil, 3.0), change("sphere_id", nil, 1.0), change("frequency_hz", nil, 444.0),
					change("capabilities", nil, []any{"email", "own"}), change("parent_id", nil, "spec"), change("token_budget", nil, 15_000.0),
					change("budget_scope", nil, "subtree"), change("is_active", nil, true), change("description", nil, "text"), change("type", nil, "research"),
				},
			}, lines[0])

			recorded := f.events(t, "help")
			require.Equal(t, []models.EventType{events.AgentCreated}, kinds(recorded))
			require.Equal(t, f.db.Clock.Now(), recorded[0].At)
			require.Equal(t, registry.AgentSnapshot{
				AgentID: "help", ID: "help", Name: "The help", Description: "text", Level: 3, SphereID: new(1), FrequencyHz: 444, Capabilities: []string{"email", "own"}, Type: "research",
				ParentID: new("spec"), TokenBudget: new(int64(15_000)), BudgetScope: models.ScopeSubtree, IsActive: true, Version: 1,
				CreatedAt: f.db.Clock.Now(), Actor: "writer",
			}, data[registry.AgentSnapshot](t, recorded[0]))
		})
	})

	t.Run("AChangeIsOneLineAndOneEventThatSayFromWhatToWhat", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("spec", "orch-social"), specialist("next", "orch-social"), assistant("help", "spec"))
			f.db.Clock.Advance(time.Second)
			p := registry.AgentPatch{
				Name: models.Some("New"), Description: models.Some("text"), Type: models.Some("desktop"), Capabilities: models.Some([]string{"email"}),
				SphereID: models.Some(2), ParentID: models.Some("next"), TokenBudget: models.Some(int64(1000)),
				BudgetScope: models.Some(models.ScopeSubtree), IsActive: models.Some(true),
			}
			require.NoError(t, f.patch(t, "help", p))
			want := []models.Change{
				change("name", "The help", "New"), change("sphere_id", 1.0, 2.0), change("capabilities", []any{}, []any{"email"}),
				change("description", "", "text"), change("type", "", "desktop"), change("parent_id", "spec", "next"), change("token_budget", 10_000.0, 1000.0),
				change("budget_scope", "own", "subtree"),
			}
			lines, recorded := f.trail(t, "help"), f.events(t, "help")
			require.Len(t, lines, 2)
			require.Equal(t, models.AuditUpdated, lines[1].Action)
			require.EqualValues(t, 2, lines[1].Version)
			require.Equal(t, f.db.Clock.Now(), lines[1].At)
			require.Equal(t, want, lines[1].Changes)
			require.Equal(t, []models.EventType{events.AgentCreated, events.AgentUpdated}, kinds(recorded))
			require.Equal(t, registry.AgentChanged{AgentSnapshot: registry.AgentSnapshot{
				AgentID: "help", ID: "help", Name: "New", Description: "text", Level: 3, SphereID: new(2), FrequencyHz: 444, Capabilities: []string{"email"},
				Type: "desktop", ParentID: new("next"), TokenBudget: new(int64(1000)), BudgetScope: models.ScopeSubtree, IsActive: true, Version: 2,
				CreatedAt: f.db.Clock.Now().Add(-time.Second), Actor: "writer",
			}, Changes: want}, data[registry.AgentChanged](t, recorded[1]))
		})
	})

	t.Run("ADeactivationIsAgentDeactivatedAlone", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("a", "orch-social"), specialist("b", "orch-social"))
			f.deactivate(t, "a")
			require.NoError(t, f.patch(t, "b", registry.AgentPatch{IsActive: models.Some(false)}))
			want := []models.Change{change("is_active", true, false)}
			for _, id := range []string{"a", "b"} {
				lines, recorded := f.trail(t, id), f.events(t, id)
				require.Len(t, lines, 2)
				require.Equal(t, models.AuditDeactivated, lines[1].Action)
				require.Equal(t, want, lines[1].Changes)
				require.Equal(t, []models.EventType{events.AgentCreated, events.AgentDeactivated}, kinds(recorded))
				requireChange(t, id, false, want, data[registry.AgentChanged](t, recorded[1]))
			}
		})
	})

	t.Run("ADeactivationThatChangesMoreIsOneLineAndBothEvents", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("spec", "orch-social"))
			require.NoError(t, f.patch(t, "spec", registry.AgentPatch{Name: models.Some("Old"), IsActive: models.Some(false)}))
			lines, recorded := f.trail(t, "spec"), f.events(t, "spec")
			require.Len(t, lines, 2)
			require.Equal(t, models.AuditDeactivated, lines[1].Action)
			require.Equal(t, []models.EventType{events.AgentCreated, events.AgentUpdated, events.AgentDeactivated}, kinds(recorded))
			want := []models.Change{change("name", "The spec", "Old"), change("is_active", true, false)}
			requireChange(t, "spec", false, want, data[registry.AgentChanged](t, recorded[1]))
			requireChange(t, "spec", false, want, data[registry.AgentChanged](t, recorded[2]))
		})
	})

	t.Run("ARestorationIsOneLineAndAgentUpdated", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("spec", "orch-social"))
			f.deactivate(t, "spec")
			require.NoError(t, f.patch(t, "spec", registry.AgentPatch{IsActive: models.Some(true)}))
			lines, recorded := f.trail(t, "spec"), f.events(t, "spec")
			require.Len(t, lines, 3)
			require.Equal(t, models.AuditRestored, lines[2].Action)
			require.Equal(t, []models.Change{change("is_active", false, true)}, lines[2].Changes)
			require.Equal(t, []models.EventType{events.AgentCreated, events.AgentDeactivated, events.AgentUpdated}, kinds(recorded))
			require.EqualValues(t, 3, data[registry.AgentChanged](t, recorded[2]).Version)
		})
	})

	t.Run("WhatChangesNothingLeavesNoTrace", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			d := specialist("spec", "orch-social")
			d.Capabilities = []string{"email", "chat"}
			f.create(t, d)
			f.requireUntouched(t, func() {
				updated, err := f.Update(t.Context(), writer(), "spec", registry.AgentPatch{}, nil)
				require.NoError(t, err)
				require.Equal(t, f.agent(t, "spec"), updated.Detail.Agent)
				require.NoError(t, f.patch(t, "spec", registry.AgentPatch{
					Name: models.Some("The spec"), Capabilities: models.Some([]string{"email", "chat"}), SphereID: models.Some(1),
					ParentID: models.Some("orch-social"), TokenBudget: models.Some(int64(25_000)), BudgetScope: models.Some(models.ScopeOwn),
					IsActive: models.Some(true), Type: null[string](),
				}))
			})
			require.NoError(t, f.patch(t, "spec", registry.AgentPatch{Capabilities: models.Some([]string{"chat", "email"})}))
			require.EqualValues(t, 2, f.agent(t, "spec").Version, "the order of the capabilities is part of the agent")
		})
	})

	t.Run("ARepeatedRequestHasNoSecondEffect", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			once := func() *models.Idempotency {
				return &models.Idempotency{
					Principal: "token-w", Key: "k", RequestHash: [32]byte{1},
					Render: func(any) (models.StoredResponse, error) {
						return models.StoredResponse{Status: 201, Body: []byte("made")}, nil
					},
				}
			}
			_, err := f.Create(t.Context(), writer(), specialist("spec", "orch-social"), once())
			require.NoError(t, err)
			f.requireUntouched(t, func() {
				again := once()
				_, err = f.Create(t.Context(), writer(), specialist("spec", "orch-social"), again)
				require.NoError(t, err, "not 409: it is the same request")
				require.Equal(t, []byte("made"), again.Replay.Body)
			})
		})
	})

	t.Run("TheTrailPagesBackwards", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("spec", "orch-social"))
			for _, name := range []string{"one", "two", "three"} {
				require.NoError(t, f.patch(t, "spec", registry.AgentPatch{Name: models.Some(name)}))
			}
			var versions []int64
			for before := int64(0); ; {
				page, err := f.AuditTrail(t.Context(), "spec", before, 3)
				require.NoError(t, err)
				for _, line := range page {
					versions = append(versions, line.Version)
					before = line.ID
				}
				if len(page) < 3 {
					break
				}
			}
			require.Equal(t, []int64{4, 3, 2, 1}, versions)
			_, err := f.AuditTrail(t.Context(), "no-such-agent", 0, 10)
			require.Equal(t, []string{"not-found"}, broken(err))
		})
	})
}

// requireChange checks what an event says about the first change of an agent.
func requireChange(t *testing.T, id string, active bool, want []models.Change, got registry.AgentChanged) {
	t.Helper()
	require.Equal(t, want, got.Changes)
	require.Equal(t, []any{id, id, int64(2), "writer", active}, []any{got.AgentID, got.ID, got.Version, got.Actor, got.IsActive})
}
