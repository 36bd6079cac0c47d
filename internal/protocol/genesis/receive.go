package genesis

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"comet/internal/protocol"
	"comet/internal/requestid"
	wire "comet/internal/wire/genesis"
	"comet/models"
)

// Receive implements protocol.Protocol.
//
//	@Summary		Send a Genesis message
//	@Description	Receives one message of the Genesis protocol 1.0, up to 8 MiB. A token bound to an agent sends as that agent, which must be `from`. A token that is not bound to an agent needs the scope `messages:send`, and `from` is any name that is not the id of an agent. Without a token the message must be signed with a key of the agent `from` that replaces one (`signature_only`), and has at most 1 MiB. All messages of comet are signed with the keys of `/.well-known/jwks.json`.
//	@Description
//	@Description	202 means that the effect is committed. The body is the EVENT `message.ack` for an EVENT and for a REQUEST that starts a task, which `Location` names; the response to other messages has no body. With `Prefer: wait`, or if the task has ended already, the response to a REQUEST is the RESPONSE or ERROR at the end of the task. With `Accept: text/event-stream`, the acknowledgement, partial responses, questions and the final RESPONSE or ERROR are server-sent events with the name `message`. If comet fulfils the intent itself, the response is a RESPONSE with the status 200.
//	@Description
//	@Description	Every failure is an ERROR that echoes the ids: VALIDATION_ERROR 400, 401, 403, 404, 409, 413 and 415; ROUTING_ERROR 409, 422, 429, 500 and 503; TIMEOUT 504; AGENT_ERROR 422 and 502.
//	@ID				sendGenesisMessage
//	@Produce		json
//	@Param			Prefer	header	string					false	"How many seconds to wait for the end of the task, 60 at most; a malformed value is ignored (RFC 7240)"	example(wait=30)
//	@Param			message	body	schema.GenesisMessage	true	"The message"
//	@x-comet-example	{"id":"550e8400-e29b-41d4-a716-446655440001","type":"REQUEST","version":"1.0","from":"dashboard","to":"broadcast","intent":"web_search","confidence":0.98,"entities":[{"type":"city","value":"Lisbon","confidence":0.99}],"payload":{"query":"trains to Lisbon"},"context":{"maxTokens":2000},"priority":"NORMAL","options":{"requiresResponse":true},"timestamp":1767225600123456000}
//	@Success		200	{object}	schema.GenesisResponse	"The task has ended, or comet has fulfilled or refused the intent"
//	@Header			200	{string}	Location			"The task, under /api/v1/tasks"
//	@Header			200	{string}	Preference-Applied
//	@Success		202	{object}	schema.GenesisEvent	"The effect is committed"
//	@Header			202	{string}	Location			"The task, under /api/v1/tasks"
//	@Header			202	{string}	Preference-Applied
//	@Failure		400	"INVALID_MESSAGE, UNSUPPORTED_VERSION, CLOCK_SKEW"
//	@Failure		403	"UNAUTHORIZED: the sender may not send this message"
//	@Failure		404	"NOT_FOUND: the sender has no such task, or the agent `to` does not exist"
//	@Failure		409	"MESSAGE_REPLAYED, DEDUPLICATION_ID_REUSED, CONFLICT; CANCELLED"
//	@Failure		422	"UNSUPPORTED_INTENT: no agent offers the intent, or `to` is an agent that does not offer it"
//	@Failure		503	"UNAVAILABLE: the agents that offer the intent are offline; QUEUE_FULL"
//	@Failure		504	"TIMEOUT, MESSAGE_EXPIRED"
//	@Router			/api/genesis/messages [post]
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
	unsigned := m.Signature == nil && m.PublicKey == nil
	if err != nil && (codeOf(err) != wire.CodeSignatureRequired || !unsigned) {
		if bad := p.failInvalid(ctx, out, err); bad != nil {
			return out, bad
		}
		return out, p.mistakes(ctx, out, err)
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

// mistakes returns the codec's error, ignoring a missing signature if the sender is not required to sign.
func (p *Protocol) mistakes(ctx context.Context, m received, err error) error {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok || m.SignedValue("signature", wire.JCS) != nil || m.SignedValue("publicKey", wire.JCS) != nil || m.agentID != "" && !p.mayBeUnsigned(ctx, m) {
		return err
	}
	return &wire.Error{Code: e.Code, Problems: slices.DeleteFunc(slices.Clone(e.Problems), func(p wire.Problem) bool {
		return p.Pointer == "/signature" || p.Pointer == "/publicKey"
	})}
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
	if p.isAgent(m.From) || m.From == models.RootAgentID {
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

// isAgent reports whether a name is the id of an agent. An agent that was created on another replica is known a moment later.
func (p *Protocol) isAgent(name string) bool {
	agent, _ := p.Work.Index().Agent(name)
	return agent.Version != 0
}
