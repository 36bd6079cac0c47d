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

// sseConnection is the line of an agent that reads server-sent events: it is told on it, and
// speaks and acknowledges by requests of their own.
type sseConnection struct {
	*connection
	server  *Server
	token   string
	agent   models.Agent
	w       http.ResponseWriter
	control *http.ResponseController
}

// streamInbox answers with a stream of messages that ends with the line.
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
func (l *Server) streamInbox(w http.ResponseWriter, r *http.Request, who caller, agentID string) error {
	q := parseQuery(r, "concurrency", "versions")
	places := q.intParam("concurrency", 1, orchestrator.MaxPlaces, 1)
	if q.err != nil {
		return q.err
	}
	version, err := l.defaultProtocol.Negotiate(q.listParam("versions"))
	if err != nil {
		return err
	}
	agent, err := l.acceptedAgent(r.Context(), l.defaultProtocol, agentID)
	if err != nil {
		return err
	}
	s := &sseConnection{
		connection: newConnection(agentID, SSE, l.defaultProtocol, places, l.opts.Clock()), server: l, token: who.token, agent: agent,
		w: w, control: http.NewResponseController(w),
	}
	if err := l.connections.add(s.connection); err != nil {
		return err
	}
	defer l.connections.remove(s.connection)
	if _, err := l.join(r.Context(), s.connection); err != nil {
		return err
	}
	s.joined.Store(true)
	defer l.disconnect(r.Context(), s.connection)
	_ = s.control.SetReadDeadline(time.Time{})
	s.serve(r.Context(), version)
	return nil
}

// serve writes until the line is over or the agent gone.
func (s *sseConnection) serve(ctx context.Context, version string) {
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.w.Header().Set("Cache-Control", "no-store")
	s.w.Header().Set("X-Accel-Buffering", "no")
	if s.writeEvent("hello", "", helloFrame(s.server, s.connection, s.agent, version).encode()) != nil {
		return
	}
	c := &deliverer{server: s.server, conn: s.connection, agent: s.agent}
	if c.run(ctx, s.onHeartbeat, s.deliver) == nil {
		_ = s.writeEvent("bye", "", frame{Bye: &bye{s.reason}}.encode())
	}
}

// onHeartbeat is what a stream does every heartbeat. That it can be written to is all that
// its agent shows.
func (s *sseConnection) onHeartbeat(ctx context.Context) error {
	if _, err := s.server.core.Auth.Verify(ctx, s.token); isRejected(err) {
		s.end(endTokenRejected)
		return nil
	}
	if err := s.write([]byte(": heartbeat\n\n")); err != nil {
		return err
	}
	s.alive.Store(true)
	return nil
}

func (s *sseConnection) deliver(p outbound) error {
	for _, part := range p.parts {
		if err := s.writeEvent("message", p.id, part); err != nil {
			return err
		}
	}
	return nil
}

// writeEvent writes one event; a line break in data begins another line of it.
func (s *sseConnection) writeEvent(name, id string, data []byte) error {
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
func (s *sseConnection) write(b []byte) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(s.server.opts.WriteTimeout)) // only a test's writer cannot
	if _, err := s.w.Write(b); err != nil {
		return errs.Wrap(errs.Unavailable, err, "the agent is gone")
	}
	return s.control.Flush()
}
