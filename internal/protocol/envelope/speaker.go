package envelope

import (
	"context"

	"comet/internal/errs"
	wire "comet/internal/wire/envelope"
	"comet/models"
)

// sender is who sends a message: an agent, or somebody who acts as the orchestrator.
type sender struct {
	models.Principal
	// agentID is the agent's id, "" for the orchestrator.
	agentID   string
	agentType string
}

// maySubmit reports whether the speaker may ask for work.
func (s sender) maySubmit() bool { return s.Has(models.ScopeMessagesSend) }

// senderOf returns who sends a message. The token names the agent, and from_agent must be
// that agent's type; a token that belongs to no agent acts as the orchestrator. What
// does not fit is errs.Unauthenticated, which says no more; the log does.
func (d *Protocol) senderOf(ctx context.Context, from models.Principal, e wire.Envelope) (sender, error) {
	s := sender{Principal: from, agentType: wire.Orchestrator}
	if from.AgentID == nil {
		if !s.maySubmit() {
			return s, d.rejectSender(ctx, s, e, "the token belongs to no agent and lacks the scope messages:send")
		}
	} else {
		kind, ok, err := d.work.AgentType(ctx, *from.AgentID)
		if err != nil {
			return s, err
		}
		if !ok || kind == "" {
			return s, d.rejectSender(ctx, s, e, "the agent has no type, or is not active")
		}
		s.agentID, s.agentType = *from.AgentID, kind
	}
	if e.From != s.agentType {
		return s, d.rejectSender(ctx, s, e, "from_agent is not the type of the token's agent")
	}
	return s, nil
}

// rejectSender refuses somebody without a hint; an operator finds the reason in the log.
func (d *Protocol) rejectSender(ctx context.Context, s sender, e wire.Envelope, why string) error {
	d.log.InfoContext(ctx, "a message was refused", "reason", why, "token_id", s.TokenID, "agent", s.agentID, "type", s.agentType, "from_agent", e.From)
	return errs.New(errs.Unauthenticated, "authentication failed")
}

// wrongField is a message that is well-formed and cannot be meant.
func wrongField(field, format string, args ...any) error {
	var v errs.Violations
	v.Add(errs.InvalidRequest, field, "invalid", format, args...)
	return v.Err()
}
