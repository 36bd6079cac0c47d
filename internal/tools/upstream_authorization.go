package tools

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/upstream"
	"comet/internal/upstream/oauth"
	"comet/models"
	"comet/store"
	"comet/store/credentials"
)

const (
	// authorizationTime is how long an authorization in the browser may take.
	authorizationTime = 10 * time.Minute
	// refreshTime limits a request for tokens; other replicas read its result every refreshPoll.
	refreshTime, refreshPoll = 30 * time.Second, 100 * time.Millisecond
	// refreshPause is the time from a refresh that failed to the next.
	refreshPause = 5 * time.Second
	// maxScopes limits the length of the scopes that an upstream requires in addition, in bytes.
	maxScopes = 2 << 10
	// The purposes of sealed values are their columns.
	sealedPending, sealedGrant = "upstream_authorizations.sealed", "upstream_credentials.sealed"
)

// authorization is the state of an authorization in progress, which is stored encrypted.
type authorization struct {
	Actor string
	Grant *oauth.Grant
}

// AuthorizeUpstream starts the authorization of comet at the authorization server of an upstream. It returns
// the URL that a person opens in a browser until expires. It ends an earlier one.
func (svc *Service) AuthorizeUpstream(ctx context.Context, by models.Principal, id string) (address string, expires time.Time, err error) {
	target, err := svc.upstreams.AuthorizationTarget(id)
	if err != nil {
		return "", expires, err
	}
	if target.RedirectURL = svc.opts.RedirectURL(); target.RedirectURL == "" || svc.opts.Keys == nil {
		return "", expires, errs.New(errs.Unavailable, "upstreams cannot be authorized: comet has no HTTP listener for the browser, or no key to encrypt tokens with")
	}
	if target.Required, err = svc.recordedScopes(svc.store.Reads(ctx), id, target); err != nil {
		return "", expires, err
	}
	state := rand.Text()
	grant, address, err := svc.oauth.Begin(ctx, target, state)
	if err != nil {
		return "", expires, errs.New(errs.UpstreamFailed, "the upstream %q cannot be authorized: %s", id, target.Mask(err.Error()))
	}
	sealed, err := svc.seal(sealedPending, authorization{by.Name, grant})
	if err != nil {
		return "", expires, err
	}
	err = svc.store.Write(ctx, func(tx *store.Tx) error {
		expires = tx.Now().Add(authorizationTime)
		return credentials.Begin(tx, hexDigest([]byte(state)), credentials.Pending{UpstreamID: id, Sealed: sealed, Until: expires})
	})
	return address, expires, err
}

// FinishAuthorization completes an authorization with the parameters with which the browser returned,
// restarts the upstream, and returns its id. The event makes the other replicas connect.
func (svc *Service) FinishAuthorization(ctx context.Context, params url.Values) (id string, err error) {
	var pending credentials.Pending
	err = svc.store.Write(ctx, func(tx *store.Tx) (err error) {
		pending, err = credentials.End(tx, hexDigest([]byte(params.Get("state"))))
		return err
	})
	if errs.Is(err, errs.NotFound) || err == nil && svc.store.Now().After(pending.Until) {
		return "", errs.New(errs.InvalidRequest, "the authorization is unknown, has ended, or took longer than ten minutes; start it again")
	}
	var started authorization
	if err == nil {
		err = svc.open(sealedPending, pending.Sealed, &started)
	}
	if err != nil {
		return "", err
	}
	id = pending.UpstreamID
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTime) // a code is valid once, also if the browser disconnects
	defer cancel()
	if err := svc.oauth.Complete(ctx, started.Grant, params); err != nil {
		return id, errs.New(errs.InvalidRequest, "comet was not authorized to use the upstream %q: %v", id, err)
	}
	svc.loader.applying.Lock() // the event must not restart the upstream again
	defer svc.loader.applying.Unlock()
	err = svc.store.Write(ctx, func(tx *store.Tx) error {
		target, err := svc.upstreams.AuthorizationTarget(id)
		if err != nil { // it was removed
			return err
		}
		target.Address = started.Grant.Address
		recorded, err := svc.recordedScopes(tx, id, target)
		if err != nil {
			return err
		}
		started.Grant.Required = oauth.Union(started.Grant.Required, recorded)
		sealed, err := svc.seal(sealedGrant, started.Grant)
		if err != nil {
			return err
		}
		if err := credentials.Create(tx, id, sealed); err != nil {
			return err
		}
		return tx.Events().Emit(events.UpstreamAuthorized, id, upstreamChanged{ID: id, Actor: started.Actor})
	})
	if err == nil {
		_ = svc.upstreams.Restart(id) // it fails if the upstream was removed
	}
	return id, err
}

// recordedScopes returns the scopes that Require has recorded for the address of a target, none if its
// definition has scopes.
func (svc *Service) recordedScopes(from store.Source, id string, target oauth.Target) ([]string, error) {
	row, err := credentials.Load(from, id)
	var grant oauth.Grant
	if err != nil || row.Version == 0 || len(target.Scopes) > 0 || svc.open(sealedGrant, row.Sealed, &grant) != nil || grant.Address != target.Address {
		return nil, err
	}
	return grant.Required, nil
}

// ClientMetadata returns the document that describes comet to the authorization servers of upstreams. The error is
// errs.NotFound if the document has no https address.
func (svc *Service) ClientMetadata() (oauth.Document, error) {
	doc := oauth.NewDocument(svc.opts.RedirectURL())
	if !strings.HasPrefix(doc.ClientID, "https:") {
		return doc, errs.New(errs.NotFound, "comet has no client ID metadata document, because mcp.public_url is not an https address")
	}
	return doc, nil
}

func (svc *Service) seal(purpose string, value any) ([]byte, error) {
	text, err := json.Marshal(value)
	return svc.opts.Keys.Seal(purpose, text), err
}

func (svc *Service) open(purpose string, sealed []byte, value any) error {
	if svc.opts.Keys == nil {
		return errors.New("comet has no key to decrypt tokens with")
	}
	text, err := svc.opts.Keys.Open(purpose, sealed)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, value)
}

// upstreamTokens holds the tokens of one session with an upstream. The replicas take turns to refresh them.
type upstreamTokens struct {
	svc         *Service
	id, address string
	turn        *semaphore.Weighted // held by the caller that reads or refreshes the tokens
	version     int64
	grant       *oauth.Grant
	failure     error     // of the last refresh
	retryAt     time.Time // of a refresh after a failure
}

// UpstreamTokens returns the source of the access tokens for an address of an upstream, nil if comet is not
// authorized there.
func (svc *Service) UpstreamTokens(ctx context.Context, id, address string) (upstream.TokenSource, error) {
	t := &upstreamTokens{svc: svc, id: id, address: address, turn: semaphore.NewWeighted(1)}
	if err := t.load(ctx); err != nil || t.grant.Token == nil {
		return nil, err
	}
	return t, nil
}

// load reads the stored tokens.
func (t *upstreamTokens) load(ctx context.Context) error {
	row, err := credentials.Load(t.svc.store.Reads(ctx), t.id)
	grant := &oauth.Grant{}
	if err == nil && row.Version > 0 {
		err = t.svc.open(sealedGrant, row.Sealed, grant)
	}
	if err != nil {
		return err
	}
	if grant.Address != t.address { // the tokens are for a later address of the upstream
		grant.Token = nil
	}
	t.version, t.grant = row.Version, grant
	return nil
}

// Require implements upstream.TokenSource. It waits while another replica refreshes the tokens.
func (t *upstreamTokens) Require(ctx context.Context, scopes []string) (missing, all []string, err error) {
	if err := t.turn.Acquire(ctx, 1); err != nil {
		return nil, nil, err
	}
	defer t.turn.Release(1)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTime) // a lease must end
	defer cancel()
	for len(oauth.Union(t.grant.Required, scopes)) > len(t.grant.Required) || t.grant.Address != t.address {
		if t.grant.Address != t.address {
			return nil, nil, errors.New("comet is no longer authorized for this address of the upstream")
		}
		grant := *t.grant
		grant.Required = oauth.Union(grant.Config.Scopes, grant.Required, scopes)
		if len(strings.Join(grant.Required, " ")) > maxScopes {
			return nil, nil, fmt.Errorf("together with the scopes that comet has, they exceed %d bytes", maxScopes)
		}
		leased, err := t.lease(ctx)
		if leased {
			err = t.release(ctx, &grant)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	requested := func(scope string) bool { return slices.Contains(t.grant.Config.Scopes, scope) }
	return slices.DeleteFunc(slices.Clone(scopes), requested), t.grant.Required, nil
}

// Token implements upstream.TokenSource. It refreshes the tokens in time; concurrent calls wait.
func (t *upstreamTokens) Token(ctx context.Context, rejected string) (string, error) {
	if err := t.turn.Acquire(ctx, 1); err != nil {
		return "", err
	}
	defer t.turn.Release(1)
	// A caller that gives up must not lose the new refresh token.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTime)
	defer cancel()
	for fresh := false; t.grant.Token != nil; {
		token := t.grant.Token
		if fresh || token.AccessToken != rejected && (token.RefreshToken == "" || !t.svc.oauth.Expires(t.grant)) {
			return token.AccessToken, nil
		}
		if token.RefreshToken == "" {
			break
		}
		if t.failure == nil || !t.svc.opts.Clock().Before(t.retryAt) {
			fresh, t.failure = t.refresh(ctx)
			t.retryAt = t.svc.opts.Clock().Add(refreshPause)
		}
		if t.failure != nil {
			return "", errs.New(errs.UpstreamFailed, "the access token of the upstream %q cannot be refreshed: %v", t.id, t.failure)
		}
	}
	return "", nil
}

// lease reserves the tokens for a change. If another replica has reserved them, it waits, loads them and reports false.
func (t *upstreamTokens) lease(ctx context.Context) (leased bool, err error) {
	err = t.svc.store.Write(ctx, func(tx *store.Tx) (err error) {
		leased, err = credentials.Lease(tx, t.id, t.version, tx.Now().Add(refreshTime))
		return err
	})
	if err == nil && !leased {
		if err = background.Sleep(ctx, refreshPoll); err == nil {
			err = t.load(ctx)
		}
	}
	return leased && err == nil, err
}

// release stores a grant and ends the lease.
func (t *upstreamTokens) release(ctx context.Context, grant *oauth.Grant) error {
	sealed, err := t.svc.seal(sealedGrant, grant)
	if err != nil {
		return err
	}
	err = t.svc.store.Write(ctx, func(tx *store.Tx) error { return credentials.Release(tx, t.id, t.version, sealed) })
	if err == nil {
		err = t.load(ctx) // the new version, or that of another authorization
	}
	return err
}

// refresh gets new tokens, or reads those that another replica got. fresh reports the former.
func (t *upstreamTokens) refresh(ctx context.Context) (fresh bool, err error) {
	if leased, err := t.lease(ctx); !leased {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTime) // a new refresh token must be stored
	defer cancel()
	token, failure := t.svc.oauth.Refresh(ctx, t.grant)
	if errors.Is(failure, oauth.ErrRefused) {
		t.svc.log.Warn("an upstream requires another authorization", "upstream", t.id, "error", failure)
		failure = nil
	}
	if failure == nil {
		t.grant.Token = token
	}
	return token != nil, errors.Join(failure, t.release(ctx, t.grant))
}
