package tools

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/url"
	"sync"
	"time"

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
	// refreshTime limits a refresh of tokens by one replica, and refreshPoll is the interval at which the
	// others read its result.
	refreshTime, refreshPoll = 30 * time.Second, 100 * time.Millisecond

	// The purposes of sealed values.
	sealedCredentials = "upstream_credentials.credentials"
	sealedPending     = "upstream_credentials.pending"
)

// pendingAuthorization is an authorization in progress. Its JSON contains secrets.
type pendingAuthorization struct {
	Actor string
	Grant *oauth.Grant
}

// AuthorizeUpstream starts the authorization of comet by a person at the authorization server of an
// upstream, and returns the URL that the person opens in a browser within the time until expiresAt. An
// earlier authorization in progress ends.
func (svc *Service) AuthorizeUpstream(ctx context.Context, by models.Principal, id string) (address string, expiresAt time.Time, err error) {
	target, err := svc.upstreams.AuthorizationTarget(id)
	if err != nil {
		return "", expiresAt, err
	}
	if target.RedirectURL = svc.opts.RedirectURL(); target.RedirectURL == "" || svc.opts.Keys == nil {
		return "", expiresAt, errs.New(errs.Unavailable, "comet cannot authorize upstreams: it has no HTTP listener for the browser, or no key to encrypt tokens with")
	}
	state := rand.Text()
	grant, address, err := svc.oauth.Begin(ctx, target, state)
	if err != nil {
		return "", expiresAt, errs.Wrap(errs.UpstreamFailed, err, "the upstream %q cannot be authorized: %v", id, err)
	}
	sealed, err := svc.seal(sealedPending, pendingAuthorization{by.Name, grant})
	if err != nil {
		return "", expiresAt, err
	}
	err = svc.store.Write(ctx, func(tx *store.Tx) error {
		expiresAt = tx.Now().Add(authorizationTime)
		return credentials.Begin(tx, id, hexDigest([]byte(state)), sealed, expiresAt)
	})
	return address, expiresAt, err
}

// FinishAuthorization completes an authorization with the parameters with which the browser returned, and
// restarts the upstream, whose id it returns, on all replicas.
func (svc *Service) FinishAuthorization(ctx context.Context, params url.Values) (id string, err error) {
	state := hexDigest([]byte(params.Get("state")))
	found, err := credentials.Find(svc.store.Reads(ctx), state)
	if err == nil {
		err = svc.store.Write(ctx, func(tx *store.Tx) error {
			if ended, err := credentials.End(tx, state); err != nil || ended {
				return err
			}
			return errs.New(errs.NotFound, "it has ended")
		})
	}
	var pending pendingAuthorization
	switch {
	case errs.Is(err, errs.NotFound) || err == nil && svc.store.Now().After(found.Until):
		return "", errs.New(errs.InvalidRequest, "the authorization is unknown, has ended, or took longer than %s; start it again", authorizationTime)
	case err == nil:
		err = svc.open(sealedPending, found.Sealed, &pending)
	}
	if err != nil {
		return "", err
	}
	id = found.UpstreamID
	if err := svc.oauth.Complete(ctx, pending.Grant, params); err != nil {
		return id, errs.Wrap(errs.InvalidRequest, err, "the upstream %q was not authorized: %v", id, err)
	}
	sealed, err := svc.seal(sealedCredentials, pending.Grant)
	if err != nil {
		return id, err
	}
	return id, svc.store.Write(ctx, func(tx *store.Tx) error {
		if _, err := credentials.Save(tx, id, 0, sealed); err != nil {
			return err
		}
		return tx.Events().Emit(events.UpstreamAuthorized, id, upstreamChanged{ID: id, Actor: pending.Actor})
	})
}

func (svc *Service) seal(purpose string, value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return svc.opts.Keys.Seal(purpose, text), nil
}

func (svc *Service) open(purpose string, sealed []byte, value any) error {
	text, err := svc.opts.Keys.Open(purpose, sealed)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, value)
}

// upstreamTokens has the tokens of one session with an upstream. The replicas take turns to refresh them.
type upstreamTokens struct {
	svc     *Service
	id      string
	mu      sync.Mutex
	version int64
	grant   *oauth.Grant
}

// UpstreamTokens returns the source of the access tokens for an address of an upstream, nil if comet is not
// authorized there.
func (svc *Service) UpstreamTokens(ctx context.Context, id, address string) (upstream.TokenSource, error) {
	t := &upstreamTokens{svc: svc, id: id}
	if err := t.load(ctx); err != nil || t.grant.Token == nil || t.grant.Address != address {
		return nil, err
	}
	return t.current, nil
}

// load reads the stored tokens.
func (t *upstreamTokens) load(ctx context.Context) error {
	t.grant = &oauth.Grant{}
	row, err := credentials.Load(t.svc.store.Reads(ctx), t.id)
	if t.version = row.Version; err != nil || len(row.Sealed) == 0 {
		return err
	}
	if t.svc.opts.Keys == nil {
		return errors.New("its tokens are encrypted, and comet has no key")
	}
	return t.svc.open(sealedCredentials, row.Sealed, t.grant)
}

// current returns an access token other than rejected, "" if there is none any more. It refreshes the tokens
// in time; concurrent calls wait.
func (t *upstreamTokens) current(ctx context.Context, rejected string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// A caller that gives up must not lose the new refresh token.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTime)
	defer cancel()
	for t.grant.Token != nil {
		token := t.grant.Token
		if token.AccessToken != rejected && (token.RefreshToken == "" || !t.grant.Expires(t.svc.store.Now())) {
			return token.AccessToken, nil
		}
		if token.RefreshToken == "" {
			break
		}
		fresh, err := t.refresh(ctx)
		if err != nil {
			return "", errs.Wrap(errs.UpstreamFailed, err, "the access token of the upstream %q cannot be refreshed: %v", t.id, err)
		}
		if fresh {
			return t.grant.Token.AccessToken, nil
		}
	}
	return "", nil
}

// refresh refreshes the tokens, or reads those that another replica has refreshed. It reports whether it
// has new ones from the authorization server.
func (t *upstreamTokens) refresh(ctx context.Context) (fresh bool, err error) {
	var leased bool
	err = t.svc.store.Write(ctx, func(tx *store.Tx) (err error) {
		leased, err = credentials.Lease(tx, t.id, t.version, tx.Now().Add(refreshTime))
		return err
	})
	switch {
	case err != nil:
		return false, err
	case !leased:
		if err := background.Sleep(ctx, refreshPoll); err != nil {
			return false, err
		}
		return false, t.load(ctx)
	}
	token, err := t.svc.oauth.Refresh(ctx, t.grant)
	if err != nil && !errors.Is(err, oauth.ErrRefused) {
		return false, errors.Join(err, t.svc.store.Write(ctx, func(tx *store.Tx) error { return credentials.Release(tx, t.id, t.version) }))
	}
	if err != nil {
		t.svc.log.Warn("an upstream requires a new authorization", "upstream", t.id, "error", err)
	}
	t.grant.Token = token
	sealed, err := t.svc.seal(sealedCredentials, t.grant)
	if err != nil {
		return false, err
	}
	err = t.svc.store.Write(ctx, func(tx *store.Tx) (err error) {
		t.version, err = credentials.Save(tx, t.id, t.version, sealed)
		return err
	})
	if errs.Is(err, errs.NotFound) { // authorized again, or removed
		return false, t.load(ctx)
	}
	return token != nil, err
}
