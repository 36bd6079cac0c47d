package v5

import (
	"bytes"
	"context"
	"log/slog"
	"strings"

	"github.com/google/uuid"

	"comet/internal/protocol"
	"comet/internal/redact"
	"comet/internal/telemetry"
	wire "comet/internal/wire/v5"
	"comet/models"
)

// What is said is logged, and what is said in a context is kept in the journal as well
// (PROTOCOL_V5 §10). A line is kept only in the context to which the verb that took it has
// established the speaker's right: what a line names as its CTX is nothing but what it
// says, and anybody could put a message into the conversation of others. So a line that is
// refused is not kept, nor one of the system, with S0 or no CTX.

// incomingMessage is a line that came, until it is known whether it is taken. A nil heard is of a
// line that is not kept in any case.
type incomingMessage struct {
	protocol *Protocol
	entry    models.LoggedMessage // with its id, time and peer only, until it is taken
	logged   bool
	// firstReplyLogged says that the first line of its answer was said before the rest.
	firstReplyLogged bool
	// context is the context that a verb has found the speaker to be in, "" for none.
	context string
}

// newIncoming begins to keep a line of a speaker.
func (p *Protocol) newIncoming(s sender, m wire.Message) *incomingMessage {
	if p.messages == nil || isNeverLogged(m) {
		return nil
	}
	h := &incomingMessage{protocol: p}
	h.entry.ID, h.entry.At, h.entry.Peer = newMessageID(), p.clock(), s.peer()
	return h
}

// isNeverLogged reports whether a line is never kept: it is about the agent and no context, it
// only asks, or it is a piece of what is kept with the task.
func isNeverLogged(m wire.Message) bool {
	switch m.Type {
	case wire.Heartbeat, wire.Join, wire.Leave, wire.Caps, wire.Query:
		return true
	case wire.Update:
		return m.State != wire.Cancelled && (isLogPiece(m.Data) || has(m.Data, keyPart))
	}
	return false
}

// setContext says that the speaker has to do with what m is about, and so that the line belongs
// into its context. Whoever has resolved that says so.
func (h *incomingMessage) setContext(m wire.Message) {
	if h != nil {
		h.context = m.Context
	}
}

// log keeps a line whose effect is committed, once. m has the context and the task that
// it was given.
func (h *incomingMessage) log(m wire.Message) {
	if h == nil || h.logged || h.context == "" || h.context != m.Context {
		return
	}
	if n, ok := conversationNumber(m); ok {
		h.entry.Context = n
		h.entry.Parent, _ = m.Data.Parent() // heed has checked it
		h.logged = true
		h.protocol.addToLog(h.entry, m)
	}
}

// logReply logs an answer, and keeps it beside the line that it answers. One that is only
// said over HTTP, because there has to be one, is nothing that was said. A refusal is
// logged with whom it was really said to, whoever the line claimed to be.
func (p *Protocol) logReply(ctx context.Context, s sender, a protocol.Reply) protocol.Reply {
	h := s.incoming
	keeps := h != nil && h.logged && !a.IsError
	if len(a.Body) == 0 || !a.SendBack && !a.IsError || !keeps && !p.log.Enabled(ctx, slog.LevelWarn) {
		return a
	}
	body := a.Body
	if h != nil && h.firstReplyLogged {
		_, body, _ = bytes.Cut(body, []byte{'\n'})
	}
	for raw := range bytes.SplitSeq(body, []byte{'\n'}) {
		m, err := wire.Parse(string(raw))
		if err != nil {
			continue // there is no more of it
		}
		if a.IsError && s.address.Role != 0 {
			m.To = s.address
		}
		p.trace(ctx, m)
		if n, ok := conversationNumber(m); ok && keeps {
			p.addToLog(models.LoggedMessage{ID: newMessageID(), At: p.clock(), Peer: h.entry.Peer, Context: n, ParentID: h.entry.ID}, m)
		}
	}
	return a
}

// logFirstReply logs and keeps the first line of an answer whose asker may wait for the rest of
// it: it is said now, and what is said meanwhile comes behind it.
func (p *Protocol) logFirstReply(ctx context.Context, s sender, first protocol.Reply) {
	if h := s.incoming; h != nil && h.logged && !h.firstReplyLogged {
		p.logReply(ctx, s, first)
		h.firstReplyLogged = true
	}
}

// logIncoming logs a line that came, with whose it is: the sender that it names is only what it
// says. refused is why it is not taken; what is not even known to come from the other end
// of a line to another machine has nobody as its sender.
func (p *Protocol) logIncoming(ctx context.Context, s sender, m wire.Message, refused error) {
	m.From = s.address
	if refused != nil && protocol.ConnectionOf(ctx).Remote {
		m.From, m.To = wire.Address{}, wire.Address{}
	}
	p.trace(ctx, m)
}

// logOutgoing logs and keeps a line that an agent is told without having said anything.
func (p *Protocol) logOutgoing(ctx context.Context, m wire.Message) {
	p.trace(ctx, m)
	if n, ok := conversationNumber(m); ok && p.messages != nil {
		p.addToLog(models.LoggedMessage{ID: newMessageID(), At: p.clock(), Peer: m.To.String(), Context: n}, m)
	}
}

// addToLog has a line written that says what m does.
func (p *Protocol) addToLog(l models.LoggedMessage, m wire.Message) {
	tid, _ := m.Task.Number()
	l.Task, l.Depth, l.Number = max(tid, 0), m.Depth, m.Number
	l.From, l.To, l.Type, l.Code = m.From.String(), m.To.String(), m.Type.String(), string(m.Err)
	if l.State = m.State.String(); l.State == "-" {
		l.State = ""
	}
	l.Code = strings.Clone(l.Code)
	l.Data = strings.Clone(string(withoutSecrets(m.Data))) // and not the whole of what it came in
	p.messages.Add(l)
}

// withoutSecrets is DATA without what must not be kept, however it is spelled.
func withoutSecrets(data wire.Data) wire.Data {
	for p := range data.Pairs() {
		if strings.EqualFold(p.Key, keyToken) || strings.EqualFold(p.Key, "auth") {
			data, _, _ = data.Cut(p.Key)
		}
	}
	return data
}

// trace logs a line (§13.1, rule 8). What is not logged costs nothing.
func (p *Protocol) trace(ctx context.Context, m wire.Message) {
	if level := telemetry.V5Level(m.Type.String()); p.log.Enabled(ctx, level) {
		p.log.LogAttrs(ctx, level, "a line", slog.Any("v5", traceRecord(m)))
	}
}

// traceRecord is a line as it is logged, whoever writes the log: without what looks like a
// secret.
func traceRecord(m wire.Message) telemetry.V5Line {
	l := telemetry.V5Line{Context: m.Context, From: addressText(m.From), To: addressText(m.To), Type: m.Type.String(), Code: string(m.Err), Data: redact.Text(string(withoutSecrets(m.Data)))}
	if _, ok := m.Task.Number(); ok {
		l.Task = m.Task.String()
	}
	return l
}

// addressText is an address in the log, "" for one that is not known.
func addressText(a wire.Address) string {
	if a.Role == 0 {
		return ""
	}
	return a.String()
}

// conversationNumber is the number of a message's context; ok is false for one of the system.
func conversationNumber(m wire.Message) (n int64, ok bool) {
	if m.Context == wire.SystemContext {
		return 0, false
	}
	return contextNumber(m.Context)
}

// newMessageID is the next in the order in which things are said.
func newMessageID() string {
	id, err := uuid.NewV7()
	if err != nil { // there is no chance in this machine any more
		return ""
	}
	return id.String()
}
