package v5

import (
	"context"
	"errors"
	"strings"

	"comet/internal/errs"
	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
	"comet/models"
)

// keyAuth is the pair that a line is signed with.
const keyAuth = "auth"

// verifySignature holds a line against the key of the agent that speaks, "" for somebody
// else (PROTOCOL_V5 §11). raw are the bytes as they came: what is signed are they, and not
// what was read. A line that is signed is noted as taken when it returns, and whatever the
// line does is done after that. The errors are E90 with the reason.
func (p *Protocol) verifySignature(ctx context.Context, agentID string, m wire.Message, raw []byte) error {
	line := protocol.ConnectionOf(ctx)
	if line.Verified {
		return nil
	}
	if pair, ok := m.Data.Pair(keyAuth); ok && !pair.Flag { // with a space before it, which signs nothing
		return errorf(wire.E90, wire.ReasonAuth, "auth must be the last pair, without a space before it")
	}
	signed := m.Auth != wire.Auth{}
	key, err := p.signingKey(ctx, agentID)
	switch {
	case err != nil:
		return err
	case signed && key.Secret == "":
		return errorf(wire.E90, wire.ReasonNoKey, "%s has no key to sign with", m.From)
	case !signed && (line.Remote || key.Required):
		return errorf(wire.E90, wire.ReasonUnsigned, "every line of %s has to be signed", m.From)
	case !signed:
		return nil
	}
	if err := wire.Verify(string(raw), []byte(key.Secret)); err != nil {
		return signatureError(err)
	}
	if m.Auth.Session != signedSession(m.Context) {
		return errorf(wire.E90, wire.ReasonSession, "SID of auth must be %s, as CTX says", signedSession(m.Context))
	}
	return p.rejectReplay(ctx, agentID, m, raw)
}

// rejectReplay notes a line that is signed as taken. NONCE tells lines apart that are alike but
// for their DATA; because the signature does not cover it, the signed bytes may not come
// again either, whatever NONCE stands behind them.
func (p *Protocol) rejectReplay(ctx context.Context, agentID string, m wire.Message, raw []byte) error {
	body, _, _ := strings.Cut(string(raw), ";"+keyAuth+"=")
	number, _, _ := strings.Cut(body, "|")
	err := p.keys.TakeOnce(ctx, agentID,
		"line "+body+" "+strings.ToLower(m.Auth.Signature),
		"nonce "+m.Context+" "+number+" "+strings.ToLower(m.Auth.Nonce))
	if errs.Is(err, errs.Conflict) {
		return errorf(wire.E90, wire.ReasonReplay, "this line was taken before; what is said again needs another M and NONCE")
	}
	return err
}

// signingKey returns the key of an agent, the zero AgentKey where it has none.
func (p *Protocol) signingKey(ctx context.Context, agentID string) (models.AgentKey, error) {
	if p.keys == nil || agentID == "" {
		return models.AgentKey{}, nil
	}
	return p.keys.Signing(ctx, agentID)
}

// signatureError is the refusal of a line whose signature is not that of its agent, or is not read
// as one.
func signatureError(err error) error {
	var e *wire.Error
	if !errors.As(err, &e) {
		return err
	}
	r := codedError{code: wire.E90, reason: e.Reason(), desc: e.Problems[0].Detail}
	if e.Reason() == wire.ReasonSignature {
		r.cause = errs.New(errs.Unauthenticated, "%s", r.desc)
	}
	return r
}

// isSignatureError reports whether an error is that of a signature that is wrong.
func isSignatureError(err error) bool {
	var r codedError
	return errors.As(err, &r) && r.code == wire.E90 && r.reason == wire.ReasonSignature
}

// markUnauthenticated notes on the refusal of a message of somebody who has to sign that it is not
// known to be his.
func (p *Protocol) markUnauthenticated(ctx context.Context, from models.Principal, a protocol.Reply) protocol.Reply {
	a.Unauthenticated = protocol.ConnectionOf(ctx).Remote
	if from.AgentID != nil && !a.Unauthenticated {
		key, err := p.signingKey(ctx, *from.AgentID)
		a.Unauthenticated = err != nil || key.Required
	}
	return a
}

// signedSession is what SID has to be for a CTX.
func signedSession(name string) string {
	if name == "" {
		return wire.SystemContext
	}
	return name
}

// errTokenOverNetwork is the refusal of a token that has crossed the network.
func errTokenOverNetwork() error {
	return errorf(wire.E90, "token", "a token does not belong on the network: leave it out, and change it")
}

// Signer returns the agent that a join names with FROM: one that is signed and has no
// token, which is the only kind that a line from another machine may begin with. It is ""
// for another join. The signature is for Authenticate to look at; the error is for Refuse.
func (p *Protocol) Signer(ctx context.Context, raw []byte) (agentID string, err error) {
	m, err := wire.Parse(string(raw))
	if err != nil {
		return "", err
	}
	far, token := protocol.ConnectionOf(ctx).Remote, has(m.Data, keyToken)
	switch {
	case far && token:
		return "", errTokenOverNetwork()
	case far && m.Auth == wire.Auth{}:
		return "", errorf(wire.E90, wire.ReasonUnsigned, "every line from another machine has to be signed")
	case token || m.Auth == wire.Auth{}:
		return "", nil
	}
	n, ok := m.From.Nth()
	if !ok {
		return "", errorf(wire.E90, wire.ReasonNoKey, "%s has no key to sign with", m.From)
	}
	agentID, err = p.orchestrator.AgentByNumber(ctx, int64(n))
	if errs.Is(err, errs.NotFound) { // nobody is told which numbers there are
		err = errorf(wire.E90, wire.ReasonNoKey, "%s has no key to sign with", m.From)
	}
	return agentID, err
}

// Authenticate does with the first message of a line what Receive does with every other:
// it looks at its signature, and notes it as taken. The error is for Refuse; that of a
// signature that is wrong is errs.Unauthenticated.
func (p *Protocol) Authenticate(ctx context.Context, agentID string, raw []byte) error {
	m, err := wire.Parse(string(raw))
	if err != nil {
		return err
	}
	return p.verifySignature(ctx, agentID, m, raw)
}

// MustSign reports whether every message of an agent has to be signed, wherever it is.
func (p *Protocol) MustSign(ctx context.Context, agentID string) (bool, error) {
	key, err := p.signingKey(ctx, agentID)
	return key.Required, err
}

// HasKey returns errs.Unauthenticated for an agent that has no key to sign with.
func (p *Protocol) HasKey(ctx context.Context, agentID string) error {
	key, err := p.signingKey(ctx, agentID)
	if err == nil && key.Secret == "" {
		err = errs.New(errs.Unauthenticated, "the agent %q has no key", agentID).With("tokenless", true)
	}
	return err
}
