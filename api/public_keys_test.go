package api_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/store/storetest"
)

// publicKey is a key in a response.
type publicKey struct {
	KeyID         string  `json:"key_id"`
	PublicKey     string  `json:"public_key"`
	State         string  `json:"state"`
	Profile       string  `json:"profile"`
	Required      bool    `json:"required"`
	SignatureOnly bool    `json:"signature_only"`
	NotAfter      *string `json:"not_after"`
	RetiredAt     *string `json:"retired_at"`
}

// badPublicKeys breaks the rules of public keys.
func badPublicKeys() []badInput {
	const target = "/api/v1/agents/orch-scholar/keys"
	pin := func(name, body, want string) badInput {
		return badInput{name: "public key: " + name, target: target, body: body, want: want}
	}
	of := func(key string) string { return `{"public_key":` + quoted(key) + `}` }
	raw := base64.StdEncoding.EncodeToString(make([]byte, 31))
	return []badInput{
		pin("missing", `{}`, "invalid-request /public_key required"),
		pin("null", `{"public_key":null}`, "invalid-request /public_key not_null"),
		pin("no base64", of("not a key"), "invalid-request /public_key public_key"),
		pin("31 bytes", of(raw), "invalid-request /public_key public_key"),
		pin("small order", of(base64.StdEncoding.EncodeToString(make([]byte, 32))), "invalid-request /public_key public_key"),
		pin("of RSA", `{"public_key":"-----BEGIN RSA PUBLIC KEY-----\nAAAA\n-----END RSA PUBLIC KEY-----"}`, "invalid-request /public_key public_key"),
		pin("too long", of(strings.Repeat("A", 1025)), "invalid-request /public_key public_key"),
		pin("another profile", `{"public_key":"x","profile":"v2"}`, "invalid-request /profile oneof"),
		pin("required of a string", `{"public_key":"x","required":"yes"}`, "invalid-request /required type"),
		pin("another member", `{"public_key":"x","secret":"y"}`, "invalid-request /secret unknown_field"),
		{name: "public key: of an unknown agent", target: "/api/v1/agents/unknown/keys", body: of(hex.EncodeToString(testPublicKey(1))), want: "not-found "},
		{name: "public key: of no key", method: "PATCH", target: target + "/0123456789abcdef", body: `{}`, want: "not-found "},
		{name: "public key: null to PATCH", method: "PATCH", target: target + "/0123456789abcdef", body: `{"required":null}`, want: "invalid-request /required not_null"},
		{name: "public key: a time of no date to PATCH", method: "PATCH", target: target + "/0123456789abcdef", body: `{"not_after":"soon"}`, want: "invalid-request /not_after date_time"},
		{name: "public key: the past to PATCH", method: "PATCH", target: target + "/0123456789abcdef", body: `{"not_after":"2020-01-01T00:00:00Z"}`, want: "invalid-request /not_after future"},
		{name: "public key: read of none", method: "GET", target: target + "/0123456789abcdef", want: "not-found "},
		{name: "public key: revocation of none", method: "DELETE", target: target + "/0123456789abcdef", want: "not-found "},
		{name: "public key: a parameter", method: "GET", target: target + "?all=1", want: "invalid-parameter ?all unknown_parameter"},
	}
}

// testPublicKey returns a public key that depends on seed only.
func testPublicKey(seed byte) ed25519.PublicKey {
	key := ed25519.NewKeyFromSeed([]byte(strings.Repeat(string('a'+rune(seed)), ed25519.SeedSize)))
	return key.Public().(ed25519.PublicKey)
}

// TestPublicKeys pins, lists, changes and revokes public keys of an agent.
func TestPublicKeys(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		h := setup(t, db, fixtureOptions{})
		const target = "/api/v1/agents/orch-scholar/keys"
		spki, err := x509.MarshalPKIXPublicKey(testPublicKey(3))
		require.NoError(t, err)
		var pinned []publicKey
		for i, text := range []string{
			base64.StdEncoding.EncodeToString(testPublicKey(0)), hex.EncodeToString(testPublicKey(1)), base64.RawURLEncoding.EncodeToString(testPublicKey(2)),
			string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki})),
		} {
			encoded, err := json.Marshal(text)
			require.NoError(t, err)
			got := h.do(t, http.MethodPost, target, `{"public_key":`+string(encoded)+`,"profile":"jcs","required":true}`, "Idempotency-Key", fmt.Sprint("key-", i))
			require.Equal(t, http.StatusCreated, got.status, "%s", got.body)
			var key publicKey
			require.NoError(t, json.Unmarshal(got.body, &key))
			require.Equal(t, publicKey{KeyID: key.KeyID, PublicKey: base64.StdEncoding.EncodeToString(testPublicKey(byte(i))), State: "valid", Profile: "jcs", Required: true}, key, "every encoding is accepted")
			require.Equal(t, target+"/"+key.KeyID, got.header.Get("Location"))
			pinned = append(pinned, key)
		}
		again := h.do(t, http.MethodPost, target, `{"public_key":`+quoted(hex.EncodeToString(testPublicKey(1)))+`,"profile":"jcs","required":true}`, "Idempotency-Key", "key-1")
		require.Equal(t, []any{http.StatusCreated, "true"}, []any{again.status, again.header.Get("Idempotency-Replayed")}, "%s", again.body)
		fifth := `{"public_key":` + quoted(hex.EncodeToString(testPublicKey(4))) + `}`
		h.do(t, http.MethodPost, target, fifth).problem(t, http.StatusUnprocessableEntity, errs.LimitReached)
		h.do(t, http.MethodPost, "/api/v1/agents/orch-social/keys", `{"public_key":`+quoted(pinned[0].PublicKey)+`}`).problem(t, http.StatusConflict, errs.Conflict)

		one := target + "/" + pinned[0].KeyID
		changed := h.do(t, http.MethodPatch, one, `{"profile":"v1","required":false,"signature_only":true,"not_after":"2026-02-10T15:30:00Z"}`)
		var key publicKey
		require.NoError(t, json.Unmarshal(changed.body, &key))
		require.Equal(t, []any{"v1", false, true, "2026-02-10T15:30:00Z"}, []any{key.Profile, key.Required, key.SignatureOnly, *key.NotAfter})
		require.Equal(t, http.StatusNoContent, h.do(t, http.MethodDelete, one, "").status)
		require.Equal(t, http.StatusNoContent, h.do(t, http.MethodDelete, one, "").status, "again")
		require.NoError(t, json.Unmarshal(h.do(t, http.MethodGet, one, "").body, &key))
		require.Equal(t, "revoked", key.State)
		h.do(t, http.MethodPatch, one, `{"required":true}`).problem(t, http.StatusConflict, errs.Conflict)
		require.Equal(t, http.StatusCreated, h.do(t, http.MethodPost, target, fifth).status)
		var list struct{ Keys []publicKey }
		require.NoError(t, json.Unmarshal(h.do(t, http.MethodGet, target, "").body, &list))
		require.Len(t, list.Keys, 5)
		require.Equal(t, pinned[0].KeyID, list.Keys[4].KeyID)
		h.do(t, http.MethodGet, "/api/v1/agents/orch-scholar/key", "").problem(t, http.StatusNotFound, errs.NotFound)
	})
}

// TestServiceKeys publishes the keys of comet as a JSON Web Key Set and rotates them.
func TestServiceKeys(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		h := setup(t, db, fixtureOptions{})
		read := func() (set jose.JSONWebKeySet) {
			got := h.do(t, http.MethodGet, "/.well-known/jwks.json", "", "Authorization", "")
			require.Equal(t, http.StatusOK, got.status, "%s", got.body)
			require.Equal(t, "public, max-age=300", got.header.Get("Cache-Control"))
			require.NotContains(t, string(got.body), `"d"`)
			require.NoError(t, json.Unmarshal(got.body, &set))
			require.Equal(t, http.StatusNotModified, h.do(t, http.MethodGet, "/.well-known/jwks.json", "", "If-None-Match", got.header.Get("ETag")).status)
			return set
		}
		first := read()
		require.Len(t, first.Keys, 1)
		require.True(t, first.Keys[0].Valid() && first.Keys[0].IsPublic())
		require.Equal(t, []string{"sig", "EdDSA"}, []string{first.Keys[0].Use, first.Keys[0].Algorithm})
		var rotated publicKey
		require.NoError(t, json.Unmarshal(h.do(t, http.MethodPost, "/api/v1/service/keys/rotate", "").body, &rotated))
		next := read()
		require.Equal(t, []string{rotated.KeyID, first.Keys[0].KeyID}, []string{next.Keys[0].KeyID, next.Keys[1].KeyID})
		require.Equal(t, rotated.PublicKey, base64.StdEncoding.EncodeToString(next.Keys[0].Key.(ed25519.PublicKey)))
		var list struct{ Keys []publicKey }
		require.NoError(t, json.Unmarshal(h.do(t, http.MethodGet, "/api/v1/service/keys", "").body, &list))
		require.Equal(t, []any{rotated.KeyID, first.Keys[0].KeyID, true}, []any{list.Keys[0].KeyID, list.Keys[1].KeyID, list.Keys[1].RetiredAt != nil})
		_, bound := h.issueToken(t, `{"name":"bound","scopes":["admin"],"agent_id":"orch-scholar"}`)
		h.do(t, http.MethodPost, "/api/v1/service/keys/rotate", "", "Authorization", "Bearer "+bound).problem(t, http.StatusForbidden, errs.ForeignAgent)
	})
}
