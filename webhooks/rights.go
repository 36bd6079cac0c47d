package webhooks

import (
	"context"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// A token that is bound to an agent manages the webhooks of that agent, with or
// without the agents below it, and the others are not there for it. Any other token
// with the scope manages all of them.

// checkBound refuses to let a bound token have a webhook that hears of another agent.
func checkBound(by models.Principal, agentID *string) error {
	if by.AgentID == nil || agentID != nil && *agentID == *by.AgentID {
		return nil
	}
	return errs.New(errs.ForeignAgent, "this token is bound to the agent %q and manages the webhooks of that agent only; agent_id must be %q",
		*by.AgentID, *by.AgentID)
}

// visible returns a webhook that was found, or errs.NotFound where it is not there
// for the principal.
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

// tell logs what somebody has done with a webhook.
func (w *Webhooks) tell(ctx context.Context, by models.Principal, id, what string) {
	w.opts.Logger.InfoContext(ctx, what, "webhook", id, "actor", by.Name)
}

// fresh reports whether a verb that has ended well did something, and not only found
// what it did before.
func fresh(once *models.Idempotency) bool { return once == nil || once.Replay == nil }
