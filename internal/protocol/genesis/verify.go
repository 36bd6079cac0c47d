package genesis

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net/http"

	"comet/internal/auth"
	"comet/internal/errs"
	wire "comet/internal/wire/genesis"
	"comet/models"
)

// verify verifies the signature of an agent's message and returns the form that it covers. signed is false for an
// unsigned message of an agent whose keys do not require a signature. The signature of an agent's message with both
// profiles is verified in the profile jcs.
func (p *Protocol) verify(ctx context.Context, agentID string, m wire.Message) (form wire.Form, key models.AgentKey, err error) {
	key, err = p.Keys.VerifyMessage(ctx, agentID, auth.SignedMessage{
		Public: m.PublicKey, V1: m.Signature != nil, JCS: m.SignatureJCS != nil,
		Verify: func(public ed25519.PublicKey, profile string) (err error) {
			forms := []wire.Form{wire.AsSent, wire.AsJavaScript}
			if profile == auth.ProfileJCS {
				forms = []wire.Form{wire.JCS}
			}
			form, err = m.Verify(public, forms...)
			return err
		},
	})
	if refusal := auth.RefusalOf(err); refusal != "" {
		pointer := "/signature"
		if refusal == auth.KeyUnknown {
			pointer = "/publicKey"
		}
		err = coded(wire.ErrorValidation, wire.Code(refusal), http.StatusUnauthorized, pointer, "%s", errs.From(err).Detail)
	}
	return form, key, err
}

// sender returns the principal of a message without a token, which must be signed with a key that replaces a token.
func (p *Protocol) sender(ctx context.Context, raw []byte) (models.Principal, error) {
	m, mistake := wire.Parse(raw)
	switch {
	case codeOf(mistake) == wire.CodeSignatureRequired, mistake != nil && m.SignedValue("signature", wire.JCS) == nil:
		return models.Principal{}, errs.Wrap(errs.Unauthenticated, mistake, "the message has no token and is not signed")
	case mistake != nil && !p.isSigned(ctx, received{Message: m}): // so that the sender learns its mistake
		return models.Principal{}, errs.Wrap(errs.InvalidRequest, mistake, "the message is invalid")
	}
	_, key, err := p.verify(ctx, m.From, m)
	if _, refused := errors.AsType[refusal](err); refused || err == nil && key.KeyID == "" {
		return models.Principal{}, errs.Wrap(errs.Unauthenticated, err, "the message has no token and no valid signature of an agent")
	}
	if err != nil {
		return models.Principal{}, err
	}
	by, err := p.Keys.Principal(ctx, key)
	if mistake != nil && errs.Is(err, errs.Unauthenticated) {
		err = errs.Wrap(errs.InvalidRequest, mistake, "the message is invalid")
	}
	return by, err
}

// isSigned reports whether the signature of an invalid message is valid, and not old.
func (p *Protocol) isSigned(ctx context.Context, m received) bool {
	if m.Signature == nil || m.PublicKey == nil || m.CheckTime(p.clock()) != nil {
		return false
	}
	_, key, err := p.verify(ctx, m.From, m.Message)
	return err == nil && key.KeyID != ""
}
