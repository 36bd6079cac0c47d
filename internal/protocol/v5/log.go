package v5

import (
	"bytes"
	"context"
	"log/slog"
	"strings"

	"github.com/google/uuid"

	"comet/internal/protocol"
	"comet/internal/protocol/v5/logformat"
	"comet/internal/protocol/v5/messagelog"
	"comet/internal/protocol/v5/shortid"
	"comet/internal/redact"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
)

// Every message is written to the program's log, and the messages of a conversation (a CTX) are
// stored in the message log as well (PROTOCOL_V5 §10). A received message is stored only in the
// context for which its handler has established the sender's right: the CTX of a message is only
// a claim, and any sender could otherwise put a message into the conversation of others. So a
// rejected message is not stored, nor system traffic with S0 or without CTX.

// incomingMessage is a received message until it is known whether it is accepted. A nil
// incomingMessage is that of a message that is never stored.
type incomingMessage struct {
	protocol *Protocol
	entry    messagelog.Message // only its id, time and peer until it is accepted
	logged   bool
	// firstReplyLogged is set when the first reply was logged before the others.
	firstReplyLogged bool
	// context is the context for which a handler has established the sender's right, "" for none.
	context string
}

// newIncoming returns the log entry of a received message.
func (p *Protocol) newIncoming(s sender, m wire.Message) *incomingMessage {
	if p.messages == nil || isNeverLogged(m) {
		return nil
	}
	in := &incomingMessage{protocol: p}
	in.entry.ID, in.entry.At, in.entry.Peer = newMessageID(), p.clock(), s.peer()
	return in
}

// isNeverLogged reports whether a message is never stored: it is about the agent and no context,
// it only reads, or it is a piece of a result, which is stored with the task.
func isNeverLogged(m wire.Message) bool {
	switch m.Type {
	case wire.Heartbeat, wire.Join, wire.Leave, wire.Caps, wire.Query:
		return true
	case wire.Update:
		return m.State != wire.Cancelled && isPiece(m.Data)
	}
	return false
}

// setContext records that the sender has a right to the CTX of m. Only the handler that has
// established this calls it.
func (in *incomingMessage) setContext(m wire.Message) {
	if in != nil {
		in.context = m.Context
	}
}

// logOnce stores a message whose effect is committed, once. m has the context and the task that it
// was given.
func (in *incomingMessage) logOnce(m wire.Message) {
	if in == nil || in.logged || in.context == "" || in.context != m.Context {
		return
	}
	if n, ok := conversationNumber(m); ok {
		in.entry.Context = n
		in.entry.Parent, _ = m.Data.Parent() // resolveTask has checked it
		in.logged = true
		in.protocol.addToLog(in.entry, m)
	}
}

// logReply logs a reply, and stores it with the message that it answers. A reply that only HTTP
// requires is not logged. The log names the receiver of an error as authenticated, not as the
// message claimed.
func (p *Protocol) logReply(ctx context.Context, s sender, reply protocol.Reply) protocol.Reply {
	in := s.incoming
	stored := in != nil && in.logged && !reply.IsError
	if len(reply.Body) == 0 || !reply.SendBack && !reply.IsError || !stored && !p.log.Enabled(ctx, slog.LevelWarn) {
		return reply
	}
	body := reply.Body
	if in != nil && in.firstReplyLogged {
		_, body, _ = bytes.Cut(body, []byte{'\n'})
	}
	for raw := range bytes.SplitSeq(body, []byte{'\n'}) {
		m, err := wire.Parse(string(raw))
		if err != nil {
			continue // the empty rest after the first reply
		}
		if reply.IsError && s.address.Role != 0 {
			m.To = s.address
		}
		p.trace(ctx, m)
		if n, ok := conversationNumber(m); ok && stored {
			p.addToLog(messagelog.Message{ID: newMessageID(), At: p.clock(), Peer: in.entry.Peer, Context: n, ParentID: in.entry.ID}, m)
		}
	}
	return reply
}

// logIncoming logs a received message with its authenticated sender. An anonymous message, which is
// a rejected one from another machine, is not known to come from the agent it names.
func (p *Protocol) logIncoming(ctx context.Context, s sender, m wire.Message, anonymous bool) {
	m.From = s.address
	if anonymous {
		m.From, m.To = wire.Address{}, wire.Address{}
	}
	p.trace(ctx, m)
}

// logOutgoing logs and stores a message that is sent to an agent and is no reply.
func (p *Protocol) logOutgoing(ctx context.Context, m wire.Message) {
	p.trace(ctx, m)
	if n, ok := conversationNumber(m); ok && p.messages != nil {
		p.addToLog(messagelog.Message{ID: newMessageID(), At: p.clock(), Peer: m.To.String(), Context: n}, m)
	}
}

// addToLog completes an entry with the segments of m and stores it.
func (p *Protocol) addToLog(entry messagelog.Message, m wire.Message) {
	tid, _ := m.Task.Number()
	entry.Task, entry.Depth, entry.Number = max(tid, 0), m.Depth, m.Number
	entry.From, entry.To, entry.Type = m.From.String(), m.To.String(), m.Type.String()
	if m.State != 0 {
		entry.State = m.State.String()
	}
	entry.Code = strings.Clone(string(m.Err)) // a part of the received text otherwise keeps all of it
	entry.Data = strings.Clone(string(withoutSecrets(m.Data)))
	p.messages.Add(entry)
}

// withoutSecrets returns DATA without tokens and signatures, however their keys are spelled.
func withoutSecrets(data wire.Data) wire.Data {
	for pair := range data.Pairs() {
		if strings.EqualFold(pair.Key, keyToken) || strings.EqualFold(pair.Key, keyAuth) {
			data, _, _ = data.Cut(pair.Key)
		}
	}
	return data
}

// trace writes a message to the program's log (§13.1, rule 8). Only the level debug shows the
// content of tasks; the others show the capability.
func (p *Protocol) trace(ctx context.Context, m wire.Message) {
	letter := m.Type.String()
	level := logformat.Level(letter)
	if !p.log.Enabled(ctx, level) {
		return
	}
	if strings.Contains("RXUSCDB", letter) && !p.log.Enabled(ctx, slog.LevelDebug) {
		call := m.Data.Call()
		if m.Data = "-"; call != "" {
			m.Data = wire.Data("call=" + call)
		}
	}
	p.log.LogAttrs(ctx, level, "PROTOCOL_V5 message", slog.Any("v5", traceRecord(m)))
}

// traceRecord returns a message in the log format of §10.3, without secrets.
func traceRecord(m wire.Message) logformat.Line {
	l := logformat.Line{Context: m.Context, From: m.From.String(), To: m.To.String(), Type: m.Type.String(), Code: string(m.Err), Data: redact.Text(string(withoutSecrets(m.Data)))}
	if _, ok := m.Task.Number(); ok {
		l.Task = m.Task.String()
	}
	return l
}

// conversationNumber returns the number of a message's context, false for system traffic.
func conversationNumber(m wire.Message) (n int64, ok bool) {
	if m.Context == wire.SystemContext {
		return 0, false
	}
	return shortid.ContextNumber(m.Context)
}

// newMessageID returns an id that sorts by time. NewV7 fails only without randomness, which Go does not survive.
func newMessageID() string { return uuid.Must(uuid.NewV7()).String() }

// messageByNumber returns the DATA of the newest message with a number between a sender and O1
// in a context, or E43 (decisions: “#MSG:Mn and pid mean the newest message so numbered between
// the two endpoints in that CTX”). A user finds only the user's own messages; an admin without
// such a message finds that of the conversation's owner.
func (p *Protocol) messageByNumber(ctx context.Context, s sender, contextID int64, number int) (string, error) {
	if contextID == 0 {
		return "", errorf(codes.E43, "", "there is no message M%d in a new session", number)
	}
	unknown := errorf(codes.E43, "", "there is no message M%d between %s and O1 in %s", number, s.address, shortid.ContextName(contextID))
	if p.messages == nil {
		return "", unknown
	}
	found, err := p.messages.ByNumber(ctx, contextID, s.peer(), number)
	if isNotFound(err) && s.agentID == "" && s.Administers() {
		var owner string
		if owner, err = p.conversationOwner(ctx, contextID); err == nil {
			found, err = p.messages.ByNumber(ctx, contextID, userPeer(owner), number)
		}
	}
	if isNotFound(err) {
		return "", unknown
	}
	return found.Data, err
}

// readMessageReference answers Q with ref=#MSG:M3.
func (p *Protocol) readMessageReference(ctx context.Context, s sender, m wire.Message, number int) (string, error) {
	contextID, ok := conversationNumber(m)
	if !ok {
		return "", unknownSession(m.Context)
	}
	if ok, err := p.ownsConversation(ctx, s, contextID); err != nil || !ok {
		if err == nil || isNotFound(err) {
			err = unknownSession(m.Context)
		}
		return "", err
	}
	return p.messageByNumber(ctx, s, contextID, number)
}

// ownsConversation reports whether a sender may read its conversation with O1 in a context. An
// agent's conversation is found by its address; of the users, only the owner of the session or
// task may read.
func (p *Protocol) ownsConversation(ctx context.Context, s sender, contextID int64) (bool, error) {
	if s.agentID != "" {
		_, err := shortid.SessionID(ctx, p.store, contextID)
		return err == nil, err
	}
	owner, err := p.conversationOwner(ctx, contextID)
	return err == nil && (owner == s.TokenID || s.Administers()), err
}

// conversationOwner returns the token that owns the session, or the task, of a context.
func (p *Protocol) conversationOwner(ctx context.Context, contextID int64) (tokenID string, err error) {
	id, err := shortid.SessionID(ctx, p.store, contextID)
	if err != nil {
		return "", err
	}
	if id == "" {
		t, err := p.taskByShortID(ctx, shortid.ID{Context: contextID, Task: 1})
		return t.Owner, err
	}
	session, err := p.orchestrator.Session(ctx, id)
	return session.Owner, err
}
