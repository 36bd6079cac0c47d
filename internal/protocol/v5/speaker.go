package v5

import (
	"context"

	wire "comet/internal/wire/v5"
	"comet/models"
)

// sender is who sends a message: an agent, or somebody who asks for work.
type sender struct {
	models.Principal
	// agentID is the agent's id and address its name, "" and User for somebody else.
	agentID string
	address wire.Address
	// v4 is set for whoever speaks V4, and of is the task that such a message is about,
	// nil where its CTX says so, or there is none.
	v4   bool
	task *models.Task
	// incoming is the message, to be kept, nil for one that is not.
	incoming *incomingMessage
}

// identifySender returns who sends a message. The token names the agent, and FROM must be the
// number it has; only a join may propose another one, which it does not get.
func (p *Protocol) identifySender(ctx context.Context, from models.Principal, m wire.Message) (sender, error) {
	s := sender{Principal: from, address: wire.Address{Role: wire.User}}
	if from.AgentID == nil {
		switch {
		case m.From.Role != wire.User:
			return s, errorf(wire.E13, "from", "the token belongs to no agent: FROM must be User, not %s", m.From)
		case !s.maySubmit():
			return s, errorf(wire.E90, "scope", "asking for work takes a token with the scope messages:send")
		}
		return s, nil
	}
	s.agentID = *from.AgentID
	var err error
	if s.address, err = p.agentAddress(ctx, s.agentID); err != nil {
		s.address = wire.Address{}
		return s, err
	}
	if m.From != s.address && (m.Type != wire.Join || m.From.Role != wire.Worker) {
		return s, errorf(wire.E13, "from", "FROM must be %s, the number of the agent that speaks, not %s", s.address, m.From)
	}
	return s, nil
}

// withTokenSender is a line that could not be read, as one of the agent whose token it came with:
// it is that agent that has to be told.
func (p *Protocol) withTokenSender(ctx context.Context, from models.Principal, m wire.Message) wire.Message {
	if from.AgentID == nil {
		return m
	}
	if own, err := p.agentAddress(ctx, *from.AgentID); err == nil {
		m.From = own
	}
	return m
}

// peer is the end that the speaker is in the journal. All who ask are User on the wire, so
// that what is said between one of them and O1 is kept under his token.
func (s sender) peer() string {
	if s.agentID == "" {
		return userPeer(s.TokenID)
	}
	return s.address.String()
}

// userPeer is the end in the journal of whoever asks with a token.
func userPeer(tokenID string) string { return "User:" + tokenID }

// maySubmit reports whether the speaker may ask for work.
func (s sender) maySubmit() bool { return s.Has(models.ScopeMessagesSend) }

// owns reports whether the speaker asked for a task, or may do as if.
func (s sender) owns(t models.Task) bool { return t.Owner == s.TokenID || s.Has(models.ScopeAdmin) }
