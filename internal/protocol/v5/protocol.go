// Package v5 gives the lines of PROTOCOL_V5 their meaning: it turns them into the
// orchestrator's verbs, and what comes of them, and what agents must be told, into lines.
// The O1 that answers is this service. How a line is written is for wire/pipe, and how it
// travels for link.
//
// A line names agents, sessions and tasks by short names (W3, S1, T1), which the
// orchestrator keeps for whoever needs them. A task that was handed off has its source's
// TID, one deeper, so that on the wire CTX, TID, DEPTH and the worker name it together.
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
	"comet/models"
)

// Name is what a worker that speaks it has as its dialect, and Subprotocol its name on a
// WebSocket.
const (
	Name        = "pipe"
	Subprotocol = "v5"
)

// Version is the version that is spoken, as a join states it (PROTOCOL_V5 §14).
const Version = "V5"

// Options configures New; nil is the zero value.
type Options struct {
	// Clock tells the time, default time.Now.
	Clock func() time.Time
	// Keys are what agents sign with; without them no agent has a key.
	Keys *auth.Keys
	// MessageLog stores the messages of conversations; without it none can be referred to.
	MessageLog *messagelog.Log
	// Logger hears of every line, and of our own failures; default discards.
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

// New returns the dialect over the orchestrator.
func New(work *orchestrator.Orchestrator, opts *Options) *Protocol {
	d := &Protocol{orchestrator: work, clock: time.Now, log: slog.New(slog.DiscardHandler)}
	if opts != nil && opts.Clock != nil {
		d.clock = opts.Clock
	}
	if opts != nil && opts.Logger != nil {
		d.log = opts.Logger
	}
	if opts != nil {
		d.keys, d.messages = opts.Keys, opts.MessageLog
	}
	d.numbers, d.pageCache = newMessageNumbers(d.clock()), newPageCache()
	return d
}

// Name implements protocol.Dialect.
func (p *Protocol) Name() string { return Name }

// Subprotocol implements protocol.Dialect.
func (p *Protocol) Subprotocol() string { return Subprotocol }

// Unframed implements protocol.Dialect: its lines hold nothing but its messages.
func (p *Protocol) Unframed() bool { return true }

// OrderingKey implements protocol.Dialect: TID and CTX, the fourth segment and the ninth. A join
// is about everything, whatever it has there, and so is a line of V4, which has no CTX.
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

// Negotiate implements protocol.Dialect: the version is agreed on in the join.
func (p *Protocol) Negotiate([]string) (string, error) { return Version, nil }

// Accepts implements protocol.Dialect: every agent can have a number.
func (p *Protocol) Accepts(models.Agent) error { return nil }

// Token implements protocol.Dialect: the token of a join (decisions: “Who is speaking”).
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
	line, err := wire.Format(m)
	if err != nil {
		return "", raw
	}
	return token, []byte(line)
}

// Introduction returns the name that a join proposes with name=, for an agent that is not
// registered yet. Its error is for Refuse: it is no join, or one whose token may be cut off.
func (p *Protocol) Introduction(raw []byte) (name string, err error) {
	m, err := parse(string(raw), isV4(raw))
	if err != nil {
		return "", err
	}
	if m.Type != wire.Join || m.From.Role != wire.Worker {
		return "", errorf(wire.E13, "from", "the first line must be a worker's J, not %s of %s", m.Type, m.From)
	}
	if m.Warnings.Has(wire.DataTruncated) && !has(m.Data, keyToken) {
		return "", errorf(wire.E10, "", "DATA has more than %d characters; a token behind them is lost", wire.MaxData)
	}
	name, _ = m.Data.Get("name")
	_, err = checkJoin(m)
	return name, err
}

// Receive implements protocol.Dialect.
func (p *Protocol) Receive(ctx context.Context, from models.Principal, raw []byte, wait time.Duration) protocol.Reply {
	old := p.repliesInV4(from, raw)
	m, s, err := p.readMessage(ctx, from, raw, old)
	if err != nil {
		return p.replyInVersion(old, p.markUnauthenticated(ctx, from, p.logReply(ctx, s, p.errorReply(m, err))))
	}
	var answer protocol.Reply
	if err = p.resolveTask(ctx, &s, m, old); err == nil {
		answer, err = p.handleMessage(ctx, s, m, wait)
	}
	if err == nil {
		s.incoming.log(p.withShortNames(ctx, s, m))
	} else {
		answer = p.errorReply(m, err)
	}
	return p.signReply(ctx, s.agentID, m, p.replyInVersion(old, p.logReply(ctx, s, answer)))
}

// replyInVersion is an answer in the version that somebody is answered in.
func (p *Protocol) replyInVersion(old bool, a protocol.Reply) protocol.Reply {
	if old {
		return p.toV4(a)
	}
	return a
}

// readMessage reads a message, of V4 where old is set, and finds out whose it is. What is wrong
// with it behind that is for heed: it is known to have come from its sender then, and its
// signature is taken.
func (p *Protocol) readMessage(ctx context.Context, from models.Principal, raw []byte, old bool) (m wire.Message, s sender, err error) {
	if m, err = parse(string(raw), old); err != nil {
		return p.withTokenSender(ctx, from, m), s, err
	}
	var told bool
	if m.Data, _, told = m.Data.Cut(keyToken); told && protocol.ConnectionOf(ctx).Remote { // it is nobody else's business
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

// resolveTask finds out which task a message of V4 is about, and looks at its cause.
func (p *Protocol) resolveTask(ctx context.Context, s *sender, m wire.Message, old bool) error {
	if old {
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

// handleUserMessage takes what somebody says of a task that he asked for.
func (p *Protocol) handleUserMessage(ctx context.Context, s sender, m wire.Message, wait time.Duration) (protocol.Reply, error) {
	switch {
	case m.Type == wire.Clarify:
		return p.handleAnswer(ctx, s, m, wait)
	case m.Type == wire.Update && m.State == wire.Cancelled:
		return p.handleCancel(ctx, s, m)
	case m.Type == wire.Broadcast:
		return p.handleBroadcast(ctx, s, m)
	}
	return protocol.Reply{}, errorf(wire.E14, "", "a user sends R, C, B, Q and U with the state X, not %s", m.Type)
}

// handleAgentMessage takes what an agent says of itself, and of the work it has.
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
			return p.handleCancel(ctx, s, m) // of what it asked for itself
		}
		return p.handleUpdate(ctx, s, m)
	case wire.Success:
		return p.handleSuccess(ctx, s, m)
	case wire.Failure:
		return p.handleFailure(ctx, s, m)
	case wire.Clarify:
		if has(m.Data, "answer") || has(m.Data, "choice") {
			return p.handleAnswer(ctx, s, m, 0)
		}
		return p.handleQuestion(ctx, s, m)
	case wire.Handoff:
		return p.handleHandoff(ctx, s, m)
	}
	return protocol.Reply{}, errorf(wire.E14, "", "%s is for O1 to send", m.Type)
}

// checkState refuses a report whose STATE says something else than its type (PROTOCOL_V5
// §4.1); none says nothing.
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
	return errorf(wire.E15, wire.ReasonTransition, "the state of %s is %s, not %s", m.Type, want, m.State)
}

const contentType = "text/plain; charset=utf-8"

// reply answers a message with one of our own. Over a line that stays open it is sent
// where reply is set.
func (p *Protocol) reply(to wire.Message, t wire.Type, s wire.State, data *wire.Writer, reply bool) (protocol.Reply, error) {
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
	return protocol.Reply{Status: http.StatusOK, Body: []byte(line), ContentType: contentType, SendBack: reply}, nil
}

// acknowledge is the answer to a message whose effect is committed.
func (p *Protocol) acknowledge(to wire.Message, word string, reply bool) (protocol.Reply, error) {
	return p.reply(to, wire.Ack, to.State, ackData(word, to), reply || to.Warnings != 0) // what was put right is told in any case
}

// ackData begins the DATA of an answer: a word, and what was put right in the message.
func ackData(word string, to wire.Message) *wire.Writer {
	w := new(wire.Writer).Flag(word)
	if to.Warnings != 0 {
		w.List("warn", strings.Split(to.Warnings.String(), ",")...)
	}
	return w
}

// notFoundAs gives the core's errs.NotFound its code in the protocol.
func notFoundAs(err error, code wire.Code, format string, args ...any) error {
	if errs.Is(err, errs.NotFound) {
		return errorf(code, "", format, args...)
	}
	return err
}
