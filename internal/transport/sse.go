package transport

import (
	"context"
	"net/http"

	"comet/internal/errs"
	"comet/internal/httpkit"
)

// sseConnection is the connection of an agent that reads server-sent events. The agent sends
// messages and acknowledgements by separate requests.
type sseConnection struct {
	*connection
	server *Server
	token  string
	stream *httpkit.Stream
}

// streamInbox responds with a stream of messages until the connection ends.
//
//	@Summary		Stream the inbox
//	@Description	Sends server-sent events: first `hello`, then a `message` event for each message with its `message_id` as `id`, a comment every heartbeat, and `bye` before comet closes the stream. Acknowledge messages with `POST /api/agent/inbox/ack`; unacknowledged messages are delivered again on the next connection. `Last-Event-ID` acknowledges nothing. Only tokens bound to an agent are accepted; any other is 5004.
//	@Produce		text/event-stream
//	@Success		200	{string}	string	"The stream"
//	@Header			200	{string}	Cache-Control
//	@Failure		400	"5003: a parameter is unknown or malformed, or the agent has no type"
//	@Failure		422	"5006: no version in common"
//	@Failure		503	"5002: the server has reached its connection limit, or is shutting down"
//	@Router			/api/agent/stream [get]
func (s *Server) streamInbox(w http.ResponseWriter, r *http.Request, from httpkit.Identity, agentID string) error {
	conn, version, err := s.requestedConnection(r, httpkit.NewQuery(r, "concurrency", "versions", "protocol"), SSE, agentID)
	if err != nil {
		return err
	}
	return s.hold(r.Context(), conn, func() error {
		c := &sseConnection{connection: conn, server: s, token: from.Token, stream: httpkit.NewEventStream(w, s.opts.WriteTimeout)}
		c.serve(r.Context(), version)
		return nil
	})
}

// serve writes events until the connection ends or the agent is gone.
func (s *sseConnection) serve(ctx context.Context, version string) {
	if s.writeEvent("hello", "", helloFrame(s.server, s.connection, version).encode()) != nil {
		return
	}
	d := &deliverer{server: s.server, conn: s.connection}
	if d.run(ctx, s.onHeartbeat, s.deliver) == nil {
		_ = s.writeEvent("bye", "", frame{Bye: &bye{s.reason()}}.encode())
	}
}

// onHeartbeat verifies the token and writes a comment. A successful write is the only sign of life
// of the agent.
func (s *sseConnection) onHeartbeat(ctx context.Context) error {
	if s.server.authenticator.Revoked(ctx, s.token) {
		s.end(endTokenRejected)
		return nil
	}
	if err := s.write([]byte(": heartbeat\n\n")); err != nil {
		return err
	}
	s.alive.Store(true)
	return nil
}

func (s *sseConnection) deliver(out outbound) error {
	for _, part := range out.parts {
		if err := s.writeEvent("message", out.id, part); err != nil {
			return err
		}
	}
	return nil
}

func (s *sseConnection) writeEvent(name, id string, data []byte) error {
	return s.write(httpkit.AppendEvent(nil, id, name, data))
}

// write sends at once. An agent that does not read in time is disconnected.
func (s *sseConnection) write(b []byte) error {
	if _, err := s.stream.Write(b); err != nil {
		return errs.Wrap(errs.Unavailable, err, "the agent is disconnected")
	}
	return s.stream.Flush()
}
