package v5

import (
	"context"

	"comet/internal/errs"
	wire "comet/internal/wire/v5"
	"comet/models"
)

// messageByNumber is the DATA of the newest message with a number between a speaker and O1 in a
// context (decisions: “#MSG:Mn and pid mean the newest message so numbered between the two
// endpoints in that CTX”). Where there is none it is E43. All who ask are User: each finds
// his own messages only, and an admin those of whose conversation it is where he has none.
func (p *Protocol) messageByNumber(ctx context.Context, s sender, of int64, number int) (string, error) {
	unknown := errorf(wire.E43, "", "there is no message M%d between %s and O1 in %s", number, s.address, contextName(of))
	if p.messages == nil {
		return "", unknown
	}
	l, err := p.messages.ByNumber(ctx, of, s.peer(), number)
	if errs.Is(err, errs.NotFound) && s.agentID == "" && s.Has(models.ScopeAdmin) {
		var owner string
		if owner, err = p.conversationOwner(ctx, of); err == nil {
			l, err = p.messages.ByNumber(ctx, of, userPeer(owner), number)
		}
	}
	if errs.Is(err, errs.NotFound) {
		return "", unknown
	}
	return l.Data, err
}

// readMessageReference answers Q with ref=#MSG:M3.
func (p *Protocol) readMessageReference(ctx context.Context, s sender, m wire.Message, number int) (string, error) {
	unknown := unknownSession(m.Context)
	n, ok := contextNumber(m.Context)
	if !ok || m.Context == wire.SystemContext {
		return "", unknown
	}
	if ok, err := p.ownsConversation(ctx, s, n); err != nil || !ok {
		if err == nil || isNotFound(err) {
			err = unknown
		}
		return "", err
	}
	return p.messageByNumber(ctx, s, n, number)
}

// ownsConversation reports whether what is said between a speaker and O1 in a context is the
// speaker's own: an agent has a number that is nobody else's, and of all that are User it
// is whose session, or task, the context is.
func (p *Protocol) ownsConversation(ctx context.Context, s sender, of int64) (bool, error) {
	if s.agentID != "" {
		_, err := p.orchestrator.SessionOfContext(ctx, of)
		return err == nil, err
	}
	owner, err := p.conversationOwner(ctx, of)
	return err == nil && (owner == s.TokenID || s.Has(models.ScopeAdmin)), err
}

// conversationOwner is the id of the token whose session, or task, a context is.
func (p *Protocol) conversationOwner(ctx context.Context, of int64) (tokenID string, err error) {
	session, err := p.orchestrator.SessionOfContext(ctx, of)
	if err != nil {
		return "", err
	}
	if session == "" {
		t, err := p.orchestrator.TaskByShortID(ctx, models.ShortID{Context: of, Task: 1})
		return t.Owner, err
	}
	kept, err := p.orchestrator.Session(ctx, session)
	return kept.Owner, err
}
