// Package v5 gives the messages of PROTOCOL_V5 their meaning: it turns received messages into
// calls of the orchestrator, and results and inbox messages of the core into V5 messages. The
// O1 that replies is this service. Package internal/wire/v5 is the codec, and
// internal/transport moves the bytes.
//
// A message names agents, sessions and tasks by short names (W3, S1, T1), which the orchestrator
// assigns. A subtask that was handed off has the TID of its parent, one DEPTH deeper, so that
// CTX, TID, DEPTH and the worker identify it together.
//
// Receive is the way in: it parses, authenticates, finds the task, handles the message by its
// type and logs it. Render is the way out.
package v5

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/protocol/v5/messagelog"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

const (
	// Name is the protocol of a worker that speaks V5.
	Name = "pipe"
	// Class is the class of tasks that are requested in V5 (orchestrator.Options.Classes).
	Class = Name
	// Subprotocol is the WebSocket subprotocol.
	Subprotocol = "v5"
	// Version and VersionV4 are the versions that a join can state (PROTOCOL_V5 §14).
	Version   = "V5"
	VersionV4 = "V4"
)

// contentType is the media type of a reply over HTTP.
const contentType = "text/plain; charset=utf-8"

// Policy returns how tasks of Class are timed, retried and assigned: two retries after a timeout
// and one after E32, another worker after E30 and E31, two questions, 60 s for an answer and
// then its first option, depth 4 (PROTOCOL_V5 §5.4, §7, §8.2).
func Policy() orchestrator.Policy {
	return orchestrator.Policy{
		Timeout: 30 * time.Second, QueueTimeout: 10 * time.Minute, ReplyTimeout: time.Minute,
		Retries: 2, Backoff: []time.Duration{time.Second, 2 * time.Second},
		RetryOn: []orchestrator.Failure{
			orchestrator.FailureTimeout, orchestrator.FailureUnavailable, orchestrator.FailureSaturated, orchestrator.FailureResource,
		},
		RetryLimits:     map[orchestrator.Failure]int{orchestrator.FailureResource: 1},
		ReassignOn:      []orchestrator.Failure{orchestrator.FailureUnavailable, orchestrator.FailureSaturated},
		BreakerFailures: 5, BreakerPause: time.Minute,
		MaxDepth: 4, MaxQuestions: 2, UseFirstOption: true,
	}
}

// Options configures New; nil is the zero value.
type Options struct {
	// Clock returns the time, default time.Now.
	Clock func() time.Time
	// Keys are the agents' signing keys; without them no agent has a key.
	Keys *auth.Keys
	// MessageLog stores the messages of conversations; without it no message can be referred to.
	MessageLog *messagelog.Log
	// Logger receives every message and our own failures; default discards.
	Logger *slog.Logger
}

// Protocol implements protocol.Protocol. It is safe for concurrent use.
type Protocol struct {
	orchestrator *orchestrator.Orchestrator
	clock        func() time.Time
	log          *slog.Logger
	keys         *auth.Keys      // nil for none
	messages     *messagelog.Log // nil for none
	numbers      *messageNumbers
	pageCache    pageCache
}

var _ protocol.Protocol = (*Protocol)(nil)

// New returns the protocol over the orchestrator.
func New(work *orchestrator.Orchestrator, opts *Options) *Protocol {
	p := &Protocol{orchestrator: work, clock: time.Now, log: slog.New(slog.DiscardHandler)}
	if opts != nil {
		p.keys, p.messages = opts.Keys, opts.MessageLog
		if opts.Clock != nil {
			p.clock = opts.Clock
		}
		if opts.Logger != nil {
			p.log = opts.Logger
		}
	}
	p.numbers, p.pageCache = newMessageNumbers(p.clock()), newPageCache()
	return p
}

// Name implements protocol.Protocol.
func (p *Protocol) Name() string { return Name }

// Subprotocol implements protocol.Protocol.
func (p *Protocol) Subprotocol() string { return Subprotocol }

// Unframed implements protocol.Protocol: a connection carries nothing but messages.
func (p *Protocol) Unframed() bool { return true }

// OrderingKey implements protocol.Protocol with TID and CTX, the fourth and the ninth segment. A
// join is ordered with everything, and so is a message of V4, which has no CTX.
func (p *Protocol) OrderingKey(raw []byte) string {
	var task string
	for n := 1; ; n++ {
		segment, rest, found := bytes.Cut(raw, []byte{'|'})
		switch {
		case !found || n == 3 && string(segment) == "J" || n == 4 && (len(segment) < 2 || string(segment) == "T0"):
			return ""
		case n == 4:
			task = string(segment)
		case n == 9:
			return task + string(segment)
		}
		raw = rest
	}
}

// Negotiate implements protocol.Protocol: the join states the version.
func (p *Protocol) Negotiate([]string) (string, error) { return Version, nil }

// Accepts implements protocol.Protocol: every agent can have a number.
func (p *Protocol) Accepts(models.Agent) error { return nil }

// Token implements protocol.Protocol with the pair token= of a join.
func (p *Protocol) Token(raw []byte) (token string, rest []byte) {
	m, err := wire.Parse(string(raw))
	if err != nil || m.Type != wire.Join {
		return "", raw
	}
	data, token, found := m.Data.Cut(keyToken)
	if !found {
		return "", raw
	}
	m.Data = data
	text, err := wire.Format(m)
	if err != nil {
		return "", raw
	}
	return token, []byte(text)
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
		s.incoming.log(p.withShortNames(ctx, s, m))
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

// reply replies to a message from O1. sendBack is whether the reply is sent over a connection
// that stays open; over HTTP it always is.
func (p *Protocol) reply(to wire.Message, t wire.Type, s wire.State, data *wire.Writer, sendBack bool) (protocol.Reply, error) {
	text, err := data.Data()
	if err != nil {
		return protocol.Reply{}, err
	}
	m := wire.Reply(to, self, p.numbers.next(to.Context), t, text)
	m.State = s
	line, err := wire.Format(m)
	if err != nil {
		return protocol.Reply{}, err
	}
	return protocol.Reply{Status: http.StatusOK, Body: []byte(line), ContentType: contentType, SendBack: sendBack}, nil
}

// acknowledge replies with A to a message whose effect is committed. Warnings are always sent.
func (p *Protocol) acknowledge(to wire.Message, word string, sendBack bool) (protocol.Reply, error) {
	return p.reply(to, wire.Ack, to.State, ackData(word, to), sendBack || to.Warnings != 0)
}

// ackData begins the DATA of an A: a word, and the warnings about the message.
func ackData(word string, to wire.Message) *wire.Writer {
	w := new(wire.Writer).Flag(word)
	if to.Warnings != 0 {
		w.List("warn", strings.Split(to.Warnings.String(), ",")...)
	}
	return w
}

// notFoundAs replaces errs.NotFound by an error with a code of the protocol.
func notFoundAs(err error, code codes.Code, format string, args ...any) error {
	if errs.Is(err, errs.NotFound) {
		return errorf(code, "", format, args...)
	}
	return err
}
