package pipe

import (
	"bytes"
	"context"
	"log/slog"
	"strings"

	"github.com/google/uuid"

	"comet/internal/dialect"
	"comet/internal/redact"
	"comet/internal/telemetry"
	wire "comet/internal/wire/pipe"
	"comet/models"
)

// What is said is logged, and what is said in a context is kept in the journal as well
// (PROTOCOL_V5 §10). A line that is refused is not kept: else anybody could put a message
// into the conversation of others. Neither are lines of the system, with S0 or no CTX.

// heard is a line that came, until it is known whether it is taken. A nil heard is of a
// line that is not kept in any case.
type heard struct {
	d    *Dialect
	line models.Line // with its id and time only, until it is taken
	kept bool
	// aside is set for a line that is in no conversation, whatever its CTX says.
	aside bool
}

// note logs a line that came, and begins to keep it.
func (d *Dialect) note(ctx context.Context, m wire.Message) *heard {
	d.trace(ctx, m)
	if d.journal == nil || m.Type == wire.Heartbeat || m.Type == wire.Join || m.Type == wire.Leave || m.Type == wire.Caps {
		return nil
	}
	h := &heard{d: d}
	h.line.ID, h.line.At = newLineID(), d.clock()
	return h
}

// taken keeps a line whose effect is committed, once. m has the context and the task that
// it was given.
func (h *heard) taken(m wire.Message) {
	if h == nil || h.kept || h.aside {
		return
	}
	if n, ok := conversation(m); ok {
		h.line.Peer, h.line.Context = m.From.String(), n
		h.line.Parent, _ = m.Data.Parent() // hear has checked it
		h.kept = true
		h.d.keep(h.line, m)
	}
}

// isAside has a line not kept.
func (h *heard) isAside() {
	if h != nil {
		h.aside = true
	}
}

// answered logs an answer, and keeps it beside the line that it answers. One that is only
// said over HTTP, because there has to be one, is nothing that was said.
func (d *Dialect) answered(ctx context.Context, h *heard, a dialect.Answer) dialect.Answer {
	keeps := h != nil && h.kept && !a.Refused
	if len(a.Body) == 0 || !a.Reply && !a.Refused || !keeps && !d.log.Enabled(ctx, slog.LevelWarn) {
		return a
	}
	for raw := range bytes.SplitSeq(a.Body, []byte{'\n'}) {
		m, err := wire.Parse(string(raw))
		if err != nil {
			continue // it is ours
		}
		d.trace(ctx, m)
		if n, ok := conversation(m); ok && keeps {
			d.keep(models.Line{ID: newLineID(), At: d.clock(), Peer: m.To.String(), Context: n, ParentID: h.line.ID}, m)
		}
	}
	return a
}

// told logs and keeps a line that an agent is told without having said anything.
func (d *Dialect) told(ctx context.Context, m wire.Message) {
	d.trace(ctx, m)
	if n, ok := conversation(m); ok && d.journal != nil {
		d.keep(models.Line{ID: newLineID(), At: d.clock(), Peer: m.To.String(), Context: n}, m)
	}
}

// keep has a line written that says what m does.
func (d *Dialect) keep(l models.Line, m wire.Message) {
	tid, _ := m.Task.Number()
	l.Task, l.Depth, l.Number = max(tid, 0), m.Depth, m.Number
	l.From, l.To, l.Type, l.Code = m.From.String(), m.To.String(), m.Type.String(), string(m.Err)
	if l.State = m.State.String(); l.State == "-" {
		l.State = ""
	}
	l.Code = strings.Clone(l.Code)
	l.Data = strings.Clone(string(secretless(m.Data))) // and not the whole of what it came in
	d.journal.Add(l)
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
func (d *Dialect) trace(ctx context.Context, m wire.Message) {
	if level := telemetry.V5Level(m.Type.String()); d.log.Enabled(ctx, level) {
		d.log.LogAttrs(ctx, level, "a line", slog.Any("v5", logged(m)))
	}
}

// logged is a line as it is logged, whoever writes the log: without what looks like a
// secret.
func logged(m wire.Message) telemetry.V5Line {
	l := telemetry.V5Line{Context: m.Context, From: m.From.String(), To: m.To.String(), Type: m.Type.String(), Code: string(m.Err), Data: redact.Text(string(m.Data))}
	if _, ok := m.Task.Number(); ok {
		l.Task = m.Task.String()
	}
	return l
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
