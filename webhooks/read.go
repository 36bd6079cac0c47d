package webhooks

import (
	"cmp"
	"context"
	"slices"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// A token bound to an agent manages the webhooks of that agent and of the agents below it. It can also read
// and delete those that it or a descendant created, even if their agent has moved out of its subtree. Other
// webhooks are invisible to it. Any other token with the scope manages all webhooks.

// Get returns a webhook, or errs.NotFound.
func (w *Webhooks) Get(ctx context.Context, by models.Principal, id string) (models.Webhook, error) {
	return orCreated(w.managed(ctx, by, id))
}

// managed is Get, but returns errs.ForeignAgent for a webhook that the principal can only read and delete.
func (w *Webhooks) managed(ctx context.Context, by models.Principal, id string) (models.Webhook, error) {
	hook, err := w.store.Webhooks(ctx).Get(id)
	return visible(w.store.Agents(ctx).Confine, w.store.Tokens(ctx).Chain, by, hook, err)
}

// List returns up to limit webhooks in the order of creation, after the id after.
func (w *Webhooks) List(ctx context.Context, by models.Principal, after string, limit int) ([]models.Webhook, error) {
	return w.store.Webhooks(ctx).List(by, after, limit)
}

// confine returns errs.ForeignAgent if a principal is bound to an agent and a webhook is for the events of
// all agents or of one that is not in its subtree.
func confine(within func(models.Principal, string) error, by models.Principal, agentID *string) error {
	return within(by, *cmp.Or(agentID, new("")))
}

// visible returns a webhook, errs.NotFound if the principal may not see it, or errs.ForeignAgent if the
// principal can only read and delete it because it, or a descendant of its token, created it.
func visible(within func(models.Principal, string) error, chain func(string) ([]string, error), by models.Principal, hook models.Webhook, err error) (models.Webhook, error) {
	if err == nil {
		err = confine(within, by, hook.AgentID)
	}
	if !errs.Is(err, errs.ForeignAgent) {
		return hook, err
	}
	creators, failed := chain(hook.TokenID)
	if failed == nil && (by.TokenID == "" || !slices.Contains(append(creators, hook.TokenID), by.TokenID)) {
		failed = errs.New(errs.NotFound, "there is no webhook %q", hook.ID)
	}
	return hook, cmp.Or(failed, err)
}

// orCreated accepts a webhook for which visible returned errs.ForeignAgent.
func orCreated(hook models.Webhook, err error) (models.Webhook, error) {
	if errs.Is(err, errs.ForeignAgent) {
		err = nil
	}
	return hook, err
}

// lock is Webhooks.Lock for a principal, with the errors of visible.
func lock(tx *store.Tx, by models.Principal, id string) (models.Webhook, error) {
	hook, err := tx.Webhooks().Lock(id)
	return visible(tx.Agents().Confine, tx.Tokens().Chain, by, hook, err)
}

func (w *Webhooks) logChange(ctx context.Context, by models.Principal, id, what string) {
	w.opts.Logger.InfoContext(ctx, what, "webhook", id, "actor", by.Name)
}
