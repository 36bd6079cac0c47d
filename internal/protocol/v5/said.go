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

// heard is a line that came, until it is known whether it is taken. A nil heard is of a
// line that is not kept in any case.
type heard struct {
	d    *Protocol
	line models.LoggedMessage // with its id, time and peer only, until it is taken
	kept bool
	// begun says that the first line of its answer was said before the rest.
	begun bool
	// where is the context that a verb has found the speaker to be in, "" for none.
	where string
}

// hearing begins to keep a line of a speaker.
func (d *Protocol) hearing(s speaker, m wire.Message) *heard {
	if d.messages == nil || isUnkept(m) {
		return nil
	}
	h := &heard{d: d}
	h.line.ID, h.line.At, h.line.Peer = newLineID(), d.clock(), s.peer()
	return h
}

// isUnkept reports whether a line is never kept: it is about the agent and no context, it
// only asks, or it is a piece of what is kept with the task.
func isUnkept(m wire.Message) bool {
	switch m.Type {
	case wire.Heartbeat, wire.Join, wire.Leave, wire.Caps, wire.Query:
		return true
	case wire.Update:
		return m.State != wire.Cancelled && (isLog(m.Data) || has(m.Data, keyPart))
	}
	return false
}

// in says that the speaker has to do with what m is about, and so that the line belongs
// into its context. Whoever has resolved that says so.
func (h *heard) in(m wire.Message) {
	if h != nil {
		h.where = m.Context
	}
}

// taken keeps a line whose effect is committed, once. m has the context and the task that
// it was given.
func (h *heard) taken(m wire.Message) {
	if h == nil || h.kept || h.where == "" || h.where != m.Context {
		return
	}
	if n, ok := conversation(m); ok {
		h.line.Context = n
		h.line.Parent, _ = m.Data.Parent() // heed has checked it
		h.kept = true
		h.d.keep(h.line, m)
	}
}

// answered logs an answer, and keeps it beside the line that it answers. One that is only
// said over HTTP, because there has to be one, is nothing that was said. A refusal is
// logged with whom it was really said to, whoever the line claimed to be.
func (d *Protocol) answered(ctx context.Context, s speaker, a protocol.Reply) protocol.Reply {
	h := s.said
	keeps := h != nil && h.kept && !a.IsError
	if len(a.Body) == 0 || !a.SendBack && !a.IsError || !keeps && !d.log.Enabled(ctx, slog.LevelWarn) {
		return a
	}
	body := a.Body
	if h != nil && h.begun {
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
		d.trace(ctx, m)
		if n, ok := conversation(m); ok && keeps {
			d.keep(models.LoggedMessage{ID: newLineID(), At: d.clock(), Peer: h.line.Peer, Context: n, ParentID: h.line.ID}, m)
		}
	}
	return a
}

// answers logs and keeps the first line of an answer whose asker may wait for the rest of
// it: it is said now, and what is said meanwhile comes behind it.
func (d *Protocol) answers(ctx context.Context, s speaker, first protocol.Reply) {
	if h := s.said; h != nil && h.kept && !h.begun {
		d.answered(ctx, s, first)
		h.begun = true
	}
}

// came logs a line that came, with whose it is: the sender that it names is only what it
// says. refused is why it is not taken; what is not even known to come from the other end
// of a line to another machine has nobody as its sender.
func (d *Protocol) came(ctx context.Context, s speaker, m wire.Message, refused error) {
	m.From = s.address
	if refused != nil && protocol.ConnectionOf(ctx).Remote {
		m.From, m.To = wire.Address{}, wire.Address{}
	}
	d.trace(ctx, m)
}

// told logs and keeps a line that an agent is told without having said anything.
func (d *Protocol) told(ctx context.Context, m wire.Message) {
	d.trace(ctx, m)
	if n, ok := conversation(m); ok && d.messages != nil {
		d.keep(models.LoggedMessage{ID: newLineID(), At: d.clock(), Peer: m.To.String(), Context: n}, m)
	}
}

// keep has a line written that says what m does.
func (d *Protocol) keep(l models.LoggedMessage, m wire.Message) {
	tid, _ := m.Task.Number()
	l.Task, l.Depth, l.Number = max(tid, 0), m.Depth, m.Number
	l.From, l.To, l.Type, l.Code = m.From.String(), m.To.String(), m.Type.String(), string(m.Err)
	if l.State = m.State.String(); l.State == "-" {
		l.State = ""
	}
	l.Code = strings.Clone(l.Code)
	l.Data = strings.Clone(string(secretless(m.Data))) // and not the whole of what it came in
	d.messages.Add(l)
}

// secretless is DATA without what must not be kept, however it is spelled.
func secretless(data wire.Data) wire.Data {
	for p := range data.Pairs() {
		if strings.EqualFold(p.Key, keyToken) || strings.EqualFold(p.Key, "auth") {
			data, _, _ = data.Cut(p.Key)
		}
	}
	return data
}

// trace logs a line (§13.1, rule 8). What is not logged costs nothing.
func (d *Protocol) trace(ctx context.Context, m wire.Message) {
	if level := telemetry.V5Level(m.Type.String()); d.log.Enabled(ctx, level) {
		d.log.LogAttrs(ctx, level, "a line", slog.Any("v5", logged(m)))
	}
}

// logged is a line as it is logged, whoever writes the log: without what looks like a
// secret.
func logged(m wire.Message) telemetry.V5Line {
	l := telemetry.V5Line{Context: m.Context, From: nameOf(m.From), To: nameOf(m.To), Type: m.Type.String(), Code: string(m.Err), Data: redact.Text(string(secretless(m.Data)))}
	if _, ok := m.Task.Number(); ok {
		l.Task = m.Task.String()
	}
	return l
}

// nameOf is an address in the log, "" for one that is not known.
func nameOf(a wire.Address) string {
	if a.Role == 0 {
		return ""
	}
	return a.String()
}

// conversation is the number of a message's context; ok is false for one of the system.
func conversation(m wire.Message) (n int64, ok bool) {
	if m.Context == wire.SystemContext {
		return 0, false
	}
	return contextNumber(m.Context)
}

// newLineID is the next in the order in which things are said.
func newLineID() string {
	id, err := uuid.NewV7()
	if err != nil { // there is no chance in this machine any more
		return ""
	}
	return id.String()
}
