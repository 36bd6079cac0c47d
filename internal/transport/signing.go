package transport

import (
	"context"
	"math"
	"net/netip"
	"time"

	"github.com/coder/websocket"

	"comet/internal/errs"
	"comet/internal/protocol"
	"comet/models"
)

// firstMessageTimeout is how long an agent that must sign may take to send its first message.
const firstMessageTimeout = 10 * time.Second

// signingKey returns the key with which an agent signs the messages of a protocol, the zero key for
// none.
func (s *Server) signingKey(ctx context.Context, agentID string, proto *describedProtocol) (models.AgentKey, error) {
	if s.core.Keys == nil || proto.info.KeyAlgorithm == "" {
		return models.AgentKey{}, nil
	}
	return s.core.Keys.Signing(ctx, agentID, proto.info.KeyAlgorithm)
}

// checkFirstMessage reads the first message of an agent that must sign and verifies its signature,
// unless the handshake has done so. It reports false if it closed the connection.
func (s *socket) checkFirstMessage() bool {
	if s.protocol.info.KeyAlgorithm == "" || s.firstVerified {
		return true
	}
	key, err := s.server.signingKey(s.server.ctx, s.agentID, s.protocol)
	if err != nil {
		s.reject(err, websocket.StatusTryAgainLater)
		return false
	}
	if !key.Required {
		return true
	}
	ctx, cancel := context.WithTimeout(s.server.ctx, firstMessageTimeout)
	defer cancel()
	if s.first, err = s.conn.read(ctx); err != nil {
		s.conn.cut()
		return false
	}
	if err := s.server.verifySignature(ctx, s.protocol, s.peer, s.first, s.from, s.token); err != nil {
		_, s.first = s.protocol.Token(s.first)
		s.reject(err, websocket.StatusPolicyViolation)
		return false
	}
	s.firstVerified = true
	return true
}

// verifySignature verifies the signature of a first message and counts an invalid one.
func (s *Server) verifySignature(ctx context.Context, proto *describedProtocol, from protocol.Peer, raw []byte, client netip.Prefix, token string) error {
	if proto.info.KeyAlgorithm == "" {
		return nil
	}
	err := proto.info.Verify(ctx, from, raw)
	if errs.Is(err, errs.Unauthenticated) {
		s.authenticator.CountBadSignature(client, from.AgentID(), token)
	}
	return err
}

// errTooManyBadSignatures is the error for a throttled address or agent.
func errTooManyBadSignatures(wait time.Duration) error {
	return errs.New(errs.RateLimited, "too many invalid signatures from this address").With("retry_after", int(math.Ceil(wait.Seconds())))
}
