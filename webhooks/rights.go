package webhooks

import (
	"context"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

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
		return models.Webhook{}, store.WebhookMissing(hook.ID)
	}
	return hook, err
}

// lock is Tx.Webhook for a principal.
func lock(tx *store.Tx, by models.Principal, id string) (models.Webhook, error) {
	hook, err := tx.Webhook(id)
	return visible(by, hook, err)
}

// logChange logs a change of a webhook.
func (w *Webhooks) logChange(ctx context.Context, by models.Principal, id, what string) {
	w.opts.Logger.InfoContext(ctx, what, "webhook", id, "actor", by.Name)
}

// notReplayed reports whether a successful operation had an effect, or only found its stored response.
func notReplayed(once *models.Idempotency) bool { return once == nil || once.Replay == nil }
