package v5

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strings"

	"comet/internal/auth"
	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

// verifySignature verifies a message with the key of its sender; a user has none (PROTOCOL_V5
// §11). raw are the received bytes, which the signature covers. A signed message counts as used
// when it returns, before the message has any effect. The errors are E90 with a reason.
func (p *Protocol) verifySignature(ctx context.Context, from protocol.Peer, m wire.Message, raw []byte) error {
	if from.Verified {
		return nil
	}
	if pair, ok := m.Data.Pair(keyAuth); ok && !pair.Flag { // a space before it makes it no signature
		return errorf(codes.E90, codes.ReasonAuth, "auth must be the last pair, without a space before it")
	}
	signed := m.Auth != wire.Auth{}
	key, err := p.signingKey(ctx, from.AgentID())
	switch {
	case err != nil:
		return err
	case signed && key.Secret == "":
		return errNoKey(m.From)
	case !signed && (from.Remote || key.Required):
		return errorf(codes.E90, codes.ReasonUnsigned, "every message of %s must be signed", m.From)
	case !signed:
		return nil
	}
	if err := wire.Verify(string(raw), []byte(key.Secret)); err != nil {
		return signatureError(err)
	}
	if m.Auth.Session != signedSession(m.Context) {
		return errorf(codes.E90, codes.ReasonSession, "SID of auth must be %s, the CTX of the message", signedSession(m.Context))
	}
	return p.rejectReplay(ctx, from.AgentID(), m, raw)
}

// rejectReplay records a signed message as used. NONCE distinguishes messages with the same CTX
// and number; because the signature does not cover NONCE, the signed bytes are recorded too.
func (p *Protocol) rejectReplay(ctx context.Context, agentID string, m wire.Message, raw []byte) error {
	body, _, _ := strings.Cut(string(raw), ";"+keyAuth+"=")
	number, _, _ := strings.Cut(body, "|")
	err := p.keys.TakeOnce(background.WithPlacement(ctx, nil), Name, agentID,
		"line "+body+" "+strings.ToLower(m.Auth.Signature),
		"nonce "+m.Context+" "+number+" "+strings.ToLower(m.Auth.Nonce))
	if errs.Is(err, errs.Conflict) {
		return errorf(codes.E90, codes.ReasonReplay, "this message was received before; sent again it needs another M and NONCE")
	}
	return err
}

// signingKey returns the key of an agent, the zero AgentKey where it has none.
func (p *Protocol) signingKey(ctx context.Context, agentID string) (models.AgentKey, error) {
	if p.keys == nil || agentID == "" {
		return models.AgentKey{}, nil
	}
	return p.keys.Signing(ctx, agentID, auth.HMACSHA256)
}

func errNoKey(sender wire.Address) error {
	return errorf(codes.E90, codes.ReasonNoKey, "%s has no key to sign with", sender)
}

// errTokenOverNetwork rejects a token that has crossed the network in clear.
func errTokenOverNetwork() error {
	return errorf(codes.E90, "token", "a token must not cross the network: leave it out, and change it")
}

// signatureError returns the error of a signature that is malformed or wrong.
func signatureError(err error) error {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return err
	}
	coded := codedError{code: codes.E90, reason: e.Reason(), desc: e.Problems[0].Detail}
	if e.Reason() == codes.ReasonSignature {
		coded.cause = errs.New(errs.Unauthenticated, "%s", coded.desc)
	}
	return coded
}

// markUnauthenticated marks the rejection of a message whose sender has to sign: the message is
// not known to come from that sender.
func (p *Protocol) markUnauthenticated(ctx context.Context, from protocol.Peer, reply protocol.Reply) protocol.Reply {
	reply.Unauthenticated = from.Remote
	if !from.Remote {
		key, err := p.signingKey(ctx, from.AgentID())
		reply.Unauthenticated = err != nil || key.Required
	}
	return reply
}

// signedSession returns the SID of a signature for a CTX.
func signedSession(name string) string { return cmp.Or(name, wire.SystemContext) }

// signer returns the agent that a signed join without a token names with FROM, "" for another join.
// A connection from another machine must begin with such a join. The signature is left to verify.
func (p *Protocol) signer(ctx context.Context, from protocol.Peer, raw []byte) (agentID string, err error) {
	m, err := wire.Parse(string(raw))
	if err != nil {
		return "", err
	}
	remote, token := from.Remote, has(m.Data, keyToken)
	switch {
	case remote && token:
		return "", errTokenOverNetwork()
	case remote && m.Auth == wire.Auth{}:
		return "", errorf(codes.E90, codes.ReasonUnsigned, "every message from another machine must be signed")
	case token || m.Auth == wire.Auth{}:
		return "", nil
	}
	n, ok := m.From.WorkerNumber()
	if !ok {
		return "", errNoKey(m.From)
	}
	agentID, err = p.shortIDs.AgentID(ctx, int64(n))
	if isNotFound(err) { // the reply does not reveal which numbers exist
		err = errNoKey(m.From)
	}
	return agentID, err
}

// verify verifies the signature of the first message of a connection and records it as used, as
// Receive does with every other. For a wrong signature it returns errs.Unauthenticated.
func (p *Protocol) verify(ctx context.Context, from protocol.Peer, raw []byte) error {
	m, err := wire.Parse(string(raw))
	if err != nil {
		return err
	}
	return p.verifySignature(ctx, from, m, raw)
}

// signReply signs every message of a reply where sign signs messages to the agent. A reply to an
// unauthenticated message does not come here: otherwise any client could obtain signed messages by
// sending invalid ones. A reply that cannot be signed becomes an error.
func (p *Protocol) signReply(ctx context.Context, to protocol.Peer, m wire.Message, reply protocol.Reply) protocol.Reply {
	if to.AgentID() == "" || len(reply.Body) == 0 {
		return reply
	}
	lines := strings.Split(string(reply.Body), "\n")
	for i, line := range lines {
		signed, err := p.sign(ctx, to, line)
		if err != nil {
			return p.errorReply(m, err)
		}
		lines[i] = signed
	}
	reply.Body = []byte(strings.Join(lines, "\n"))
	return reply
}

// sign signs a message to an agent whose key is required or that is on another machine, and
// returns any other message unchanged.
func (p *Protocol) sign(ctx context.Context, to protocol.Peer, line string) (string, error) {
	key, err := p.signingKey(ctx, to.AgentID())
	switch {
	case err != nil:
		return "", err
	case to.Remote && key.Secret == "":
		return "", codedError{
			code: codes.E90, reason: codes.ReasonNoKey, desc: "the agent has no key",
			cause: errs.New(errs.Unauthenticated, "the agent %q has no key", to.AgentID()),
		}
	case !to.Remote && !key.Required:
		return line, nil
	}
	v4 := isV4([]byte(line))
	m, err := parse(line, v4)
	if err == nil && m.From == m.To { // otherwise it could be sent back to us as the agent's own
		m.From = self
		if v4 {
			line, err = m.FormatV4()
		} else {
			line, err = m.Format()
		}
	}
	if err != nil {
		return "", err
	}
	return wire.Auth{Session: signedSession(m.Context), Nonce: newNonce()}.Sign(line, []byte(key.Secret))
}

// newNonce returns 4 random hex digits.
func newNonce() string {
	b := make([]byte, 2)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
