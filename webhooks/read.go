package webhooks

import (
	"context"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// Get returns a webhook, or errs.NotFound.
func (w *Webhooks) Get(ctx context.Context, by models.Principal, id string) (models.Webhook, error) {
	hook, err := w.store.Webhooks(ctx).Get(id)
	return visible(by, hook, err)
}

// List returns up to limit webhooks in the order of creation, after the id after.
func (w *Webhooks) List(ctx context.Context, by models.Principal, after string, limit int) ([]models.Webhook, error) {
	return w.store.Webhooks(ctx).List(by.AgentID, after, limit)
}

// A token bound to an agent manages the webhooks of that agent, with or without its subtree;
// other webhooks are invisible to it. Any other token with the scope manages all webhooks.

// checkBound refuses a bound token that registers a webhook for another agent.
func checkBound(by models.Principal, agentID *string) error {
	if by.AgentID == nil || agentID != nil && *agentID == *by.AgentID {
		return nil
	}
	return errs.New(errs.ForeignAgent, "this token is bound to the agent %q and manages the webhooks of that agent only; agent_id must be %q",
		*by.AgentID, *by.AgentID)
}

// visible returns a webhook, or errs.NotFound if the principal may not see it.
func visible(by models.Principal, hook models.Webhook, err error) (models.Webhook, error) {
	if err == nil && checkBound(by, hook.AgentID) != nil {
		return models.Webhook{}, errs.New(errs.NotFound, "there is no webhook %q", hook.ID)
	}
	return hook, err
}

// lock is Webhooks.Lock for a principal.
func lock(tx *store.Tx, by models.Principal, id string) (models.Webhook, error) {
	hook, err := tx.Webhooks().Lock(id)
	return visible(by, hook, err)
}

func (w *Webhooks) logChange(ctx context.Context, by models.Principal, id, what string) {
	w.opts.Logger.InfoContext(ctx, what, "webhook", id, "actor", by.Name)
}
