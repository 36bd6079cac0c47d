package auth

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/input"
	"comet/models"
	"comet/store"
	"comet/store/quotas"
)

// Issued is a token with its secret, which is shown once.
type Issued struct {
	Token  models.Token
	Secret string
}

// Create issues a token. A principal that is bound to an agent issues tokens with at most its own scopes
// and expiry, for its agent and the agents below it; they are revoked with its own token. Others need the
// scope admin. Create returns errs.MissingScope, ForeignAgent and LimitReached, and errs.InvalidRequest
// for an invalid draft, including an expiry in the past and an unknown agent.
func (a *Auth) Create(ctx context.Context, by models.Principal, d TokenDraft, once *models.Idempotency) (Issued, error) {
	v := input.Validate(d)
	checkExpiry(&v, d.ExpiresAt, a.store.Now())
	if err := v.Err(); err != nil {
		return Issued{}, err
	}
	var out Issued
	err := a.store.Once(ctx, once, func(tx *store.Tx) (_ any, err error) {
		out, err = create(tx, by, d)
		return out, err
	})
	return out, err
}

// maxChain is how many tokens a token may descend from.
const maxChain = 5

// delegate adapts the draft of a principal that is bound to an agent, and returns the token's parent: nil
// for a principal that is not.
func delegate(tx *store.Tx, by models.Principal, d *TokenDraft) (*string, error) {
	if by.AgentID == nil || by.Issued != nil && by.Administers() {
		return nil, Require(by, models.ScopeAdmin)
	}
	if SignatureOnly(by) {
		return nil, errs.New(errs.MissingScope, "an agent whose signature replaces a token cannot create tokens")
	}
	if by.Issued != nil { // the new token would not end with it
		return nil, errs.New(errs.MissingScope, "a token of the issuer can create tokens only with the scope %q for the whole system", models.ScopeAdmin).With("scope", models.ScopeAdmin)
	}
	if err := tx.Tokens().LockAll(); err != nil { // a revocation of the parent includes the token
		return nil, err
	}
	parent, err := tx.Tokens().Get(by.TokenID) // quotas.Add locks the owner of the quota first
	if err != nil {
		return nil, err
	}
	if !parent.Active(tx.Now()) {
		return nil, errs.New(errs.Unauthenticated, "the token is unknown, expired or revoked")
	}
	for _, s := range d.Scopes {
		if err := Require(by, s); err != nil {
			return nil, err
		}
	}
	chain, err := tx.Tokens().Chain(by.TokenID)
	if err != nil {
		return nil, err
	}
	if len(chain) > maxChain {
		return nil, errs.New(errs.LimitReached, "the token %q descends from %d other tokens; create the new token with one of those", by.Name, maxChain)
	}
	d.AgentID, d.ExpiresAt = cmp.Or(d.AgentID, by.AgentID), cmp.Or(d.ExpiresAt, parent.ExpiresAt)
	if parent.ExpiresAt != nil && d.ExpiresAt.After(*parent.ExpiresAt) {
		return nil, input.Violated("/expires_at", "max", "expires_at must not be later than %s, when the token %q expires", parent.ExpiresAt.Format(time.RFC3339), by.Name)
	}
	return &parent.ID, tx.Agents().Confine(by, *d.AgentID)
}

// checkExpiry requires a time in the future that RFC 3339 can express in UTC.
func checkExpiry(v *errs.Violations, at *time.Time, now time.Time) {
	switch {
	case at == nil:
	case !at.After(now):
		v.Add(errs.InvalidRequest, "/expires_at", "future", "expires_at must be in the future")
	case at.UTC().Year() > maxYear:
		v.Add(errs.InvalidRequest, "/expires_at", "max", "expires_at must not be later than the year %d in UTC", maxYear)
	}
}

// maxYear is the last year that RFC 3339 can express.
const maxYear = 9999

func create(tx *store.Tx, by models.Principal, d TokenDraft) (Issued, error) {
	parent, err := delegate(tx, by, &d)
	if err != nil {
		return Issued{}, err
	}
	return issue(tx, by, parent, d)
}

// issue stores a token that descends from parent, nil for none.
func issue(tx *store.Tx, by models.Principal, parent *string, d TokenDraft) (Issued, error) {
	if d.AgentID != nil {
		var v errs.Violations
		agent, err := tx.Agents().LockShared(*d.AgentID)
		switch {
		case errs.Is(err, errs.NotFound):
			v.Add(errs.InvalidRequest, "/agent_id", "exists", "there is no agent %q", *d.AgentID)
		case err != nil:
			return Issued{}, err
		case agent.Level > models.LevelOrchestrator && slices.Contains(d.Scopes, models.ScopeAdmin):
			v.Add(errs.InvalidRequest, "/scopes", "admin_level", "a token with the scope %q can be bound to agents of level 0 and 1 only; %q has level %d", models.ScopeAdmin, agent.ID, agent.Level)
		}
		if err := v.Err(); err != nil {
			return Issued{}, err
		}
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Issued{}, err
	}
	secret := NewSecret()
	t := models.Token{
		ID: id.String(), Name: *d.Name, Hash: sha256.Sum256([]byte(secret)), Scopes: d.Scopes,
		AgentID: d.AgentID, ParentID: parent, CreatedBy: by.Name, CreatedAt: tx.Now(),
	}
	t.ExpiresAt = stored(d.ExpiresAt)
	if err = insert(tx, by, t); err == nil {
		err = quotas.Add(tx, by, "tokens", t.ID)
	}
	return Issued{t, secret}, err
}

// authorize returns errs.NotFound if a token is neither that of a principal that is bound to an agent nor
// one that descends from it. Other principals need the scope admin.
func (a *Auth) authorize(ctx context.Context, by models.Principal, id string) error {
	if by.AgentID == nil || by.Administers() {
		return Require(by, models.ScopeAdmin)
	}
	chain, err := a.store.Tokens(ctx).Chain(id)
	if err == nil && id != by.TokenID && !slices.Contains(chain, by.TokenID) {
		err = errs.New(errs.NotFound, "there is no token %q", id)
	}
	return err
}

// Rotate gives a token a new secret and ends the old one, or returns errs.NotFound or TokenRevoked.
func (a *Auth) Rotate(ctx context.Context, by models.Principal, id string, pre models.Precondition, once *models.Idempotency) (Issued, error) {
	var out Issued
	if err := a.authorize(ctx, by, id); err != nil {
		return out, err
	}
	err := a.store.Once(ctx, once, func(tx *store.Tx) (any, error) {
		t, err := tx.Tokens().Lock(id)
		if err != nil {
			return nil, err
		}
		if t.RevokedAt != nil {
			return nil, errs.New(errs.TokenRevoked, "the token %q is revoked; create a new one", id)
		}
		if err := pre.Check(t.Version()); err != nil {
			return nil, err
		}
		secret := NewSecret()
		t.Hash, t.RotatedAt = sha256.Sum256([]byte(secret)), new(tx.Now())
		out = Issued{t, secret}
		return out, save(tx, by, t, events.TokenRotated)
	})
	a.forget()
	return out, err
}

// adminDays is the number of days for which another admin token must be valid when one is revoked.
const adminDays = 30

// Revoke ends a token and those that were created with it: at once on this replica, within a second on
// others; a second call changes nothing. It returns errs.NotFound, or errs.LastAdminToken if no admin
// token would remain that is valid for adminDays.
func (a *Auth) Revoke(ctx context.Context, by models.Principal, id string, pre models.Precondition) error {
	if err := a.authorize(ctx, by, id); err != nil {
		return err
	}
	err := a.store.Write(ctx, func(tx *store.Tx) error {
		if err := tx.Tokens().LockAll(); err != nil {
			return err
		}
		admins, err := tx.Tokens().LockAdmins()
		if err != nil {
			return err
		}
		t, err := tx.Tokens().Lock(id)
		if err := cmp.Or(err, pre.Check(t.Version())); err != nil || t.RevokedAt != nil {
			return err
		}
		tokens, err := tx.Tokens().LockTree(id)
		if err != nil {
			return err
		}
		revoked := func(a models.Token) bool {
			return slices.ContainsFunc(tokens, func(t models.Token) bool { return t.ID == a.ID })
		}
		lasting := tx.Now().AddDate(0, 0, adminDays)
		if slices.ContainsFunc(admins, revoked) && !slices.ContainsFunc(admins, func(a models.Token) bool {
			return !revoked(a) && (a.ExpiresAt == nil || !a.ExpiresAt.Before(lasting))
		}) {
			return errs.New(errs.LastAdminToken, "no other token with the scope %q for the whole system is valid for at least %d days; create one first, then revoke %q with it", models.ScopeAdmin, adminDays, t.Name)
		}
		for _, t := range tokens {
			t.RevokedAt = new(tx.Now())
			if err := save(tx, by, t, events.TokenRevoked); err != nil {
				return err
			}
		}
		return nil
	})
	a.forget()
	return err
}

// Get returns a token without its secret, or errs.NotFound.
func (a *Auth) Get(ctx context.Context, by models.Principal, id string) (t models.Token, err error) {
	if by.Issued != nil && id == by.TokenID {
		return *by.Issued, nil
	}
	if id != by.TokenID {
		err = a.authorize(ctx, by, id)
	}
	if err != nil {
		return t, err
	}
	return a.store.Tokens(ctx).Get(id)
}

// List returns up to limit tokens in the order of creation, after the id after ("" for none): all for an
// administrator, for a principal that is bound to an agent its own token and those that descend from it.
func (a *Auth) List(ctx context.Context, by models.Principal, after string, limit int) ([]models.Token, error) {
	if by.Administers() {
		return a.store.Tokens(ctx).List("", after, limit)
	}
	if err := a.authorize(ctx, by, by.TokenID); err != nil {
		return nil, err
	}
	return a.store.Tokens(ctx).List(by.TokenID, after, limit)
}

// Owns reports whether a principal, or its agent, requested something: owner is the token and agent the agent that did, "" for none.
func Owns(p models.Principal, owner, agent string) bool {
	return owner == p.TokenID || agent != "" && p.AgentID != nil && *p.AgentID == agent
}

// CanRead reports whether a principal may read what a token, the owner, requested: its own requests, and
// with the scope tasks:read those that concern one of the agents; a token that is bound to no agent
// reads all of them. "" is no agent.
func (a *Auth) CanRead(ctx context.Context, p models.Principal, owner string, agents ...string) (bool, error) {
	if owner == p.TokenID || !p.Has(models.ScopeTasksRead) || p.AgentID == nil {
		return owner == p.TokenID || p.Has(models.ScopeTasksRead), nil
	}
	for _, id := range agents {
		if err := a.store.Agents(ctx).Confine(p, id); !errs.Is(err, errs.ForeignAgent) {
			return err == nil, err
		}
	}
	return false, nil
}

// EnsureAdmin stores secret as the bootstrap admin token. With replace the secret comes from
// COMET_ADMIN_TOKEN and replaces an older bootstrap secret, but only once: a secret that was
// rotated or revoked since does not return with the next start. Without replace it is stored only
// if no usable admin token exists. made reports whether it was stored. Replicas that call it at
// the same time agree on one secret.
func (a *Auth) EnsureAdmin(ctx context.Context, secret string, replace bool) (made bool, err error) {
	err = a.store.Write(ctx, func(tx *store.Tx) (e error) {
		made, e = ensureAdmin(tx, sha256.Sum256([]byte(secret)), replace)
		return e
	})
	a.forget()
	return made && err == nil, err
}

func ensureAdmin(tx *store.Tx, hash [32]byte, replace bool) (made bool, err error) {
	if err := tx.Tokens().LockAll(); err != nil {
		return false, err
	}
	admins, err := tx.Tokens().LockAdmins()
	if err != nil || (len(admins) > 0 && !replace) {
		return false, err
	}
	t, err := tx.Tokens().Lock(BootstrapTokenID)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return false, err
	}
	isNew := err != nil
	applied := t.Hash == hash && t.RevokedAt == nil
	if replace {
		applied = bytes.Equal(t.Configured, hash[:])
	}
	if !isNew && applied {
		return false, nil
	}
	if isNew {
		t = models.Token{ID: BootstrapTokenID, Name: BootstrapTokenID, CreatedBy: models.System().Name, CreatedAt: tx.Now()}
	} else {
		t.RotatedAt = new(tx.Now())
	}
	t.Hash, t.Scopes, t.RevokedAt, t.ExpiresAt = hash, []models.Scope{models.ScopeAdmin}, nil, nil
	t.Configured = nil
	if replace {
		t.Configured = hash[:]
	}
	if isNew {
		return true, insert(tx, models.System(), t)
	}
	return true, save(tx, models.System(), t, events.TokenRotated)
}

func insert(tx *store.Tx, by models.Principal, t models.Token) error {
	if err := tx.Tokens().Insert(t); err != nil {
		return err
	}
	return emit(tx, by, t, events.TokenCreated)
}

func save(tx *store.Tx, by models.Principal, t models.Token, kind models.EventType) error {
	if err := tx.Tokens().Save(t); err != nil {
		return err
	}
	return emit(tx, by, t, kind)
}

func emit(tx *store.Tx, by models.Principal, t models.Token, kind models.EventType) error {
	return tx.Events().Emit(kind, "token:"+t.ID, TokenChanged{
		ID: t.ID, Name: t.Name, Scopes: t.Scopes, AgentID: t.AgentID, Actor: by.Name,
	})
}

// HasAdmin reports whether a usable token with the admin scope exists.
func (a *Auth) HasAdmin(ctx context.Context) (bool, error) {
	has := false
	err := a.store.Write(ctx, func(tx *store.Tx) error {
		admins, err := tx.Tokens().LockAdmins()
		has = len(admins) > 0
		return err
	})
	return has, err
}

// TokenDraft is a request for a token.
type TokenDraft struct {
	Name      *string        `json:"name" validate:"required,notblank,printable,max=120" example:"ci-importer" minLength:"1" maxLength:"120"` // The name, shown in audit logs.
	Scopes    []models.Scope `json:"scopes" validate:"required,min=1,unique,dive,scope" example:"agents:read,agents:write" minItems:"1"`      // The permissions.
	AgentID   *string        `json:"agent_id" validate:"omitnil,agentid" example:"finance-personal" maxLength:"64" extensions:"x-nullable"`   // The agent that the token belongs to, null for none.
	ExpiresAt *time.Time     `json:"expires_at" example:"2027-01-10T00:00:00Z" extensions:"x-nullable"`                                       // When it expires, null for never.
}

// TokenChanged is the data of the token events; it never holds a secret.
type TokenChanged struct {
	ID      string         `json:"id"`
	Name    string         `json:"name"`
	Scopes  []models.Scope `json:"scopes"`
	AgentID *string        `json:"agent_id"`
	Actor   string         `json:"actor"`
}
