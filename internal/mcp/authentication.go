package mcp

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"

	sdkauth "github.com/modelcontextprotocol/go-sdk/auth"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/models"
)

// identityKey is the context key of the identity.
type identityKey struct{}

// identity is the principal of a request and the hash of its token.
type identity struct {
	principal models.Principal
	token     tokenHash
}

// authenticate passes requests on whose token may call tools.
func (d *Handler) authenticate(next http.Handler) http.Handler {
	// The SDK reads the token with its own verifier. The token is verified already, so the verifier
	// takes the identity from the context.
	known := sdkauth.RequireBearerToken(func(ctx context.Context, _ string, _ *http.Request) (*sdkauth.TokenInfo, error) {
		v, ok := ctx.Value(identityKey{}).(identity)
		if !ok {
			return nil, sdkauth.ErrInvalidToken
		}
		return &sdkauth.TokenInfo{UserID: v.principal.TokenID, Extra: map[string]any{principalKey: v.principal}}, nil
	}, &sdkauth.RequireBearerTokenOptions{AllowMissingExpiration: true})(next)

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, err := d.authenticator.Authenticate(w, r)
		err = httpkit.AsRateLimited(err)
		switch e := errs.From(err); {
		case err == nil:
		case e.Code == errs.RateLimited:
			w.Header().Set("Retry-After", fmt.Sprint(e.Meta["retry_after"]))
			writeHTTPError(w, http.StatusTooManyRequests, nil, e.Code, e.Detail)
			return
		case httpkit.IsRejected(err):
			d.challenge(w, r, http.StatusUnauthorized, e.Code, e.Detail)
			return
		default:
			d.server.log.Warn("tokens cannot be verified", "error", err)
			w.Header().Set("Retry-After", "5")
			writeHTTPError(w, http.StatusServiceUnavailable, nil, errs.Unavailable, "tokens cannot be verified at the moment; try again in a few seconds")
			return
		}
		if err := auth.Require(from.Principal, models.ScopeToolsCall); err != nil {
			d.challenge(w, r, http.StatusForbidden, errs.MissingScope, errs.From(err).Detail)
			return
		}
		known.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, identity{from.Principal, sha256.Sum256([]byte(from.Token))})))
	})
}

// challenge rejects a token and names the metadata of the resource (RFC 6750 §3, RFC 9728 §5.1).
func (d *Handler) challenge(w http.ResponseWriter, r *http.Request, status int, code errs.Code, sentence string) {
	w.Header().Add("WWW-Authenticate", fmt.Sprintf("Bearer resource_metadata=%q, scope=%q", d.baseURL(r)+metadataPath+Path, models.ScopeToolsCall))
	writeHTTPError(w, status, nil, code, sentence)
}
