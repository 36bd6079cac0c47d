package envelope

import (
	"context"

	"comet/internal/errs"
	wire "comet/internal/wire/envelope"
	"comet/models"
)

// speaker is who sends a message: an agent, or somebody who acts as the orchestrator.
type speaker struct {
	models.Principal
	// agent is the agent's id, "" for the orchestrator.
	agent string
	kind  string
}

// mayAsk reports whether the speaker may ask for work.
func (s speaker) mayAsk() bool { return s.Has(models.ScopeMessagesSend) }

// speaker returns who sends a message. The token names the agent, and from_agent must be
// that agent's type; a token that belongs to no agent acts as the orchestrator. What
// does not fit is errs.Unauthenticated, which says no more; the log does.
func (d *Protocol) speaker(ctx context.Context, from models.Principal, e wire.Envelope) (speaker, error) {
	s := speaker{Principal: from, kind: wire.Orchestrator}
	if from.AgentID == nil {
		if !s.mayAsk() {
			return s, d.stranger(ctx, s, e, "the token belongs to no agent and lacks the scope messages:send")
		}
	} else {
		kind, ok, err := d.work.AgentType(ctx, *from.AgentID)
		if err != nil {
			return s, err
		}
		if !ok || kind == "" {
			return s, d.stranger(ctx, s, e, "the agent has no type, or is not active")
		}
		s.agent, s.kind = *from.AgentID, kind
	}
	if e.From != s.kind {
		return s, d.stranger(ctx, s, e, "from_agent is not the type of the token's agent")
	}
	return s, nil
}

// stranger refuses somebody without a hint; an operator finds the reason in the log.
func (d *Protocol) stranger(ctx context.Context, s speaker, e wire.Envelope, why string) error {
	d.log.InfoContext(ctx, "a message was refused", "reason", why, "token_id", s.TokenID, "agent", s.agent, "type", s.kind, "from_agent", e.From)
	return errs.New(errs.Unauthenticated, "authentication failed")
}

// wrongField is a message that is well-formed and cannot be meant.
func wrongField(field, format string, args ...any) error {
	var v errs.Violations
	v.Add(errs.InvalidRequest, field, "invalid", format, args...)
	return v.Err()
}
