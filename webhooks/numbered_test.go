package webhooks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
	"comet/webhooks"
)

// tree stores nova, one orchestrator, two specialists and two assistants.
func tree(t *testing.T, db *storetest.DB) {
	t.Helper()
	below := func(id string, level models.Level, hz int, parent string) models.Agent {
		return models.Agent{
			ID: id, Name: id, Level: level, SphereID: new(1), FrequencyHz: hz, ParentID: &parent, TokenBudget: new(int64(5000)),
			IsActive: true, Version: 1, CreatedAt: db.Now(), UpdatedAt: db.Now(),
		}
	}
	require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
		return errors.Join(
			tx.Agents().Insert(models.Agent{ID: models.RootAgentID, Name: "NOVA", FrequencyHz: 999, IsActive: true, Version: 1, CreatedAt: db.Now(), UpdatedAt: db.Now()}),
			tx.Agents().Insert(below("orch", 1, 888, models.RootAgentID)),
			tx.Agents().Insert(below("finance", 2, 555, "orch")),
			tx.Agents().Insert(below("health", 2, 555, "orch")),
			tx.Agents().Insert(below("bills", 3, 444, "finance")),
			tx.Agents().Insert(below("coach", 3, 444, "health")),
		)
	}))
}

// received waits until the relay has passed everything and returns the keys a webhook
// received of.
func (h *fixture) received(t *testing.T, id string) []string {
	t.Helper()
	require.Eventually(t, func() bool {
		waiting, err := h.db.Events(t.Context()).Pending()
		return err == nil && !waiting
	}, time.Minute, 5*time.Millisecond)
	keys := []string{}
	for _, d := range h.deliveries(t, id) {
		keys = append(keys, d.Key)
	}
	return keys
}

func TestFilters(t *testing.T) {
	t.Parallel()

	rule(t, "OfTypesPassOnlyThose", func(t *testing.T, h *fixture) {
		hook := h.hook(t, "https://example.com/in", func(d *webhooks.WebhookDraft) {
			d.Events = []models.EventType{events.AgentCreated, events.BudgetWarning}
		})
		require.NoError(t, emit(h.db.Store, events.AgentCreated, "a"))
		require.NoError(t, emit(h.db.Store, events.AgentUpdated, "b"))
		require.NoError(t, emit(h.db.Store, events.BudgetWarning, "c"))
		require.NoError(t, emit(h.db.Store, events.TokenCreated, "token:d"))
		require.Equal(t, []string{"a", "c"}, h.received(t, hook.ID))
	})

	rule(t, "OfAnAgentPassThatAgentsEvents", func(t *testing.T, h *fixture) {
		tree(t, h.db)
		hook := h.hook(t, "https://example.com/in", func(d *webhooks.WebhookDraft) { d.AgentID = new("finance") })
		h.emit(t, "orch", "finance", "bills", "health", "coach", "nova")
		require.Equal(t, []string{"finance"}, h.received(t, hook.ID))
	})

	rule(t, "OfAnAgentPassTheWorkflowsThatItPaysFor", func(t *testing.T, h *fixture) {
		tree(t, h.db)
		of := map[string]models.Webhook{}
		for agent, subtree := range map[string]bool{"bills": false, "finance": true, "health": true} {
			of[agent] = h.hook(t, "https://example.com/in", func(d *webhooks.WebhookDraft) {
				d.Events, d.AgentID, d.Subtree = []models.EventType{"workflow.*"}, &agent, &subtree
			})
		}
		require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
			return tx.Events().Emit(events.WorkflowPaused, "wf_1", map[string]any{"workflow_id": "wf_1", "agent_id": "bills"})
		}))
		for agent, n := range map[string]int{"bills": 1, "finance": 1, "health": 0} {
			require.Len(t, h.received(t, of[agent].ID), n, agent)
		}
	})

	rule(t, "OfASubtreePassTheAgentsBelowToo", func(t *testing.T, h *fixture) {
		tree(t, h.db)
		for id, want := range map[string][]string{
			"finance": {"finance", "bills"},
			"orch":    {"orch", "finance", "bills", "health", "coach"},
			"coach":   {"coach"},
			"nova":    {"orch", "finance", "bills", "health", "coach", "nova"},
		} {
			hook := h.hook(t, "https://example.com/in", func(d *webhooks.WebhookDraft) { d.AgentID, d.Subtree = &id, new(true) })
			h.emit(t, "orch", "finance", "bills", "health", "coach", "nova", "unknown")
			require.Equal(t, want, h.received(t, hook.ID), id)
			require.NoError(t, h.Webhooks.Delete(t.Context(), ops(), hook.ID, nil))
		}
	})

	rule(t, "OfASubtreeFollowAnAgentThatMoves", func(t *testing.T, h *fixture) {
		tree(t, h.db)
		hook := h.hook(t, "https://example.com/in", func(d *webhooks.WebhookDraft) { d.AgentID, d.Subtree = new("finance"), new(true) })
		h.emit(t, "bills", "coach")
		require.Equal(t, []string{"bills"}, h.received(t, hook.ID))
		require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
			for id, parent := range map[string]string{"bills": "health", "coach": "finance"} {
				before, err := tx.Agents().Lock(id)
				if err != nil {
					return err
				}
				after := before
				after.ParentID = &parent
				if err := tx.Agents().Update(before, after); err != nil {
					return err
				}
			}
			return nil
		}))
		h.emit(t, "bills", "coach")
		require.Equal(t, []string{"bills", "coach"}, h.received(t, hook.ID))
	})

	rule(t, "OfAnAgentKeepOutWhatIsNotAboutAgents", func(t *testing.T, h *fixture) {
		tree(t, h.db)
		disabled := func(d *webhooks.WebhookDraft) { d.Events = []models.EventType{events.WebhookDisabled} }
		every := h.hook(t, "https://example.com/in", disabled)
		one := h.hook(t, "https://example.com/in", func(d *webhooks.WebhookDraft) { disabled(d); d.AgentID = new("finance") })
		below := h.hook(t, "https://example.com/in", func(d *webhooks.WebhookDraft) {
			disabled(d)
			d.AgentID, d.Subtree = new("finance"), new(true)
		})
		require.NoError(t, emit(h.db.Store, events.WebhookDisabled, "finance", every.ID))
		require.Equal(t, []string{"finance", every.ID}, h.received(t, every.ID))
		require.Empty(t, h.received(t, one.ID), "although the key is the agent's id")
		require.Empty(t, h.received(t, below.ID))
	})

	rule(t, "ReachWebhooksOfTheirAgents", func(t *testing.T, h *fixture) {
		tree(t, h.db)
		listen := func(agent string, subtree bool) models.Webhook {
			return h.hook(t, "https://example.com/in", func(d *webhooks.WebhookDraft) {
				d.Events, d.AgentID, d.Subtree = []models.EventType{events.WebhookDisabled}, &agent, &subtree
			})
		}
		finance, below, health := listen("finance", false), listen("finance", true), listen("health", true)
		given := map[string]*string{"of all": nil, "of finance": new("finance"), "of bills": new("bills")}
		for _, key := range []string{"of all", "of finance", "of bills"} {
			require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
				return tx.Events().Emit(events.WebhookDisabled, key, webhooks.WebhookDisabled{ID: key, AgentID: given[key]})
			}))
		}
		require.Equal(t, []string{"of finance"}, h.received(t, finance.ID))
		require.Equal(t, []string{"of finance", "of bills"}, h.received(t, below.ID))
		require.Empty(t, h.received(t, health.ID))
	})

	rule(t, "ADisabledWebhookHearsOfNothing", func(t *testing.T, h *fixture) {
		hook := h.hook(t, "https://example.com/in", func(d *webhooks.WebhookDraft) { d.Enabled = new(false) })
		h.emit(t, "a")
		require.Empty(t, h.received(t, hook.ID))
		_, err := h.Update(t.Context(), ops(), hook.ID, webhooks.WebhookPatch{Enabled: models.Some(true)}, nil)
		require.NoError(t, err)
		h.emit(t, "b")
		require.Equal(t, []string{"b"}, h.received(t, hook.ID))
	})
}

// TestEveryEventGetsItsDeliveryOnce: however many write, fail and number at once.
func TestEveryEventGetsItsDeliveryOnce(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		h := newFixture(t, db, nil)
		opts := &events.Options{Poll: time.Millisecond, Deliveries: h}
		second := events.NewRelay(db.Store, events.NewFeed(db.Store, opts), opts)
		require.NoError(t, second.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, second.Stop(context.Background())) })
		hooks := []models.Webhook{
			h.hook(t, "https://example.com/in", nil),
			h.hook(t, "https://example.com/in", ordered),
			h.hook(t, "https://example.com/in", func(d *webhooks.WebhookDraft) { d.Events = events.ForWebhooks() }),
		}
		const writers, rounds = 8, 25
		failures := make([]error, writers)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := range rounds {
					key := fmt.Sprintf("%d-%d", w, i)
					failures[w] = errors.Join(failures[w], emit(db.Store, events.AgentUpdated, key+"-a", key+"-b"))
					_ = db.Write(t.Context(), func(tx *store.Tx) error {
						return errors.Join(tx.Events().Emit(events.AgentUpdated, "lost", nil), errors.New("no"))
					})
				}
			})
		}
		wg.Wait()
		require.NoError(t, errors.Join(failures...))
		const n = writers * rounds * 2
		h.received(t, hooks[0].ID) // all deliveries are written
		all, err := db.Events(t.Context()).After(0, 10*n)
		require.NoError(t, err)
		require.Len(t, all, n)
		var want []string
		for _, e := range all {
			want = append(want, e.ID)
		}
		slices.Sort(want)
		for _, hook := range hooks {
			var got []string
			for _, d := range h.deliveries(t, hook.ID) {
				got = append(got, d.EventID)
				require.Equal(t, models.DeliveryPending, d.State)
			}
			slices.Sort(got)
			require.Equal(t, want, got)
		}
	})
}
