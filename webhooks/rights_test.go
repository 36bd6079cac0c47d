package webhooks_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
	"comet/webhooks"
)

func bound(agent string) models.Principal {
	by := ops()
	by.AgentID = &agent
	return by
}

// TestABoundToken manages the webhooks of its agent and of the agents below it, and no others.
func TestABoundToken(t *testing.T) {
	t.Parallel()

	rule(t, "MakesWebhooksOfItsSubtreeOnly", func(t *testing.T, h *fixture) {
		tree(t, h.db)
		for name, agent := range map[string]*string{"no": nil, "another": new("health")} {
			_, err := h.Create(t.Context(), bound("finance"), draft(func(d *webhooks.WebhookDraft) {
				d.AgentID, d.Events = agent, nil // which is wrong too
			}), nil)
			require.Equal(t, errs.ForeignAgent, errs.CodeOf(err), name)
			require.Contains(t, err.Error(), `bound to the agent "finance"`)
		}
		for _, subtree := range []bool{false, true} {
			_, err := h.Create(t.Context(), bound("finance"), draft(func(d *webhooks.WebhookDraft) { d.AgentID, d.Subtree = new("finance"), &subtree }), nil)
			require.NoError(t, err)
		}
		_, err := h.Create(t.Context(), bound("finance"), draft(func(d *webhooks.WebhookDraft) { d.AgentID = new("bills") }), nil)
		require.NoError(t, err)
		all, err := h.List(t.Context(), ops(), "", 10)
		require.NoError(t, err)
		require.Len(t, all, 3)
	})

	rule(t, "SeesNoOthers", func(t *testing.T, h *fixture) {
		tree(t, h.db)
		var own []string
		for i, agent := range []*string{nil, new("finance"), new("health"), new("finance"), new("bills"), new("finance")} {
			hook := h.hook(t, url, func(d *webhooks.WebhookDraft) { d.AgentID, d.Subtree = agent, new(i == 3) })
			if agent != nil && *agent != "health" {
				own = append(own, hook.ID)
				continue
			}
			h.requireMissing(t, bound("finance"), hook)
		}
		var got []string
		for after := ""; ; after = got[len(got)-1] {
			page, err := h.List(t.Context(), bound("finance"), after, 1)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			require.Len(t, page, 1)
			got = append(got, page[0].ID)
		}
		require.Equal(t, own, got)
	})

	rule(t, "ManagesItsOwn", func(t *testing.T, h *fixture) {
		tree(t, h.db)
		by, rec := bound("finance"), receive(t, nil)
		hook := h.hook(t, rec.URL, func(d *webhooks.WebhookDraft) { d.AgentID = new("finance") })
		for _, away := range []models.Optional[string]{models.Some("health"), {Set: true, Null: true}} {
			_, err := h.Update(t.Context(), by, hook.ID, webhooks.WebhookPatch{AgentID: away}, nil)
			require.Equal(t, errs.ForeignAgent, errs.CodeOf(err))
		}
		_, err := h.Update(t.Context(), by, hook.ID, webhooks.WebhookPatch{AgentID: models.Some("finance"), Subtree: models.Some(true)}, nil)
		require.NoError(t, err)
		_, err = h.Rotate(t.Context(), by, hook.ID, rotation("", 0), nil, nil)
		require.NoError(t, err)
		tested, _, err := h.Test(t.Context(), by, hook.ID)
		require.NoError(t, err)
		_, _, err = h.Delivery(t.Context(), by, hook.ID, tested.ID)
		require.NoError(t, err)
		_, err = h.Redeliver(t.Context(), by, hook.ID, tested.ID)
		require.NoError(t, err)
		_, err = h.RedeliverAll(t.Context(), by, hook.ID, created(time.Time{}))
		require.NoError(t, err)
		all, err := h.Deliveries(t.Context(), by, hook.ID, store.DeliveryQuery{Limit: 10})
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.NoError(t, h.Webhooks.Delete(t.Context(), by, hook.ID, nil))
	})
}

// requireMissing proves that a webhook is invisible to a principal.
func (h *fixture) requireMissing(t *testing.T, by models.Principal, hook models.Webhook) {
	t.Helper()
	ctx, id := t.Context(), hook.ID
	h.keep(t, hook, 0, 1)
	delivery := h.deliveries(t, id)[0].ID
	for verb, do := range map[string]func(id string) error{
		"get": func(id string) error { _, err := h.Get(ctx, by, id); return err },
		"update": func(id string) error {
			_, err := h.Update(ctx, by, id, webhooks.WebhookPatch{Description: models.Some("x")}, nil)
			return err
		},
		"move": func(id string) error {
			_, err := h.Update(ctx, by, id, webhooks.WebhookPatch{AgentID: models.Some(*by.AgentID)}, nil)
			return err
		},
		"rotate":     func(id string) error { _, err := h.Rotate(ctx, by, id, rotation("", 0), nil, nil); return err },
		"test":       func(id string) error { _, _, err := h.Test(ctx, by, id); return err },
		"deliveries": func(id string) error { _, err := h.Deliveries(ctx, by, id, store.DeliveryQuery{Limit: 1}); return err },
		"delivery":   func(id string) error { _, _, err := h.Delivery(ctx, by, id, delivery); return err },
		"redeliver":  func(id string) error { _, err := h.Redeliver(ctx, by, id, delivery); return err },
		"since":      func(id string) error { _, err := h.RedeliverAll(ctx, by, id, created(time.Time{})); return err },
		"delete":     func(id string) error { return h.Webhooks.Delete(ctx, by, id, nil) },
	} {
		err, unknown := do(id), do("unknown")
		require.Equal(t, errs.NotFound, errs.CodeOf(err), verb)
		require.Equal(t, strings.ReplaceAll(unknown.Error(), "unknown", id), err.Error(), verb)
	}
	got, err := h.Get(ctx, ops(), id)
	require.NoError(t, err)
	require.Equal(t, hook, got)
	require.Len(t, h.deliveries(t, id), 1)
}

// safeBuffer may be written to by several goroutines.
type safeBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// TestTheLogTellsWhoChangedAWebhook checks that each change has one log record, without secrets.
func TestTheLogTellsWhoChangedAWebhook(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		log, opts := &safeBuffer{}, options()
		opts.Logger = slog.New(slog.NewTextHandler(log, nil))
		h := newFixture(t, db, opts)
		once := &models.Idempotency{Principal: "ops", Key: "k", Render: func(any) (models.StoredResponse, error) { return models.StoredResponse{Status: 200}, nil }}
		created, err := h.Create(t.Context(), ops(), draft(nil), once)
		require.NoError(t, err)
		again := *once
		_, err = h.Create(t.Context(), ops(), draft(nil), &again)
		require.NoError(t, err)
		require.NotNil(t, again.Replay)
		id := created.Webhook.ID
		for range 2 { // the second time nothing changes
			_, err = h.Update(t.Context(), ops(), id, webhooks.WebhookPatch{URL: models.Some("https://example.org/in?token=secret")}, nil)
			require.NoError(t, err)
		}
		rotated, err := h.Rotate(t.Context(), ops(), id, rotation("", 0), nil, nil)
		require.NoError(t, err)
		require.NoError(t, h.Webhooks.Delete(t.Context(), ops(), id, nil))
		require.Error(t, h.Webhooks.Delete(t.Context(), ops(), id, nil))

		text := log.String()
		for _, what := range []string{"created", "changed", "got a new secret", "deleted"} {
			require.Equal(t, 1, strings.Count(text, `level=INFO msg="a webhook was `+what+`" webhook=`+id+" actor=ops")+
				strings.Count(text, `level=INFO msg="a webhook `+what+`" webhook=`+id+" actor=ops"), "%s: %s", what, text)
		}
		require.Equal(t, 4, strings.Count(text, "\n"), text)
		for _, secret := range []string{"example", "token", created.Secret, rotated.Secret} {
			require.NotContains(t, text, secret)
		}
	})
}
