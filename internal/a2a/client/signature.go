package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/internal/input"
)

// The results of VerifyCard. Unverified is followed by the reason.
const (
	Unsigned   = "none"
	Verified   = "verified"
	Unverified = "unverified: "
)

const (
	maxSignatures = 10
	maxKeySet     = 64 << 10 // bytes
)

// algorithms are those of signatures. All of them have a public key.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.EdDSA, jose.ES256, jose.ES384, jose.ES512, jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512}
}

// VerifyCard verifies the signatures of a card that was read from an address (A2A 1.0 §8.4): JWS over its canonical form (RFC 8785)
// without signatures. A key is only read from the server of the card. It returns errs.InvalidRequest if a key does not verify its
// signature, and otherwise Verified, Unsigned, or Unverified with the reason.
func VerifyCard(ctx context.Context, o Options, address string, raw []byte) (string, error) {
	var members map[string]jsontext.Value
	var signatures []struct{ Protected, Signature string }
	_ = json.Unmarshal(raw, &members) // other JSON than an object is no card, and has no signatures
	if len(members["signatures"]) == 0 {
		return Unsigned, nil
	}
	if !jsontext.Value(raw).IsValid() { // the map has the last of repeated members, and ParseCard could read another one
		return "", errs.New(errs.InvalidRequest, "a signed agent card must not repeat a member or contain invalid UTF-8")
	}
	if err := json.Unmarshal(members["signatures"], &signatures); err != nil || len(signatures) > maxSignatures {
		return "", errs.New(errs.InvalidRequest, "the signatures of the agent card must be a list of at most %d", maxSignatures)
	}
	delete(members, "signatures")
	text, err := json.Marshal(members)
	payload := jsontext.Value(text)
	if err == nil {
		err = payload.Canonicalize()
	}
	if err != nil {
		return "", errs.New(errs.InvalidRequest, "the signed agent card has no canonical form: %s", err.Error())
	}
	o.Header = "" // keys are public
	ctx, cancel := context.WithTimeout(ctx, CardTimeout)
	defer cancel()
	result := Unsigned
	for _, s := range signatures {
		jws, err := jose.ParseDetached(s.Protected+".."+s.Signature, payload, algorithms())
		if err != nil {
			return "", errs.New(errs.InvalidRequest, "a signature of the agent card is malformed: %s", err.Error())
		}
		keyID := jws.Signatures[0].Protected.KeyID
		keys, reason := findKeys(ctx, &o, address, jws.Signatures[0].Protected)
		if reason != "" {
			if result != Verified {
				result = Unverified + reason
			}
			continue
		}
		if !slices.ContainsFunc(keys, func(key jose.JSONWebKey) bool { return jws.DetachedVerify(payload, key) == nil }) {
			return "", errs.New(errs.InvalidRequest, "the key %s does not verify the signature of the agent card: the card was changed, or signed with another key", input.Quote(keyID))
		}
		result = Verified
	}
	return result, nil
}

// Mark adds the result of VerifyCard to the JSON of a card.
func Mark(raw []byte, result string) []byte {
	text, _ := json.Marshal(input.ClipTo(result, 500)) // a string
	raw = bytes.TrimSpace(raw)
	return slices.Concat(raw[:len(raw)-1], []byte(`,"cometSignature":`), text, []byte("}"))
}

// findKeys reads the keys with the id of a signature's key, or says why they cannot be read.
func findKeys(ctx context.Context, o *Options, address string, header jose.Header) (keys []jose.JSONWebKey, reason string) {
	jku, _ := header.ExtraHeaders["jku"].(string)
	if server(jku) == "" || server(jku) != server(address) {
		return nil, "jku is no address on the server of the card, " + input.Quote(jku)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, jku, nil)
	if err != nil {
		return nil, "jku is no address"
	}
	resp, err := o.send(req)
	if err != nil {
		return nil, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	if err = checkStatus(resp); err != nil {
		return nil, "its key: " + err.Error()
	}
	raw, err := readAll(resp, maxKeySet)
	if err != nil {
		return nil, "its key: " + err.Error()
	}
	var set jose.JSONWebKeySet
	if json.Unmarshal(raw, &set) != nil {
		return nil, "jku has no set of keys"
	}
	keys = slices.DeleteFunc(set.Key(header.KeyID), func(key jose.JSONWebKey) bool { return !key.Valid() || !key.IsPublic() })
	if len(keys) == 0 {
		return nil, "jku has no public key " + input.Quote(header.KeyID)
	}
	return keys, ""
}
