package v5

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"comet/internal/errs"
	"comet/internal/protocol"
	"comet/internal/requestid"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
)

// Receive implements protocol.Protocol.
//
//	@Summary		Send PROTOCOL_V5 messages
//	@Description	Receives one message per line, up to 1,000 messages and 1 MiB, processes them in order and responds with one line for each. A token bound to an agent sends as that agent, `W<n>`. A token that is not bound to an agent needs the scope `messages:send` and sends as `User`: it submits tasks to O1 with `R`. Empty lines are ignored. A line of eight segments, which is PROTOCOL_V4, gets a response of eight segments.
//	@Description
//	@Description	With `Prefer: wait` the response to an `R` has a second line once the task has ended (`S`, `E`) or the worker asks a question (`D`). A refused message gets an `E` with the document's code. If every message is refused, the status is that of the first: E10 to E16 400, E15 409, E17 and E31 429, E19 422, E2x 504, E30 and E32 503, E33 and E4x 404, E90 401, E99 500; for an E from a worker, 502 instead of 401 and 500. Otherwise the status is that of the last accepted message, 200 or 202.
//	@ID				sendV5Messages
//	@Accept			plain
//	@Produce		plain
//	@Param			Prefer	header	string	false	"How many seconds to wait for the end of the tasks, 60 at most in total (RFC 7240)"	example(wait=30)
//	@Param			traceparent	header	string	false	"The W3C trace context of the submitted tasks; an invalid one is ignored"	example(00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01)
//	@Param			lines	body	string	true	"The messages"	example(M1|User>O1|R|-|P1|N|-|0|-|B500|call=web_search;query=AI)
//	@Success		200	{string}	string	"The responses, one per line"
//	@Header			200	{string}	Preference-Applied
//	@Success		202	{string}	string	"The responses; the last accepted message submitted a task"
//	@Header			202	{string}	Location			"The task, under /api/v1/tasks"
//	@Header			202	{string}	Preference-Applied
//	@Failure		400	{string}	string	"E10 to E16: no message was accepted"
//	@Router			/api/v5/messages [post]
func (p *Protocol) Receive(ctx context.Context, from protocol.Peer, raw []byte, wait time.Duration) protocol.Reply {
	v4 := p.repliesInV4(from.Principal, raw)
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
	return p.signReply(ctx, from, m, p.replyInVersion(v4, p.logReply(ctx, s, reply)))
}

// readMessage parses a message, identifies its sender and verifies its signature. Errors that do
// not concern the sender are left to resolveTask, when the signature counts as used.
func (p *Protocol) readMessage(ctx context.Context, from protocol.Peer, raw []byte, v4 bool) (m wire.Message, s sender, err error) {
	if m, err = parse(string(raw), v4); err != nil {
		return p.withTokenSender(ctx, from.Principal, m), s, err
	}
	var hasToken bool
	if m.Data, _, hasToken = m.Data.Cut(keyToken); hasToken && from.Remote {
		return m, s, errTokenOverNetwork()
	}
	if s, err = p.identifySender(ctx, from.Principal, m); err == nil {
		err = p.verifySignature(ctx, from, m, raw)
	}
	s.traceparent = from.Trace
	requestid.Add(ctx, slog.String("message_id", "M"+strconv.Itoa(m.Number)))
	p.logIncoming(ctx, s, m, err != nil && from.Remote)
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
		reply, err := p.handleRequest(ctx, s, m, wait)
		if errs.Is(err, errs.UnsupportedWork) {
			return p.disambiguate(ctx, s, m, err)
		}
		return reply, err
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
		if err := p.orchestrator.Leave(ctx, s.agentID, true); err != nil { // its tasks go to other workers
			return protocol.Reply{}, err
		}
		return p.acknowledge(m, "left", true)
	case wire.Caps:
		return p.handleCaps(ctx, s, m)
	case wire.Heartbeat:
		return p.handleHeartbeat(ctx, s, m)
	case wire.Handoff:
		return p.handleHandoff(ctx, s, m)
	case wire.Ack, wire.Update, wire.Success, wire.Failure, wire.Clarify:
		tid, ok := m.Task.Number()
		switch {
		case m.Type == wire.Ack && (!ok || tid == 0):
			return p.acknowledge(m, "noted", false)
		case m.Type == wire.Update && m.State == wire.Cancelled: // of a task that the agent requested
			return p.handleCancel(ctx, s, m)
		case m.Type == wire.Clarify && isAnswer(m.Data):
			return p.handleAnswer(ctx, s, m, 0)
		}
		return p.handleReport(ctx, s, m)
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

// introduce returns the name= of a join, for an agent that is not registered yet, and the agent
// that a signed join names. It returns an error for another message and for a join whose token may
// have been truncated.
func (p *Protocol) introduce(ctx context.Context, from protocol.Peer, raw []byte) (intro protocol.Introduction, err error) {
	m, err := parse(string(raw), isV4(raw))
	if err != nil {
		return intro, err
	}
	if m.Type != wire.Join || m.From.Role != wire.Worker {
		return intro, errorf(codes.E13, "from", "the first message must be a worker's J, not %s from %s", m.Type, m.From)
	}
	if m.Warnings.Truncated() && !has(m.Data, keyToken) {
		return intro, errorf(codes.E10, "", "DATA has more than %d characters; a token after them is lost", wire.MaxData)
	}
	intro.Name, _ = m.Data.Get("name")
	if _, err = checkJoin(m); err == nil {
		intro.SignedBy, err = p.signer(ctx, from, raw)
	}
	return intro, err
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
