package genesis

import (
	"bytes"
	"context"
	"encoding/base64"

	"comet/internal/auth"
	"comet/internal/errs"
	wire "comet/internal/wire/genesis"
	"comet/models"
)

// NewVerifier returns a verifier with the keys that are registered for agents.
func NewVerifier(keys *auth.Keys) Verifier { return verifier{keys} }

type verifier struct{ keys *auth.Keys }

// Verify implements Verifier.
func (v verifier) Verify(ctx context.Context, agentID string, m wire.Message) (wire.Form, bool, error) {
	key, err := v.keys.Signing(ctx, agentID, auth.Ed25519)
	if err != nil {
		return 0, false, err
	}
	if m.PublicKey == nil || m.Signature == nil {
		if key.Required {
			return 0, false, signatureError(wire.CodeSignatureRequired, "/signature", "is missing; the agent must sign every message")
		}
		return 0, false, nil
	}
	public, _ := base64.StdEncoding.DecodeString(key.PublicKey)
	if !bytes.Equal(public, m.PublicKey) {
		return 0, false, signatureError(codeKeyUnknown, "/publicKey", "is not one of the sender's keys")
	}
	form, err := m.Verify(m.PublicKey, forms(m)...)
	return form, err == nil, err
}

// Sender implements Verifier.
func (v verifier) Sender(context.Context, wire.Message) (models.Principal, error) {
	return models.Principal{}, errs.New(errs.Unauthenticated, "no key allows it")
}

func signatureError(code wire.Code, pointer, text string) error {
	return &wire.Error{Code: code, Problems: []wire.Problem{{Pointer: pointer, Detail: pointer + " " + text}}}
}
