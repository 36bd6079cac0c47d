package transport

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
)

// stream is the line of an agent that reads server-sent events: it is told on it, and
// speaks and acknowledges by requests of their own.
type stream struct {
	*held
	l       *Transports
	token   string
	agent   models.Agent
	w       http.ResponseWriter
	control *http.ResponseController
}

// stream answers with a stream of messages that ends with the line.
//
//	@Summary		Follow the inbox
//	@Description	Server-sent events: first `hello`, then a `message` for each message, whose `id` is its `message_id`, a comment every heartbeat, and `bye` before comet ends it. Acknowledge with `POST /api/agent/inbox/ack`; what is not acknowledged comes again on the next line. `Last-Event-ID` acknowledges nothing. For tokens that are bound to an agent; any other is 5004.
//	@ID				streamInbox
//	@Tags			agent door
//	@Produce		text/event-stream
//	@Security		BearerAuth
//	@Param			concurrency	query	int		false	"How many tasks the agent takes at a time"	minimum(1)	maximum(1000)	default(1)	example(4)
//	@Param			versions	query	string	false	"The versions of the protocol that the agent knows, separated by commas; the lowest common one is spoken"	example(1.0,2.0)
//	@Success		200	{string}	string	"The stream"
//	@Header			200	{string}	Cache-Control
//	@Failure		400	"5003: a parameter is unknown or malformed, or the agent has no type"
//	@Failure		422	"5006: no version in common"
//	@Failure		503	"5002: this server holds as many lines as it may, or stops"
//	@x-comet-failures	"ErrorEnvelope"
//	@Router			/api/agent/stream [get]
func (l *Transports) stream(w http.ResponseWriter, r *http.Request, who visitor, agentID string) error {
	q := parseQuery(r, "concurrency", "versions")
	places := q.number("concurrency", 1, orchestrator.MaxPlaces, 1)
	if q.err != nil {
		return q.err
	}
	version, err := l.speech.Negotiate(q.list("versions"))
	if err != nil {
		return err
	}
	agent, err := l.accepted(r.Context(), l.speech, agentID)
	if err != nil {
		return err
	}
	s := &stream{
		held: newHeld(agentID, Stream, l.speech, places, l.opts.Clock()), l: l, token: who.token, agent: agent,
		w: w, control: http.NewResponseController(w),
	}
	if err := l.lines.enter(s.held); err != nil {
		return err
	}
	defer l.lines.leave(s.held)
	if _, err := l.join(r.Context(), s.held); err != nil {
		return err
	}
	s.joined.Store(true)
	defer l.hangup(r.Context(), s.held)
	_ = s.control.SetReadDeadline(time.Time{})
	s.serve(r.Context(), version)
	return nil
}

// serve writes until the line is over or the agent gone.
func (s *stream) serve(ctx context.Context, version string) {
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.w.Header().Set("Cache-Control", "no-store")
	s.w.Header().Set("X-Accel-Buffering", "no")
	if s.event("hello", "", greeting(s.l, s.held, s.agent, version).bytes()) != nil {
		return
	}
	c := &courier{l: s.l, line: s.held, agent: s.agent}
	if c.carry(ctx, s.attend, s.hand) == nil {
		_ = s.event("bye", "", frame{Bye: &bye{s.why}}.bytes())
	}
}

// attend is what a stream does every heartbeat. That it can be written to is all that
// its agent shows.
func (s *stream) attend(ctx context.Context) error {
	if _, err := s.l.core.Auth.Verify(ctx, s.token); rejected(err) {
		s.end(endRefused)
		return nil
	}
	if err := s.write([]byte(": heartbeat\n\n")); err != nil {
		return err
	}
	s.shown.Store(true)
	return nil
}

func (s *stream) hand(p parcel) error {
	for _, part := range p.parts {
		if err := s.event("message", p.id, part); err != nil {
			return err
		}
	}
	return nil
}

// event writes one event; a line break in data begins another line of it.
func (s *stream) event(name, id string, data []byte) error {
	var b bytes.Buffer
	b.WriteString("event: " + name + "\n")
	if id != "" {
		b.WriteString("id: " + id + "\n")
	}
	for line := range bytes.SplitSeq(data, []byte{'\n'}) {
		b.WriteString("data: ")
		b.Write(line)
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return s.write(b.Bytes())
}

// write sends at once. An agent that does not take it in time is gone.
func (s *stream) write(b []byte) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(s.l.opts.WriteTimeout)) // only a test's writer cannot
	if _, err := s.w.Write(b); err != nil {
		return errs.Wrap(errs.Unavailable, err, "the agent is gone")
	}
	return s.control.Flush()
}
