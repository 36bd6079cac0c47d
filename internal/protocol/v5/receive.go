package v5

import (
	"context"
	"time"

	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

// Receive implements protocol.Protocol.
func (p *Protocol) Receive(ctx context.Context, from models.Principal, raw []byte, wait time.Duration) protocol.Reply {
	v4 := p.repliesInV4(from, raw)
	m, s, err := p.readMessage(ctx, from, raw, v4)
	if err != nil {
		return p.replyInVersion(v4, p.markUnauthenticated(ctx, from, p.logReply(ctx, s, p.errorReply(m, err))))
	}
	var reply protocol.Reply
	if err = p.resolveTask(ctx, &s, m, v4); err == nil {
		reply, err = p.handleMessage(ctx, s, m, wait)
	}
	if err == nil {
		s.incoming.logOnce(p.withShortNames(ctx, s, m))
	} else {
		reply = p.errorReply(m, err)
	}
	return p.signReply(ctx, s.agentID, m, p.replyInVersion(v4, p.logReply(ctx, s, reply)))
}

// readMessage parses a message, identifies its sender and verifies its signature. Errors that do
// not concern the sender are left to resolveTask, when the signature counts as used.
func (p *Protocol) readMessage(ctx context.Context, from models.Principal, raw []byte, v4 bool) (m wire.Message, s sender, err error) {
	if m, err = parse(string(raw), v4); err != nil {
		return p.withTokenSender(ctx, from, m), s, err
	}
	var hasToken bool
	if m.Data, _, hasToken = m.Data.Cut(keyToken); hasToken && protocol.ConnectionOf(ctx).Remote {
		return m, s, errTokenOverNetwork()
	}
	if s, err = p.identifySender(ctx, from, m); err == nil {
		err = p.verifySignature(ctx, s.agentID, m, raw)
	}
	p.logIncoming(ctx, s, m, err)
	if err == nil {
		s.incoming = p.newIncoming(s, m)
	}
	return m, s, err
}

// resolveTask finds the task of a message of V4, which has no CTX, and checks pid=.
func (p *Protocol) resolveTask(ctx context.Context, s *sender, m wire.Message, v4 bool) error {
	if v4 {
		if err := p.resolveTaskV4(ctx, s, m); err != nil {
			return err
		}
	}
	_, err := m.Data.Parent()
	return err
}

func (p *Protocol) handleMessage(ctx context.Context, s sender, m wire.Message, wait time.Duration) (protocol.Reply, error) {
	switch m.Type {
	case wire.Query:
		return p.handleQuery(ctx, s, m)
	case wire.Request:
		return p.handleRequest(ctx, s, m, wait)
	}
	if s.agentID == "" {
		return p.handleUserMessage(ctx, s, m, wait)
	}
	return p.handleAgentMessage(ctx, s, m)
}

// handleUserMessage handles what a user can send besides R and Q.
func (p *Protocol) handleUserMessage(ctx context.Context, s sender, m wire.Message, wait time.Duration) (protocol.Reply, error) {
	switch {
	case m.Type == wire.Clarify:
		return p.handleAnswer(ctx, s, m, wait)
	case m.Type == wire.Update && m.State == wire.Cancelled:
		return p.handleCancel(ctx, s, m)
	case m.Type == wire.Broadcast:
		return p.handleBroadcast(ctx, s, m)
	}
	return protocol.Reply{}, errorf(codes.E14, "", "a user sends R, C, B, Q and U with the state X, not %s", m.Type)
}

// handleAgentMessage handles what an agent can send besides R and Q.
func (p *Protocol) handleAgentMessage(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	if err := checkState(m); err != nil {
		return protocol.Reply{}, err
	}
	switch m.Type {
	case wire.Join:
		return p.handleJoin(ctx, s, m)
	case wire.Leave:
		return p.handleLeave(ctx, s, m)
	case wire.Caps:
		return p.handleCaps(ctx, s, m)
	case wire.Heartbeat:
		return p.handleHeartbeat(ctx, s, m)
	case wire.Ack:
		return p.handleAck(ctx, s, m)
	case wire.Update:
		if m.State == wire.Cancelled {
			return p.handleCancel(ctx, s, m) // of a task that the agent requested
		}
		return p.handleUpdate(ctx, s, m)
	case wire.Success:
		return p.handleSuccess(ctx, s, m)
	case wire.Failure:
		return p.handleFailure(ctx, s, m)
	case wire.Clarify:
		if isAnswer(m.Data) {
			return p.handleAnswer(ctx, s, m, 0)
		}
		return p.handleQuestion(ctx, s, m)
	case wire.Handoff:
		return p.handleHandoff(ctx, s, m)
	}
	return protocol.Reply{}, errorf(codes.E14, "", "only O1 sends %s", m.Type)
}

// checkState rejects a report whose STATE contradicts its type (PROTOCOL_V5 §4.1). An absent
// STATE is valid.
func checkState(m wire.Message) error {
	want := wire.Running
	switch m.Type {
	case wire.Success:
		want = wire.Done
	case wire.Failure:
		want = wire.Failed
	case wire.Update, wire.Clarify, wire.Handoff:
	default:
		return nil
	}
	if m.State == 0 || m.State == want || m.Type == wire.Update && m.State == wire.Cancelled {
		return nil
	}
	return errorf(codes.E15, codes.ReasonTransition, "the state of %s is %s, not %s", m.Type, want, m.State)
}

// Introduction returns the name= of a join, for an agent that is not registered yet. The error
// is for Refuse: the message is no join, or its token may have been truncated.
func (p *Protocol) Introduction(raw []byte) (name string, err error) {
	m, err := parse(string(raw), isV4(raw))
	if err != nil {
		return "", err
	}
	if m.Type != wire.Join || m.From.Role != wire.Worker {
		return "", errorf(codes.E13, "from", "the first message must be a worker's J, not %s from %s", m.Type, m.From)
	}
	if m.Warnings.Has(wire.DataTruncated) && !has(m.Data, keyToken) {
		return "", errorf(codes.E10, "", "DATA has more than %d characters; a token after them is lost", wire.MaxData)
	}
	name, _ = m.Data.Get("name")
	_, err = checkJoin(m)
	return name, err
}

// Refuse implements protocol.Protocol.
func (p *Protocol) Refuse(err error, raw []byte) protocol.Reply {
	v4 := isV4(raw)
	if !v4 {
		raw = raw[:min(len(raw), wire.MaxLine)]
	}
	m, _ := parse(string(raw), v4) // only to address the E
	return p.replyInVersion(v4, p.errorReply(m, err))
}
