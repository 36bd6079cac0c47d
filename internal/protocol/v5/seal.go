package v5

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"

	"comet/internal/errs"
	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
	v4 "comet/internal/wire/v5/v4"
)

// What is said to an agent that signs, because it has to or because it is on another
// machine, is signed with its key. What is not known to come from it is answered without a
// signature: nobody is to have lines signed by asking wrongly.

// signReply signs an answer where its agent signs. One that cannot be signed any more is not
// shown.
func (p *Protocol) signReply(ctx context.Context, agentID string, m wire.Message, a protocol.Reply) protocol.Reply {
	if agentID == "" || len(a.Body) == 0 {
		return a
	}
	lines := strings.Split(string(a.Body), "\n")
	for i, line := range lines {
		out, err := p.sign(ctx, agentID, line)
		if err != nil {
			return p.errorReply(m, err)
		}
		lines[i] = out
	}
	a.Body = []byte(strings.Join(lines, "\n"))
	return a
}

// sign is a line to an agent with the signature that it may need.
func (p *Protocol) sign(ctx context.Context, agentID, line string) (string, error) {
	key, err := p.signingKey(ctx, agentID)
	far := protocol.ConnectionOf(ctx).Remote
	switch {
	case err != nil:
		return "", err
	case far && key.Secret == "":
		return "", codedError{
			code: wire.E90, reason: wire.ReasonNoKey, desc: "there is no key any more",
			cause: errs.New(errs.Unauthenticated, "the agent %q has no key", agentID),
		}
	case !far && !key.Required:
		return line, nil
	}
	old := isV4([]byte(line))
	m, err := parse(line, old)
	if err == nil && m.From == m.To { // or the line could be sent back to us as its own
		m.From = self
		if line, err = wire.Format(m); err == nil && old {
			line, err = v4.Down(line)
		}
	}
	if err != nil {
		return "", err
	}
	return wire.Sign(line, []byte(key.Secret), signedSession(m.Context), newNonce())
}

// newNonce returns 4 random hex digits.
func newNonce() string {
	b := make([]byte, 2)
	_, _ = rand.Read(b) // never fails; it ends the program where there is no randomness
	return hex.EncodeToString(b)
}
