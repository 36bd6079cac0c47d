package v5

import (
	"context"

	"comet/internal/errs"
	wire "comet/internal/wire/v5"
	"comet/models"
)

// message is the DATA of the newest message with a number between a speaker and O1 in a
// context (decisions: “#MSG:Mn and pid mean the newest message so numbered between the two
// endpoints in that CTX”). Where there is none it is E43. All who ask are User: each finds
// his own messages only, and an admin those of whose conversation it is where he has none.
func (d *Protocol) message(ctx context.Context, s speaker, of int64, number int) (string, error) {
	unknown := refuse(wire.E43, "", "there is no message M%d between %s and O1 in %s", number, s.address, contextName(of))
	if d.messages == nil {
		return "", unknown
	}
	l, err := d.messages.ByNumber(ctx, of, s.peer(), number)
	if errs.Is(err, errs.NotFound) && s.agent == "" && s.Has(models.ScopeAdmin) {
		var owner string
		if owner, err = d.conversant(ctx, of); err == nil {
			l, err = d.messages.ByNumber(ctx, of, userPeer(owner), number)
		}
	}
	if errs.Is(err, errs.NotFound) {
		return "", unknown
	}
	return l.Data, err
}

// said answers Q with ref=#MSG:M3.
func (d *Protocol) said(ctx context.Context, s speaker, m wire.Message, number int) (string, error) {
	unknown := noSession(m.Context)
	n, ok := contextNumber(m.Context)
	if !ok || m.Context == wire.SystemContext {
		return "", unknown
	}
	if ok, err := d.converses(ctx, s, n); err != nil || !ok {
		if err == nil || isGone(err) {
			err = unknown
		}
		return "", err
	}
	return d.message(ctx, s, n, number)
}

// converses reports whether what is said between a speaker and O1 in a context is the
// speaker's own: an agent has a number that is nobody else's, and of all that are User it
// is whose session, or task, the context is.
func (d *Protocol) converses(ctx context.Context, s speaker, of int64) (bool, error) {
	if s.agent != "" {
		_, err := d.work.SessionOfContext(ctx, of)
		return err == nil, err
	}
	owner, err := d.conversant(ctx, of)
	return err == nil && (owner == s.TokenID || s.Has(models.ScopeAdmin)), err
}

// conversant is the id of the token whose session, or task, a context is.
func (d *Protocol) conversant(ctx context.Context, of int64) (tokenID string, err error) {
	session, err := d.work.SessionOfContext(ctx, of)
	if err != nil {
		return "", err
	}
	if session == "" {
		t, err := d.work.TaskByShortID(ctx, models.ShortID{Context: of, Task: 1})
		return t.Owner, err
	}
	kept, err := d.work.Session(ctx, session)
	return kept.Owner, err
}
