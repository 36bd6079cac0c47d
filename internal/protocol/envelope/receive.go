package envelope

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"comet/internal/errs"
	"comet/internal/protocol"
	"comet/internal/requestid"
	wire "comet/internal/wire/envelope"
	"comet/models"
)

// Receive implements protocol.Protocol.
func (p *Protocol) Receive(ctx context.Context, from protocol.Peer, raw []byte, wait time.Duration) protocol.Reply {
	e, err := wire.Parse(raw)
	if err != nil {
		return p.refuse(e, err)
	}
	requestid.Add(ctx, slog.String("trace_id", hex.EncodeToString(e.TraceID[:])), slog.String("message_id", e.MessageID.String()), slog.String("message_request_id", e.RequestID.String()))
	p.log.DebugContext(ctx, "a message has arrived", "type", string(e.Type), "from_agent", e.From)
	e.RemoveToken() // the token is for message queues only and must not be stored
	s, err := p.senderOf(ctx, from.Principal, e)
	if err != nil {
		return p.refuse(e, err)
	}
	reply, err := p.receive(ctx, s, e, wait)
	if err != nil {
		return p.refuse(e, err)
	}
	reply.MessageID = e.MessageID.String()
	return reply
}

func (p *Protocol) receive(ctx context.Context, s sender, e wire.Envelope, wait time.Duration) (protocol.Reply, error) {
	switch e.Payload.(type) {
	case wire.WorkStatus, wire.WorkResult, wire.Failure:
		if err := requireAgent(s, e); err != nil {
			return protocol.Reply{}, err
		}
	}
	switch payload := e.Payload.(type) {
	case wire.WorkRequest:
		if !s.maySubmit() {
			return protocol.Reply{}, p.rejectSender(ctx, s, e, "the token lacks the scope messages:send")
		}
		if payload.WorkType == wire.WorkTypeCancel {
			return p.cancel(ctx, s, e, payload)
		}
		return p.submit(ctx, s, e, payload, wait)
	case wire.WorkStatus:
		return p.progress(ctx, s, e, payload)
	case wire.Heartbeat:
		return p.heartbeat(ctx, s, payload)
	case wire.WorkResult:
		return p.complete(ctx, s, e, payload)
	case wire.Failure:
		return p.agentError(ctx, s, e, payload)
	}
	return protocol.Reply{}, errors.New("a valid envelope has no payload")
}

// accepted returns the reply to a message whose effect is committed.
func accepted(taskID string) protocol.Reply {
	reply := protocol.Reply{Status: http.StatusAccepted}
	if taskID != "" {
		reply.Location = "/api/v1/tasks/" + taskID
	}
	return reply
}

// senderOf returns the sender of a message. The token identifies the agent, and from_agent must be
// the type of that agent. A token that is not bound to an agent acts as the orchestrator. A
// mismatch is errs.Unauthenticated without details; the reason is logged.
func (p *Protocol) senderOf(ctx context.Context, from models.Principal, e wire.Envelope) (sender, error) {
	s := sender{Principal: from, agentType: wire.Orchestrator}
	if from.AgentID == nil {
		if !s.maySubmit() {
			return s, p.rejectSender(ctx, s, e, "the token is not bound to an agent and lacks the scope messages:send")
		}
	} else {
		agentType, ok, err := p.work.AgentType(ctx, *from.AgentID)
		if err != nil {
			return s, err
		}
		if !ok || agentType == "" {
			return s, p.rejectSender(ctx, s, e, "the agent has no type or is inactive")
		}
		s.agentID, s.agentType = *from.AgentID, agentType
	}
	if e.From != s.agentType {
		return s, p.rejectSender(ctx, s, e, "from_agent is not the type of the token's agent")
	}
	return s, nil
}

// rejectSender logs why a sender is rejected and returns an error that does not say why.
func (p *Protocol) rejectSender(ctx context.Context, s sender, e wire.Envelope, reason string) error {
	p.log.InfoContext(ctx, "a message was refused", "reason", reason, "token_id", s.TokenID, "agent", s.agentID, "type", s.agentType, "from_agent", e.From)
	return errs.New(errs.Unauthenticated, "authentication failed")
}
