package auth

import (
	"cmp"
	"context"
	"time"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
	"comet/store"
	"comet/store/logins"
	"comet/store/quotas"
)

// sessionFor is how long a token of Session is valid, maxSessions how many such tokens an agent may have, and keptFor how long
// an expired one is kept.
const (
	sessionFor  = 15 * time.Minute
	maxSessions = 20
	keptFor     = time.Hour
)

// Session issues a token for the agent of a principal, with the principal's scopes. It expires after 15 minutes, or with the
// principal's own token if that is earlier. The principal may be a signature that replaces a token; the issued token then
// outlives a revocation of the key by at most 15 minutes. Session returns errs.ForeignAgent for a principal without an agent, and
// errs.LimitReached for an agent with maxSessions valid tokens that were issued for at most 15 minutes.
func (a *Auth) Session(ctx context.Context, by models.Principal, once *models.Idempotency) (Issued, error) {
	if by.AgentID == nil {
		return Issued{}, errs.New(errs.ForeignAgent, "the token %q is bound to no agent", by.Name)
	}
	var out Issued
	err := a.store.Once(ctx, once, func(tx *store.Tx) (_ any, err error) {
		if err := cmp.Or(tx.Tokens().LockAll(), quotas.CheckShortLived(tx, *by.AgentID, sessionFor, maxSessions)); err != nil {
			return nil, err
		}
		d := TokenDraft{Name: new(input.ClipTo("session of "+by.Name, maxName)), Scopes: by.Scopes, AgentID: by.AgentID, ExpiresAt: new(tx.Now().Add(sessionFor))}
		if SignatureOnly(by) {
			out, err = issue(tx, by, nil, d)
			return out, err
		}
		parent, err := tx.Tokens().Get(by.TokenID)
		if err != nil {
			return nil, err
		}
		if parent.ExpiresAt != nil && parent.ExpiresAt.Before(*d.ExpiresAt) {
			d.ExpiresAt = parent.ExpiresAt
		}
		out, err = create(tx, by, d)
		return out, err
	})
	return out, err
}

// Purge deletes tokens of agents that were issued for at most 15 minutes and have expired, unless something refers to them,
// and logins and their codes that are not valid.
func (a *Auth) Purge(ctx context.Context) error {
	return a.store.InBatches(ctx, func(tx *store.Tx, limit int) (int64, error) {
		return quotas.PurgeShortLived(tx, sessionFor, tx.Now().Add(-keptFor), limit)
	}, logins.Purge, logins.PurgeCodes)
}

// maxName is the longest name of a token, in characters.
const maxName = 120
