package mcp

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"

	sdkauth "github.com/modelcontextprotocol/go-sdk/auth"

	"comet/internal/auth"
	"comet/internal/errs"
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
		token, ok := bearerToken(r)
		if !ok {
			d.challenge(w, r, http.StatusUnauthorized, errs.Unauthenticated, "the request must have one token: send Authorization: Bearer and the token")
			return
		}
		p, err := d.tokens.Verify(r.Context(), token)
		switch code := errs.CodeOf(err); {
		case err == nil:
		case code.Class() == errs.ClassUnauthenticated, code.Class() == errs.ClassForbidden:
			d.challenge(w, r, http.StatusUnauthorized, code, errs.From(err).Detail)
			return
		default:
			d.server.log.Warn("tokens cannot be verified", "error", err)
			w.Header().Set("Retry-After", "5")
			writeHTTPError(w, http.StatusServiceUnavailable, nil, errs.Unavailable, "tokens cannot be verified at the moment; try again in a few seconds")
			return
		}
		if err := auth.Require(p, models.ScopeToolsCall); err != nil {
			d.challenge(w, r, http.StatusForbidden, errs.MissingScope, errs.From(err).Detail)
			return
		}
		if !d.checkRateLimit(w, r, p) {
			return
		}
		known.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, identity{p, sha256.Sum256([]byte(token))})))
	})
}

// checkRateLimit counts a request towards the limit of its token. It responds and returns false
// when the limit is reached.
func (d *Handler) checkRateLimit(w http.ResponseWriter, r *http.Request, p models.Principal) bool {
	if d.opts.RateLimit == nil {
		return true
	}
	err := d.opts.RateLimit(w, r, p.TokenID)
	if err == nil {
		return true
	}
	e := errs.From(err)
	if seconds, ok := e.Meta["retry_after"]; ok {
		w.Header().Set("Retry-After", fmt.Sprint(seconds))
	}
	writeHTTPError(w, http.StatusTooManyRequests, nil, e.Code, e.Detail)
	return false
}

// challenge rejects a token and names the metadata of the resource (RFC 6750 §3, RFC 9728 §5.1).
func (d *Handler) challenge(w http.ResponseWriter, r *http.Request, status int, code errs.Code, sentence string) {
	w.Header().Add("WWW-Authenticate", fmt.Sprintf("Bearer resource_metadata=%q, scope=%q", d.baseURL(r)+metadataPath+Path, models.ScopeToolsCall))
	writeHTTPError(w, status, nil, code, sentence)
}

// bearerToken returns the token of a request.
func bearerToken(r *http.Request) (token string, ok bool) {
	all := r.Header.Values("Authorization")
	if len(all) != 1 { // more than one is ambiguous
		return "", false
	}
	fields := strings.Fields(all[0])
	if len(fields) != 2 || !strings.EqualFold(fields[0], "bearer") {
		return "", false
	}
	return fields[1], true
}
