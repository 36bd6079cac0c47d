package webhooks_test

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/webhooks"
)

// move changes the parent of an agent.
func (h *fixture) move(t *testing.T, id, parent string) {
	t.Helper()
	require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
		before, err := tx.Agents().Lock(id)
		if err != nil {
			return err
		}
		after := before
		after.ParentID = &parent
		return tx.Agents().Update(before, after)
	}))
}

// issue stores a token that is bound to an agent and returns its principal.
func (h *fixture) issue(t *testing.T, id, agent string, parent *string) models.Principal {
	t.Helper()
	by := bound(agent)
	by.TokenID, by.Name = id, id
	require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
		return tx.Tokens().Insert(models.Token{
			ID: id, Name: id, Hash: sha256.Sum256([]byte(id)), Scopes: by.Scopes, AgentID: by.AgentID, ParentID: parent, CreatedAt: tx.Now(),
		})
	}))
	return by
}

// createdBy registers a webhook of an agent with the authority of a principal.
func (h *fixture) createdBy(t *testing.T, by models.Principal, agent string, subtree bool) models.Webhook {
	t.Helper()
	hook, err := h.Create(t.Context(), by, draft(func(d *webhooks.WebhookDraft) {
		d.Events, d.AgentID, d.Subtree = []models.EventType{"agent.*", "webhook.*"}, &agent, &subtree
	}), nil)
	require.NoError(t, err)
	return hook.Webhook
}

// TestAWebhookHasTheAuthorityOfItsToken moves agents out of the subtrees of the tokens that created webhooks.
func TestAWebhookHasTheAuthorityOfItsToken(t *testing.T) {
	t.Parallel()

	rule(t, "WhenItsAgentMoves", func(t *testing.T, h *fixture) {
		tree(t, h.db)
		since := h.db.Now()
		orch := h.issue(t, "orch-token", "orch", nil)
		finance := h.issue(t, "finance-token", "finance", &orch.TokenID)
		of := map[string]models.Webhook{
			"finance": h.createdBy(t, finance, "bills", false),
			"subtree": h.createdBy(t, finance, "bills", true),
			"bills":   h.createdBy(t, h.issue(t, "bills-token", "bills", &finance.TokenID), "bills", false), // its token ends with the move
			"alone":   h.createdBy(t, h.issue(t, "alone-token", "bills", nil), "bills", false),
			"issuer":  h.createdBy(t, bound("finance"), "bills", false), // a token of an issuer is not stored
			"orch":    h.createdBy(t, orch, "bills", false),
			"ops":     h.createdBy(t, ops(), "bills", false),
		}
		receive := func(want map[string]int) {
			t.Helper()
			h.emit(t, "bills")
			require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
				return tx.Events().Emit(events.WebhookDisabled, "another", webhooks.WebhookDisabled{ID: "another", AgentID: new("bills")})
			}))
			for name, hook := range of {
				require.Len(t, h.received(t, hook.ID), want[name], name)
			}
		}
		receive(map[string]int{"finance": 2, "subtree": 2, "bills": 2, "alone": 2, "issuer": 2, "orch": 2, "ops": 2})
		h.move(t, "bills", "health")
		receive(map[string]int{"finance": 2, "subtree": 2, "bills": 2, "alone": 4, "issuer": 2, "orch": 4, "ops": 4})
		for _, name := range []string{"finance", "subtree", "bills", "issuer"} {
			require.Zero(t, h.replay(t, of[name].ID, missed(since)), "%s: missed events have no other receivers", name)
		}
		h.move(t, "bills", "finance")
		receive(map[string]int{"finance": 4, "subtree": 4, "bills": 4, "alone": 6, "issuer": 4, "orch": 6, "ops": 6})
	})

	rule(t, "AndOfTheTokenThatChangesIt", func(t *testing.T, h *fixture) {
		tree(t, h.db)
		finance := h.issue(t, "finance-token", "finance", nil)
		hook := h.createdBy(t, ops(), "bills", false)
		update := func(by models.Principal, p webhooks.WebhookPatch) {
			t.Helper()
			h.db.Clock.Advance(time.Second)
			_, err := h.Update(t.Context(), by, hook.ID, p, nil)
			require.NoError(t, err)
		}
		confinedTo := func(want ...string) {
			t.Helper()
			got, err := h.Get(t.Context(), ops(), hook.ID)
			require.NoError(t, err)
			require.ElementsMatch(t, want, got.ConfinedTo)
		}
		update(finance, webhooks.WebhookPatch{Description: models.Some(hook.Description)})
		confinedTo()
		update(finance, webhooks.WebhookPatch{URL: models.Some("https://example.org/finance")})
		confinedTo("finance")
		update(ops(), webhooks.WebhookPatch{Description: models.Some("of finance")})
		confinedTo("finance")
		h.move(t, "bills", "health")
		h.emit(t, "bills")
		require.Empty(t, h.received(t, hook.ID))
		update(ops(), webhooks.WebhookPatch{AgentID: models.Some("bills")})
		confinedTo()
		h.emit(t, "bills")
		require.Len(t, h.received(t, hook.ID), 1)
	})
}

// TestATokenKeepsTheWebhooksThatItCreated moves an agent out of the subtree of the token that created its webhook.
func TestATokenKeepsTheWebhooksThatItCreated(t *testing.T) {
	t.Parallel()
	rule(t, "ToReadAndDelete", func(t *testing.T, h *fixture) {
		tree(t, h.db)
		above := h.issue(t, "above-token", "finance", nil)
		creator := h.issue(t, "creator-token", "finance", &above.TokenID)
		below := h.issue(t, "below-token", "finance", &creator.TokenID)
		beside := h.issue(t, "beside-token", "finance", nil)
		hook, second := h.createdBy(t, creator, "bills", true), h.createdBy(t, creator, "bills", false)
		h.keep(t, hook, 0, 1)
		delivery := h.deliveries(t, hook.ID)[0].ID
		list := func(by models.Principal) (ids []string) {
			t.Helper()
			all, err := h.List(t.Context(), by, "", 10)
			require.NoError(t, err)
			for _, hook := range all {
				ids = append(ids, hook.ID)
			}
			return ids
		}
		both := []string{hook.ID, second.ID}
		for _, by := range []models.Principal{above, creator, below, beside, ops()} {
			require.Equal(t, both, list(by), by.Name)
		}
		issued := bound("finance") // a principal of an OpenID Connect issuer, whose token is not stored
		issued.TokenID = "issuer:subject"
		third := h.createdBy(t, issued, "bills", false)
		h.move(t, "bills", "health")
		require.Equal(t, []string{third.ID}, list(issued))
		require.NoError(t, h.Webhooks.Delete(t.Context(), issued, third.ID, nil))
		for _, by := range []models.Principal{below, beside, bound("finance")} {
			require.Empty(t, list(by), by.Name)
			h.requireNotFound(t, by, hook.ID, delivery)
		}
		for _, by := range []models.Principal{above, creator} {
			require.Equal(t, both, list(by), by.Name)
			page, err := h.List(t.Context(), by, hook.ID, 1)
			require.NoError(t, err)
			require.Equal(t, second.ID, page[0].ID)
			got, err := h.Get(t.Context(), by, hook.ID)
			require.NoError(t, err)
			require.Equal(t, []string{"finance"}, got.ConfinedTo)
			for name, do := range h.operations(t, by, hook.ID, delivery) {
				if name != "get" && name != "delete" {
					require.Equal(t, errs.ForeignAgent, errs.CodeOf(do()), "%s %s", by.Name, name)
				}
			}
		}
		got, err := h.Get(t.Context(), ops(), hook.ID)
		require.NoError(t, err)
		require.Equal(t, hook, got, "no patch has changed it")
		h.emit(t, "bills")
		require.Empty(t, h.received(t, second.ID), "it is confined")

		fourth := h.createdBy(t, ops(), "bills", false)
		_, err = h.Update(t.Context(), bound("health"), second.ID, webhooks.WebhookPatch{URL: models.Some("https://example.org/secret")}, nil)
		require.NoError(t, err)
		require.Equal(t, both[:1], list(creator), "another token has changed the second: it has that token's authority now")
		h.requireNotFound(t, creator, second.ID, delivery)
		h.requireNotFound(t, above, fourth.ID, delivery)

		require.NoError(t, h.Webhooks.Delete(t.Context(), creator, hook.ID, nil))
		require.Empty(t, list(above))
	})
}

// operations are those on a webhook and one of its deliveries, as a principal.
func (h *fixture) operations(t *testing.T, by models.Principal, id, delivery string) map[string]func() error {
	t.Helper()
	ctx := t.Context()
	patch := func(p webhooks.WebhookPatch) func() error {
		return func() error { _, err := h.Update(ctx, by, id, p, nil); return err }
	}
	return map[string]func() error{
		"get":        func() error { _, err := h.Get(ctx, by, id); return err },
		"describe":   patch(webhooks.WebhookPatch{Description: models.Some("x")}),
		"enable":     patch(webhooks.WebhookPatch{Enabled: models.Some(true)}),
		"subtree":    patch(webhooks.WebhookPatch{Subtree: models.Some(true)}),
		"url":        patch(webhooks.WebhookPatch{URL: models.Some("https://example.org/other")}),
		"move":       patch(webhooks.WebhookPatch{AgentID: models.Some("finance")}),
		"widen":      patch(webhooks.WebhookPatch{AgentID: models.Optional[string]{Set: true, Null: true}}),
		"rotate":     func() error { _, err := h.Rotate(ctx, by, id, rotation("", 0), nil, nil); return err },
		"test":       func() error { _, _, err := h.Test(ctx, by, id); return err },
		"deliveries": func() error { _, err := h.Deliveries(ctx, by, id, store.DeliveryQuery{Limit: 1}); return err },
		"delivery":   func() error { _, _, err := h.Delivery(ctx, by, id, delivery); return err },
		"redeliver":  func() error { _, err := h.Redeliver(ctx, by, id, delivery); return err },
		"since":      func() error { _, err := h.RedeliverAll(ctx, by, id, created(time.Time{})); return err },
		"missed":     func() error { _, err := h.RedeliverAll(ctx, by, id, missed(time.Time{})); return err },
		"delete":     func() error { return h.Webhooks.Delete(ctx, by, id, nil) },
	}
}

// requireNotFound proves that a webhook is invisible to a principal.
func (h *fixture) requireNotFound(t *testing.T, by models.Principal, id, delivery string) {
	t.Helper()
	for name, do := range h.operations(t, by, id, delivery) {
		require.Equal(t, errs.NotFound, errs.CodeOf(do()), "%s %s", by.Name, name)
	}
}
