// Package issuertest is an OpenID Connect issuer in the process of a test.
package issuertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
)

// Audience is the audience of the tokens.
const Audience = "https://comet.test"

// Issuer serves its metadata and its public keys, and signs tokens.
type Issuer struct {
	URL string
	// Fetches counts the requests for the keys.
	Fetches atomic.Int64
	// Away makes every response a failure.
	Away atomic.Bool
	// Now returns the time at which tokens are issued, default time.Now.
	Now func() time.Time

	mu   sync.Mutex
	keys []jose.JSONWebKey // the last one signs
}

// New starts an issuer with a key of ES256. It ends with the test.
func New(t *testing.T) *Issuer {
	t.Helper()
	i := &Issuer{Now: time.Now}
	i.Rotate(t)
	server := httptest.NewServer(i)
	t.Cleanup(server.Close)
	i.URL = server.URL
	return i
}

// ServeHTTP implements http.Handler.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.Away.Load():
		i.Fetches.Add(1)
		w.WriteHeader(http.StatusBadGateway)
	case r.URL.Path == "/.well-known/openid-configuration":
		_, _ = fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, i.URL, i.URL+"/keys")
	default:
		i.Fetches.Add(1)
		keys := []any{map[string]string{"kty": "unknown", "kid": "other"}}
		for _, k := range i.keys {
			keys = append(keys, k.Public())
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": keys})
	}
}

// Rotate replaces the keys by a new one.
func (i *Issuer) Rotate(t *testing.T) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	i.SetKey(jose.JSONWebKey{Key: key, KeyID: "k" + rand.Text(), Algorithm: string(jose.ES256), Use: "sig"})
}

// SetKey replaces the keys.
func (i *Issuer) SetKey(k jose.JSONWebKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = []jose.JSONWebKey{k}
}

// Key returns the key that signs.
func (i *Issuer) Key() jose.JSONWebKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[0]
}

// Token returns a token that is valid for an hour, with the claims replaced by those that are given;
// nil removes one.
func (i *Issuer) Token(t *testing.T, claims map[string]any) string {
	t.Helper()
	k := i.Key()
	return i.Sign(t, claims, jose.SignatureAlgorithm(k.Algorithm), k, "at+jwt")
}

// Sign is Token with an algorithm, a key and a type of the token.
func (i *Issuer) Sign(t *testing.T, claims map[string]any, algorithm jose.SignatureAlgorithm, key any, typ string) string {
	t.Helper()
	now := i.Now().Unix()
	all := map[string]any{"iss": i.URL, "aud": Audience, "sub": "client", "iat": now, "exp": now + 3600, "scope": "agents:read"}
	maps.Copy(all, claims)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, (&jose.SignerOptions{}).WithType(jose.ContentType(typ)))
	require.NoError(t, err)
	payload, err := json.Marshal(all)
	require.NoError(t, err)
	signed, err := signer.Sign(payload)
	require.NoError(t, err)
	token, err := signed.CompactSerialize()
	require.NoError(t, err)
	return token
}
