package webhooks

import (
	"cmp"
	"context"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// A token bound to an agent manages the webhooks of that agent and of the agents below it; other webhooks
// are invisible to it. Any other token with the scope manages all webhooks.

// Get returns a webhook, or errs.NotFound.
func (w *Webhooks) Get(ctx context.Context, by models.Principal, id string) (models.Webhook, error) {
	hook, err := w.store.Webhooks(ctx).Get(id)
	return visible(w.store.Agents(ctx).Confine, by, hook, err)
}

// List returns up to limit webhooks in the order of creation, after the id after.
func (w *Webhooks) List(ctx context.Context, by models.Principal, after string, limit int) ([]models.Webhook, error) {
	return w.store.Webhooks(ctx).List(by.AgentID, after, limit)
}

// confine returns errs.ForeignAgent if a principal is bound to an agent and a webhook is for the events of
// all agents or of one that is not in its subtree.
func confine(within func(models.Principal, string) error, by models.Principal, agentID *string) error {
	return within(by, *cmp.Or(agentID, new("")))
}

// visible returns a webhook, or errs.NotFound if the principal may not see it.
func visible(within func(models.Principal, string) error, by models.Principal, hook models.Webhook, err error) (models.Webhook, error) {
	if err == nil {
		err = confine(within, by, hook.AgentID)
	}
	if errs.Is(err, errs.ForeignAgent) {
		err = errs.New(errs.NotFound, "there is no webhook %q", hook.ID)
	}
	return hook, err
}

// lock is Webhooks.Lock for a principal.
func lock(tx *store.Tx, by models.Principal, id string) (models.Webhook, error) {
	hook, err := tx.Webhooks().Lock(id)
	return visible(tx.Agents().Confine, by, hook, err)
}

func (w *Webhooks) logChange(ctx context.Context, by models.Principal, id, what string) {
	w.opts.Logger.InfoContext(ctx, what, "webhook", id, "actor", by.Name)
}
