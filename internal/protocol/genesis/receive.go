package genesis

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/protocol"
	"comet/internal/requestid"
	wire "comet/internal/wire/genesis"
	"comet/models"
)

// received is a message whose sender is known.
type received struct {
	wire.Message

	raw []byte
	by  models.Principal
	// agentID is the agent that sends it, "" for a client.
	agentID string
	// form is the form that the signature covers, AsSent for an unsigned message.
	form  wire.Form
	trace string
}

// value returns a value of the message as its signature covers it. The profile v1 covers only the payload.
func (r received) value(name string, unsigned jsontext.Value) json.RawMessage {
	if signed := r.SignedValue(name, r.form); signed != nil {
		return json.RawMessage(signed)
	}
	return json.RawMessage(unsigned)
}

// Receive implements protocol.Protocol.
func (p *Protocol) Receive(ctx context.Context, from protocol.Peer, raw []byte, wait time.Duration) protocol.Reply {
	m, err := p.read(ctx, from, raw)
	if err != nil {
		return p.refuse(ctx, m.Message, err)
	}
	reply, err := p.receive(ctx, m, wait)
	if err != nil {
		return p.refuse(ctx, m.Message, err)
	}
	reply.MessageID = m.ID
	return reply
}

// read parses a message and verifies its sender, its time and its signature.
func (p *Protocol) read(ctx context.Context, from protocol.Peer, raw []byte) (received, error) {
	m, err := wire.Parse(raw)
	out := received{Message: m, raw: raw, by: from.Principal, agentID: from.AgentID(), trace: from.Trace}
	if err != nil && codeOf(err) != wire.CodeSignatureRequired {
		if bad := p.failInvalid(ctx, out, err); bad != nil {
			return out, bad
		}
		return out, err
	}
	requestid.Add(ctx, slog.String("message_id", m.ID), slog.String("correlation_id", m.CorrelationID))
	if err := p.checkSender(out); err != nil {
		return out, err
	}
	if err := m.CheckTime(p.clock()); err != nil {
		return out, err
	}
	if out.agentID != "" {
		out.form, _, err = p.verify(ctx, out.agentID, m)
		return out, err
	}
	if err == nil { // the key of a client is not known to comet; its signature protects only the message
		out.form, err = m.Verify(m.PublicKey, forms(m)...)
		return out, err
	}
	return out, nil
}

// forms returns the forms in which a signature is tried.
func forms(m wire.Message) []wire.Form {
	if m.SignatureJCS != nil {
		return []wire.Form{wire.JCS, wire.AsSent, wire.AsJavaScript}
	}
	return []wire.Form{wire.AsSent, wire.AsJavaScript}
}

// codeOf returns the code of an error of the codec, "" for another one.
func codeOf(err error) wire.Code {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e.Code
	}
	return ""
}

// checkSender checks that a message is from the agent of the token. A token that is bound to no agent may use any name
// that is not the id of an agent.
func (p *Protocol) checkSender(m received) error {
	if m.agentID != "" {
		if m.From != m.agentID {
			return coded(wire.ErrorValidation, codeUnauthorized, http.StatusForbidden, "/from", "from must be %q, the agent of the token", m.agentID)
		}
		return nil
	}
	if !m.by.Has(models.ScopeMessagesSend) {
		return coded(wire.ErrorValidation, codeUnauthorized, http.StatusForbidden, "", "the token is bound to no agent and lacks the scope messages:send")
	}
	if p.Work.IsRegistered(m.From) || m.From == models.RootAgentID {
		return coded(wire.ErrorValidation, codeUnauthorized, http.StatusForbidden, "/from", "from is an agent, but the token is bound to no agent; use a token of that agent or another name")
	}
	return nil
}

func (p *Protocol) receive(ctx context.Context, m received, wait time.Duration) (protocol.Reply, error) {
	switch body := m.Body.(type) {
	case wire.Request:
		return p.request(ctx, m, body, wait)
	case wire.Response:
		return p.response(ctx, m, body)
	case wire.Event:
		return p.event(ctx, m, body)
	case wire.Failure:
		return p.failure(ctx, m, body)
	}
	return protocol.Reply{}, errors.New("a valid message has no body")
}

// accepted returns the reply to a message whose effect is committed.
func accepted(taskID string) protocol.Reply {
	reply := protocol.Reply{Status: http.StatusAccepted}
	if taskID != "" {
		reply.Location = "/api/v1/tasks/" + taskID
	}
	return reply
}
